#!/bin/sh
# What recording costs: whole programs by themselves and recorded, in one run: exactly, with the
# replay of that by `contraflow check` (ratio to the recording), and their path, as a ring and in
# full. Medians of RUNS (5), in seconds of wall-clock time; ratios within one run count, machines are
# shared and noisy.
set -eu
cd "$(dirname "$0")/../.."
contraflow=${1:-target/release/contraflow}
runs=${RUNS:-5}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for source in benches/capture/*.c; do
    gcc -O2 -ftree-vectorize -mavx2 -o "$dir/$(basename "$source" .c)" "$source"
done
head -c 8000000 "$contraflow" > "$dir/data"

# seconds COMMAND...: the median of the runs
seconds() {
    for _ in $(seq "$runs"); do
        rm -rf "$dir/recording"
        start=$(date +%s%N)
        "$@" > /dev/null 2>&1 < /dev/null || true
        end=$(date +%s%N)
        echo "$(((end - start) / 1000))"
    done | sort -n | sed -n "$(((runs + 1) / 2))p"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(date -u +%F), load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-24s %9s %9s %7s %9s %7s %9s %7s %9s %7s %9s\n' program 'native s' 'exact s' ratio \
    'check s' ratio 'ring s' ratio 'full s' ratio valgrind
line() {
    name=$1
    shift
    native=$(seconds "$@")
    exact=$(seconds "$contraflow" record -q --exact -o "$dir/recording" "$@")
    # The recording of the last run is replayed.
    mv "$dir/recording" "$dir/replayed"
    check=$(seconds "$contraflow" check "$dir/replayed")
    rm -rf "$dir/replayed"
    ring=$(seconds "$contraflow" record -q --path -o "$dir/recording" "$@")
    full=$(seconds "$contraflow" record -q --full -o "$dir/recording" "$@")
    peer=-
    if command -v valgrind > /dev/null; then
        peer=$(ratio "$(RUNS=1 runs=1 seconds valgrind -q --tool=none "$@")" "$native")
    fi
    printf '%-24s %9.3f %9.3f %7s %9.3f %7s %9.3f %7s %9.3f %7s %9s\n' "$name" \
        "$(ratio "$native" 1000000)" "$(ratio "$exact" 1000000)" "$(ratio "$exact" "$native")" \
        "$(ratio "$check" 1000000)" "$(ratio "$check" "$exact")" \
        "$(ratio "$ring" 1000000)" "$(ratio "$ring" "$native")" \
        "$(ratio "$full" 1000000)" "$(ratio "$full" "$native")" "$peer"
}

for program in "$dir"/*; do
    case $program in
    */data | */recording) ;;
    *) line "$(basename "$program")" "$program" ;;
    esac
done
line 'gzip -9, 8 MB' gzip -9 -c "$dir/data"
command -v xz > /dev/null && line 'xz -1, 8 MB' xz -1 -c "$dir/data"
line 'bash -c :' bash -c :
line 'ls -l /etc' ls -l /etc
line 'find /usr/share' find /usr/share
line 'ls -lR /usr/share' ls -lR /usr/share
# 5,000 small files, in memory if there is room for files there.
memory=$(mktemp -d -p /dev/shm 2> /dev/null || mktemp -d)
trap 'rm -rf "$dir" "$memory"' EXIT
mkdir "$memory/from"
for number in $(seq 5000); do
    echo "$number" > "$memory/from/$number"
done
line 'cp -r, 5,000 files' cp -rT "$memory/from" "$memory/to"
command -v node > /dev/null && line 'node -e 0' node -e 0
python=$(python3 -c 'import sys; print(sys.executable)' 2> /dev/null || true)
if [ -n "$python" ]; then
    line 'python3 -c pass' "$python" -c pass
    line 'python3 loop' "$python" -c 'for i in range(3000000): pass'
fi
