next
next
next
break 6
reverse-next
reverse-next
reverse-finish
reverse-finish
reverse-next
reverse-next
reverse-next
next
finish
finish
