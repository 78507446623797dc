#!/bin/sh
# How long a user of an exact recording waits: to open it, to seek, to step by instructions, to search
# back over some 10^9 instructions for a write; and the memory of the replay with its checkpoints. One
# run; needs gcc and gdb.
set -eu
cd "$(dirname "$0")/../.."
contraflow=$(realpath "${1:-target/release/contraflow}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
gcc -g -O1 -o "$dir/billion" benches/exact/billion.c
echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(date -u +%F), load $(cut -d' ' -f1 /proc/loadavg)"

# measure VARIABLE COMMAND...
measure() {
    variable=$1
    shift
    echo "$*:"
    rm -rf "$dir/recording"
    "$contraflow" record --exact -o "$dir/recording" "$@" 2>&1 > /dev/null < /dev/null | sed -n 's/^contraflow: .* after /  recorded in /p'
    "$contraflow" check "$dir/recording" | sed 's/^/  /'
    { echo "VARIABLE = '$variable'"; cat benches/exact/measure.py; } > "$dir/measure.py"
    begun=$(date +%s%N)
    "$contraflow" replay "$dir/recording" -- -nx -batch > /dev/null 2>&1
    echo "  open and close in gdb: $((($(date +%s%N) - begun) / 1000000)) ms"
    "$contraflow" replay "$dir/recording" -- -nx -batch -x "$dir/measure.py" 2>&1 |
        sed -n 's/^\(\(back\|before\|after\|seek\|first\|reverse\|stepi\).*: .*\)/  \1/p'
}

measure written "$dir/billion"
python=$(python3 -c 'import sys; print(sys.executable)')
measure '' "$python" -c 'for i in range(3000000): pass'
command -v node > /dev/null && measure '' node -e 'let s = 0; for (let i = 0; i < 3e7; i++) s += i % 7; console.log(s)'
