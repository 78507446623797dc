# only: live live-exact stepped
# program: forks.c
set follow-fork-mode child
break in_child
continue
next
reverse-next
reverse-finish
next
step
reverse-continue
continue
delete
continue
print n
reverse-step
continue
continue
