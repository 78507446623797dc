next
next
next
next
next
reverse-next
reverse-next
reverse-next
reverse-next
next
break spin
reverse-next
next
next
reverse-next
reverse-step
delete
step
next
next
reverse-next
until 6
until 7
reverse-next
