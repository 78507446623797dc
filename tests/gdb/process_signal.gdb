handle SIGHUP SIGUSR1 SIGUSR2 nostop noprint pass
break on_usr2
continue
delete
break process_signal.c:25
continue
next
reverse-next
reverse-next
next
break on_usr1
reverse-next
reverse-next
next
next
next
next
reverse-step
reverse-step
reverse-next
