# only: live live-exact stepped plain
# program: forks.c
set follow-fork-mode child
break in_child
continue
print n
backtrace
next
print n
