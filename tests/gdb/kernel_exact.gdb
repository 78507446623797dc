# only: exact
# program: kernel.c
# flags: -static
handle SIGUSR1 SIGUSR2 nostop noprint pass
break 25
continue
break 24
catch syscall getppid
handle SIGUSR1 SIGUSR2 stop print pass
reverse-continue
reverse-continue
reverse-continue
reverse-continue
backtrace
reverse-continue
reverse-continue
backtrace
reverse-continue
reverse-continue
continue
continue
continue
continue
stepi
stepi
reverse-stepi
reverse-stepi
continue
continue
handle SIGUSR1 nostop noprint
delete 4
catch syscall getuid kill
reverse-continue
reverse-continue
reverse-continue
reverse-continue
reverse-continue
reverse-continue
