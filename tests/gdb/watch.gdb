# only: live live-exact plain
tbreak count
continue
watch n
continue
continue
print n
delete 3
watch n if n == 40
continue
print n
delete 4
watch odd.value
continue
print odd.value
delete 5
watch word
continue
continue
continue
print/x word
delete 6
awatch n
continue
delete 7
kill
