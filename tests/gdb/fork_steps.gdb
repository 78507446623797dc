# only: live live-exact stepped plain
# program: forks.c
break *fork_here
continue
stepi
output *(unsigned char *)$pc
stepi
output *(unsigned char *)$pc
stepi
output *(unsigned char *)$pc
print $rax == 0
