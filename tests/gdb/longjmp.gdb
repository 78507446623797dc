# only: live live-exact full
next
next
next
next
reverse-next
reverse-next
tbreak thrower
reverse-continue
backtrace
reverse-finish
reverse-finish
reverse-next
