tbreak a0
continue
rbreak ^[a-e][0-9]$
continue
continue
tbreak 29
disable
enable 53
continue
enable
reverse-continue
reverse-continue
reverse-continue
disable 4-52
reverse-continue
ignore 3 10
reverse-continue
info breakpoints 3
info breakpoints 32
