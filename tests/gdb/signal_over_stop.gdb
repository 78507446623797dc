# only: live live-exact stepped plain
break pass
continue
shell sleep 0.5
continue
print i
continue
print i
continue
print i
