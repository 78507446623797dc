# only: recorded
break on_trap
continue
backtrace
continue
reverse-finish
reverse-next
reverse-continue
delete
break trap
reverse-continue
next
next
next
reverse-next
