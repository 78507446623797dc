# only: live live-exact stepped plain
# program: forks.c
break in_parent
continue
continue
delete
set follow-fork-mode child
break in_child
continue
print n
backtrace
