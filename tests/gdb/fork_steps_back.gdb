# only: live live-exact stepped
# program: forks.c
break *fork_here
continue
catch fork
continue
output *(unsigned char *)$pc
stepi
output *(unsigned char *)$pc
stepi
output *(unsigned char *)$pc
reverse-stepi
output *(unsigned char *)$pc
reverse-stepi
output *(unsigned char *)$pc
stepi
output *(unsigned char *)$pc
continue
output *(unsigned char *)$pc
