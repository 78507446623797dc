# only: recorded exact live live-exact
break leaf
continue
continue
finish
reverse-continue
reverse-continue
reverse-continue
reverse-stepi
reverse-step
reverse-continue
continue
reverse-continue
delete
break main
continue
reverse-next
