handle SIGALRM nostop noprint pass
break after
continue
next
break on_alarm
reverse-continue
reverse-continue
next
reverse-next
reverse-finish
delete
break before
reverse-continue
next
next
reverse-next
break on_alarm
continue
next
next
