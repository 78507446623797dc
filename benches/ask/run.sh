#!/bin/sh
# Questions about whole histories: how long they take, beside a replay of the run. One run; needs gcc.
set -eu
cd "$(dirname "$0")/../.."
contraflow=$(realpath "${1:-target/release/contraflow}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CONTRAFLOW_HOME="$dir/home"
for program in values calls; do
    gcc -g -O1 -o "$dir/$program" "benches/ask/$program.c"
done
echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(date -u +%F), load $(cut -d' ' -f1 /proc/loadavg)"

# record NAME PROGRAM [ARGUMENT]...
record() {
    recording=$dir/run-$1
    shift
    "$contraflow" record -o "$recording" "$@" > /dev/null 2>&1
}

# timed WHAT COMMAND...
timed() {
    what=$1 status=0
    shift
    begun=$(date +%s%N)
    "$@" > "$dir/output" 2> "$dir/errors" || status=$?
    # As diff(1), `diff` reports differences by 1.
    if [ $status -gt 1 ] || [ $status -eq 1 ] && [ "$2" != diff ]; then
        cat "$dir/errors" >&2
        exit 1
    fi
    echo "$what: $((($(date +%s%N) - begun) / 1000000)) ms, $(wc -l < "$dir/output") lines"
}

record values "$dir/values"
line=$(grep -n '// hits' benches/ask/values.c | cut -d: -f1)
timed "hits of a line, 10^6, with two values (goal 10 s)" \
    "$contraflow" hits "$dir/run-values" --at "values.c:$line" --print 'amount, a->id' --csv
record far "$dir/values" 250000
timed "a replay of 1.3 * 10^9 instructions" "$contraflow" check "$dir/run-far"
last=$(grep -n 'printf("%ld %ld' benches/ask/values.c | cut -d: -f1)
at=$("$contraflow" hits "$dir/run-far" --at "values.c:$last" --csv | sed -n 's/^\([0-9][^,]*\),.*/\1/p' | head -n 1)
# Once for the path, which is kept.
timed "origin of a value 10^9 instructions back, the first question" \
    "$contraflow" origin "$dir/run-far" --at "$at" 'accounts[7].id'
timed "the same, a second time (goal 5 s)" \
    "$contraflow" origin "$dir/run-far" --at "$at" 'accounts[7].id'

record good "$dir/calls"
record bad "$dir/calls" 5000000 7
timed "a replay of 10^9 instructions, 1.5 * 10^7 calls" "$contraflow" check "$dir/run-good"
timed "its calls and the rest to Parquet, the path made for it" \
    "$contraflow" export parquet "$dir/run-good" -o "$dir/dataset"
timed "diff of two such runs, which differ at their end (goal 10 s)" \
    "$contraflow" diff "$dir/run-good" "$dir/run-bad"
