#!/bin/sh
# The benchmarks, a table each, on standard output and into benches/runs/. Ratios within one run
# count; machines are shared and noisy, so the load is noted before and after.
set -eu
cd "$(dirname "$0")/.."

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
run="benches/runs/$(date -u +%F)-$commit.txt"

load() {
    echo "load $1: $(cut -d ' ' -f 1-3 /proc/loadavg) (1, 5, 15 minutes)"
}

tables() {
    echo "date: $(date -u +'%F %H:%M') UTC"
    echo "commit: $commit"
    echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, Linux $(uname -r)"
    echo "rustc: $(rustc --version)"
    load before
    echo
    echo "## walk"
    cargo bench --quiet --bench walk
    echo
    echo "## far"
    cargo bench --quiet --bench far
    echo
    echo "## decode"
    cargo bench --quiet --bench decode
    echo
    echo "## memory"
    sh benches/memory.sh
    echo
    load after
}

mkdir -p benches/runs
# A pipe would hide that something failed.
{ tables; : >"$run.fine"; } 2>&1 | tee "$run"
rm "$run.fine"
