# flags: -O2
break last
continue
finish
delete
step
step
reverse-step
reverse-step
reverse-step
reverse-step
reverse-next
reverse-next
break last
reverse-next
reverse-finish
reverse-finish
reverse-step
tbreak 14
continue
backtrace
up
