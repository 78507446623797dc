# only: exact live-exact
# program: library.c
step
step
step
step
step
reverse-step
reverse-step
break rand
reverse-continue
finish
stepi
reverse-stepi
reverse-next
delete
break free
continue
reverse-finish
reverse-step
