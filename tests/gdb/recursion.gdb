break 6
continue
backtrace
finish
next
next
continue
delete
tbreak 17
continue
reverse-next
reverse-next
reverse-next
step
finish
reverse-next
reverse-step
reverse-step
reverse-step
reverse-next
reverse-next
reverse-step
reverse-finish
reverse-finish
step
step
until
reverse-finish
next
reverse-next
break factorial
next
backtrace
reverse-next
reverse-next
