# only: live live-exact stepped plain
break reach
continue
signal SIGCHLD
print handled
print reached
continue
signal SIGUSR1
print handled == 10
print reached
