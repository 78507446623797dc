# program: longjmp.c
break 23
continue
reverse-next
reverse-stepi
next
tbreak thrower
reverse-continue
backtrace
reverse-finish
reverse-finish
step
step
step
stepi
