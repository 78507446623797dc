#!/bin/sh
# The demo: a program crashes; its recording leads back from the crash to the bug.
# Usage: demo.sh CONTRAFLOW
set -eu
contraflow=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/crash.c" "$work"
cd "$work"

echo '$ gcc -g -o crash crash.c'
gcc -g -O0 -o crash crash.c
echo '$ contraflow record ./crash'
status=0
"$contraflow" record -o "$work/recording" ./crash || status=$?
[ "$status" = 139 ] || { echo "expected the program to crash, got status $status" >&2; exit 1; }

echo '$ contraflow replay'
cat > walk.gdb <<'GDB'
set pagination off
set style enabled off
echo (gdb) backtrace\n
backtrace
echo (gdb) print *a\n
print *a
echo \nThe account has no owner any more. Who took it?\n\n
echo (gdb) watch -l a->owner\n
watch -l a->owner
echo (gdb) reverse-continue\n
reverse-continue
echo (gdb) backtrace\n
backtrace
echo (gdb) print *a\n
print *a
delete
echo \nIts name is freed already. Whose account was it? Back to the write before that.\n\n
echo (gdb) cf-last a->owner\n
cf-last a->owner
echo (gdb) cf-when\n
cf-when
detach
GDB
"$contraflow" replay "$work/recording" -- -nx -batch -x walk.gdb 2>&1 | tee walk.out
grep -q "retire (a=0x[0-9a-f]*) at crash.c:31" walk.out &&
    grep -q "the bug: .a. stays on the list" walk.out ||
    { echo "the walk did not reach the bug" >&2; exit 1; }
echo
echo "crash.c:31 is the bug: the account gives its owner back, but stays on the list."
