# only: exact
# flags: -static -pthread
catch syscall nanosleep
continue
stepi
reverse-continue
continue
