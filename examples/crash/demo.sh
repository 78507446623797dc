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
echo (gdb) print a->owner\n
print a->owner
echo \nThe account has no owner any more. Who took it? Back, out of here and into what ran before.\n\n
echo (gdb) reverse-next\n
reverse-next
echo (gdb) reverse-finish\n
reverse-finish
echo (gdb) reverse-finish\n
reverse-finish
echo (gdb) reverse-step\n
reverse-step
echo (gdb) reverse-step\n
reverse-step
echo (gdb) backtrace\n
backtrace
echo (gdb) list\n
list
echo (gdb) cf-when\n
cf-when
detach
GDB
"$contraflow" replay "$work/recording" -- -nx -batch -x walk.gdb 2>&1 | tee walk.out
grep -q "the bug: .a. stays on the list" walk.out ||
    { echo "the walk did not reach the bug" >&2; exit 1; }
echo
echo "That line is the bug: the account is freed, but stays on the list."
