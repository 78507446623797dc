# only: live live-exact stepped plain
# program: forks.c
break in_parent
continue
set follow-fork-mode child
break in_child
continue
print n
backtrace
next
print n
catch exec
continue
info breakpoints 4
stepi
