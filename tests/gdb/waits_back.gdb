# only: recorded exact live live-exact
break done
continue
break work
reverse-continue
delete
reverse-finish
print $_thread
reverse-next
reverse-next
print $_thread
next
print $_thread
break work thread 1
reverse-next
print $_thread
