# only: live live-exact stepped
# program: forks.c
set detach-on-fork off
continue
inferior 2
continue
print n
detach inferiors 2
inferior 1
set detach-on-fork on
break in_parent
continue
print n
reverse-finish
