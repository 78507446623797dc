next
next
next
next
reverse-next
reverse-next
next
break compare
reverse-next
reverse-next
finish
delete
reverse-stepi
tbreak 15
continue
break compare
reverse-continue
reverse-continue
up 2
next
