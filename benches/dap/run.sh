#!/bin/sh
# How long a user of the debug adapter waits: in a run of a minute, and in one of 10^9 instructions with a
# line that is executed 10^5 times. Needs gcc, gdb and python3. Usage: run.sh [CONTRAFLOW]
set -eu
cd "$(dirname "$0")/../.."
contraflow=$(realpath "${1:-target/release/contraflow}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(date -u +%F), load $(cut -d' ' -f1 /proc/loadavg)"
gcc -g -O1 -o "$dir/hits" benches/dap/hits.c
gcc -g -O1 -o "$dir/minute" benches/goals/resident.c

# measure NAME HITS SOURCE MARKER COMMAND...
measure() {
    name=$1 hits=$2 source=$(realpath "$3") line=$(grep -n "$4" "$3" | cut -d: -f1)
    shift 4
    echo "$name:"
    "$contraflow" record -q -o "$dir/recording" "$@" > /dev/null < /dev/null
    python3 benches/dap/measure.py "$contraflow" "$dir/recording" "$source" "$line" $hits | sed 's/^/  /'
    rm -rf "$dir/recording"
}

measure "10^9 instructions, 10^5 hits" 100000 benches/dap/hits.c "// hits" "$dir/hits"
measure "a minute, 10 MB" "" benches/goals/resident.c "x ^= x >> 7" "$dir/minute" 10 60
