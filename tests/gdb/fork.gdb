# only: recorded exact live live-exact
next
next
next
next
next
next
next
reverse-next
reverse-next
reverse-next
break after
reverse-next
backtrace
reverse-finish
reverse-next
reverse-next
reverse-next
next
next
