tbreak 25
continue
break work if $_caller_is("odd")
reverse-continue
backtrace 2
reverse-continue
condition 3 $_caller_is("even", 1)
reverse-continue
backtrace 2
condition 3
ignore 3 2
reverse-continue
set $hits = 0
condition 3 $hits++ == 2
continue
print $hits
delete
break even
break odd
tbreak work
reverse-continue
reverse-continue
reverse-continue
continue
disable 4
reverse-continue
enable once 4
continue
continue
info breakpoints
