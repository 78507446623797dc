# only: recorded exact live live-exact
# flags: -static -no-pie
break first
break second
continue
continue
finish
reverse-continue
reverse-finish
reverse-continue
reverse-finish
step
continue
reverse-step
