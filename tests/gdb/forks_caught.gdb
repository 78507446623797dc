# only: live stepped plain
# program: forks.c
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
info breakpoints
continue
finish
print n
break plain_fork
continue
next
next
info breakpoints
