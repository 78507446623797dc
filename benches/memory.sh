#!/bin/sh
# How much memory it takes to decode, index and list a trace of 2 GB: fails above 512 MiB. The
# trace is a recorded program's, over and over again; each command's count of instructions must be
# that of so many runs. Needs gcc, time, and 5 GB of free disk.
set -eu
cd "$(dirname "$0")/.."

trace_bytes=2000000000
limit_kib=$((512 << 10))
disk_kib=$((5 << 20))
contraflow=${CONTRAFLOW:-$PWD/target/release/contraflow}

for tool in gcc /usr/bin/time; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: memory: $tool is not installed" >&2
        exit 0
    fi
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/contraflow-memory-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
if [ "$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')" -lt "$disk_kib" ]; then
    echo "SKIPPED: memory: less than 5 GB are free in $dir; set TMPDIR" >&2
    exit 0
fi
export CONTRAFLOW_HOME="$dir/store"

# Runs contraflow, prints a row with its peak, and fails when that is above the limit.
# measured NAME OUTPUT ARGUMENTS...
measured() {
    name=$1
    output=$2
    shift 2
    /usr/bin/time -f '%e %M' -o "$dir/used" "$contraflow" "$@" >"$output" 2>"$dir/said" || {
        cat "$dir/said" >&2
        echo "$name: failed" >&2
        exit 1
    }
    read -r seconds peak_kib <"$dir/used"
    printf '%-42s %8s %10s\n' "$name" "$seconds" "$((peak_kib >> 10))"
    if [ "$peak_kib" -gt "$limit_kib" ]; then
        echo "$name: $((peak_kib >> 10)) MiB, and at most $((limit_kib >> 10)) are allowed" >&2
        exit 1
    fi
}

# equal WHAT A B
equal() {
    [ "$2" = "$3" ] || { echo "$1: $2, and not $3" >&2; exit 1; }
}

# The instructions in the last line of `dump stats`, where nothing is lost.
instructions() {
    sed -n '$s/^instructions \([0-9]*\) gaps 0$/\1/p' "$1"
}

# Static and at a fixed address: one file is all the code.
gcc -O2 -static -no-pie -o "$dir/program" benches/programs/dispatch.c
"$contraflow" record -q --path -o "$dir/once" "$dir/program" >"$dir/printed"
cat "$dir"/once/trace/*.pt >"$dir/chunk"
"$contraflow" dump --pt "$dir/chunk" --elf "$dir/program" stats >"$dir/stats"
once=$(instructions "$dir/stats")
[ "${once:-0}" -gt 0 ] || { echo "the recorded trace does not decode" >&2; exit 1; }

# Doubled up to some megabytes first, so that few large pieces are copied.
runs=1
while [ "$(stat -c %s "$dir/chunk")" -lt 16000000 ]; do
    cat "$dir/chunk" "$dir/chunk" >"$dir/doubled"
    mv "$dir/doubled" "$dir/chunk"
    runs=$((2 * runs))
done
copies=$((trace_bytes / $(stat -c %s "$dir/chunk") + 1))
for _ in $(seq "$copies"); do cat "$dir/chunk"; done >"$dir/trace"
total=$((once * runs * copies))
from=$((total / 2))
to=$((from + 1000))

echo "a trace of $(($(stat -c %s "$dir/trace") / 1000000)) MB, $((total / 1000000)) million instructions"
printf '%-42s %8s %10s\n' command seconds 'peak MiB'
measured 'dump --pt stats' "$dir/stats" dump --pt "$dir/trace" --elf "$dir/program" stats
equal 'instructions of dump --pt stats' "$(instructions "$dir/stats")" "$total"
measured 'dump --pt insns --from X --to Y' "$dir/of-trace" \
    dump --pt "$dir/trace" --elf "$dir/program" insns --from "$from" --to "$to"
measured 'import --pt' "$dir/imported" \
    import -q --pt "$dir/trace" --elf "$dir/program" -o "$dir/recording"
# The recording holds the trace now.
rm "$dir/trace"
measured 'index --force' "$dir/index" index --force "$dir/recording"
equal 'instructions of index' "$(sed 's/.*: \([0-9]*\) instructions.*/\1/' "$dir/index")" "$total"
measured 'dump insns --from X --to Y, with the index' "$dir/of-recording" \
    dump insns --from "$from" --to "$to" "$dir/recording"
equal 'lines of dump insns' "$(grep -c . "$dir/of-recording")" "$(grep -c . "$dir/of-trace")"
cmp "$dir/of-trace" "$dir/of-recording"
rm "$dir/recording/index.bin"
measured 'dump insns --from X --to Y, without it' "$dir/of-recording" \
    dump insns --from "$from" --to "$to" "$dir/recording"
cmp "$dir/of-trace" "$dir/of-recording"
