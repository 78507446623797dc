#!/bin/sh
# The benchmarks, a table each. Ratios within one run count; machines are shared and noisy.
set -eu
cd "$(dirname "$0")/.."
echo "host: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, $(date -u +%F)"
cargo bench --bench walk
cargo bench --bench decode
