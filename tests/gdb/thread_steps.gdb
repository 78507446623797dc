# only: recorded exact live live-exact
# program: threads.c
break done
continue
break work
reverse-continue
delete
reverse-next
reverse-step
print $_thread
next
next
next
print $_thread
reverse-next
break work thread 1
reverse-next
reverse-continue
print $_thread
finish
print $_thread
delete
set scheduler-locking replay
reverse-next
reverse-next
print $_thread
stepi
reverse-stepi
reverse-stepi
print $_thread
