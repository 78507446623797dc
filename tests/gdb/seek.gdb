# only: recorded exact live live-exact
# program: conditions.c
tbreak 25
continue
python place = lambda text: [int(number) for number in text.split(".")]
python start = gdb.execute("cf-when", to_string=True).split()[1]
break work
reverse-continue
python first = gdb.execute("cf-when", to_string=True).split()[1]
reverse-continue
reverse-continue
python second = gdb.execute("cf-when", to_string=True).split()[1]
python gdb.execute("cf-seek " + first, to_string=True)
frame
backtrace 1
python gdb.execute("cf-seek " + second, to_string=True)
backtrace
python print(place(second) < place(first) < place(start))
continue
continue
python print(gdb.execute("cf-when", to_string=True).split()[1] == first)
reverse-finish
reverse-step
python gdb.execute("cf-seek +1", to_string=True)
python gdb.execute("cf-seek -1", to_string=True)
backtrace
step
