break add
continue
continue
stepi
next
continue
continue
stepi
reverse-stepi
reverse-continue
reverse-step
step
step
reverse-next
delete
break 11
reverse-continue
reverse-continue
continue
tbreak 10
continue
continue
reverse-continue
reverse-stepi
stepi
info breakpoints
disable 3
