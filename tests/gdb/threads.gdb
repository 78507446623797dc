# only: recorded exact live live-exact
break done
continue
break work
reverse-continue
backtrace 2
print $_thread
reverse-continue
print $_thread
reverse-continue
print $_thread
reverse-continue
print $_thread
continue
print $_thread
continue
print $_thread
reverse-finish
print $_thread
delete
break work thread 2
reverse-continue
print $_thread
reverse-continue
print $_thread
continue
print $_thread
next
next
print $_thread
reverse-next
reverse-next
print $_thread
break work thread 1
reverse-continue
print $_thread
reverse-continue
print $_thread
