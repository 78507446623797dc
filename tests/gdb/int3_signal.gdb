# program: int3.c
# only: live live-exact plain
next
next
backtrace
print traps
tbreak 14
signal SIGTRAP
print traps
next
next
