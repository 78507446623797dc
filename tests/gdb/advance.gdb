advance body
finish
next
until
until
until
until
until
until
until
advance 19
next
reverse-next
reverse-next
reverse-next
tbreak 12
reverse-continue
until
until
until
until 16
advance 17
until 18
reverse-next
tbreak body
reverse-continue
reverse-finish
until 13
