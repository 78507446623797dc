# only: live live-exact stepped
# program: forks.c
break in_parent
continue
continue
print n
catch vfork
continue
reverse-continue
reverse-continue
reverse-continue
reverse-step
delete 3
continue
continue
continue
continue
print n
