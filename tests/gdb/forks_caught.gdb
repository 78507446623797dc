# only: live live-exact stepped plain
# program: forks.c
# gdb counts a breakpoint twice where a child's end comes as it steps over it.
catch fork
catch vfork
break in_parent
continue
continue
info breakpoints
continue
continue
print n
continue
info breakpoints 2 3
continue
finish
print n
break plain_fork
continue
next
next
info breakpoints 2 3
