next
break inner
continue
finish
finish
tbreak 21
delete 2
continue
delete
tbreak inner
reverse-continue
reverse-finish
reverse-finish
reverse-finish
step
step
finish
step
up
finish
reverse-step
reverse-next
reverse-next
tbreak inner
reverse-continue
up
up
reverse-finish
advance 12
backtrace
reverse-next
break inner
reverse-continue
reverse-finish
reverse-step
