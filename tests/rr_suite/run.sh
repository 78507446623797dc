#!/bin/sh
# Records the programs of rr's testsuite and replays them to their ends: some 680 programs that were
# written for what is hard to record. Prints those that do not replay (REPLAY), that end with another
# status than by themselves (STATUS), or that take too long (TIME), and how many there are of each.
# Usage: run.sh CONTRAFLOW [NAME...]
#   RR_SOURCE      the directory of rr's source (https://github.com/rr-debugger/rr)
#   SUITE_SECONDS  the time that a recording, and a replay, may take (60)
#   SUITE_LOGS     a directory to keep programs, recordings and outputs in
set -u
contraflow=$(realpath "$1") || exit 2
shift

skip() {
    echo "SKIPPED: rr's testsuite: $1" >&2
    exit 0
}
for tool in gcc python3 setsid unshare; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[ -f "${RR_SOURCE:-/nonexistent}/src/test/util.h" ] || skip "RR_SOURCE names no source of rr"
source=$(realpath "$RR_SOURCE")
seconds=${SUITE_SECONDS:-60}
if [ -n "${SUITE_LOGS-}" ]; then
    mkdir -p "$SUITE_LOGS"
    dir=$(realpath "$SUITE_LOGS")
else
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
fi
export CONTRAFLOW_HOME="$dir/home"
mkdir -p "$dir/generated" "$dir/bin/x86"

for name in SyscallEnumsX64 SyscallEnumsX86 SyscallEnumsGeneric SyscallEnumsForTestsX64 \
    SyscallEnumsForTestsX86 SyscallEnumsForTestsGeneric; do
    python3 "$source/src/generate_syscalls.py" "$dir/generated/$name.generated"
done
if [ $# -eq 0 ]; then
    # The lists of programs in its CMakeLists.txt.
    set -- $(sed -n '/^set(BASIC_TESTS$/,/^)/p; /^set(TESTS_WITH_PROGRAM$/,/^)/p' \
        "$source/CMakeLists.txt" | grep -v '[()#]' | sort -u)
fi

# alone SECONDS COMMAND...: runs it in a PID namespace, so that no process outlives it. Some of the programs
# leave processes that start each other without end.
alone() {
    limit=$1
    shift
    unshare --pid --fork --kill-child --mount-proc sh -c 'limit=$1; shift; timeout -s KILL "$limit" setsid "$@"' \
        sh "$limit" "$@" </dev/null
}
unshare --pid --fork --kill-child --mount-proc true 2>/dev/null || skip "it needs PID namespaces (root)"

all=0 replay=0 status=0 late=0
for name in "$@"; do
    program=$dir/bin/$name
    gcc -O0 -g -std=gnu11 -w -pthread -I"$dir/generated" -I"$source/include" -I"$source/src" \
        -I"$source/src/preload" -I"$source/src/test" -o "$program" "$source/src/test/$name.c" \
        -lrt -ldl -lm 2>/dev/null || continue
    work=$dir/work/$name
    rm -rf "$work"
    mkdir -p "$work/native" "$work/recorded"
    cd "$work/native" || exit 2
    alone 15 "$program" >../native.out 2>&1
    native=$?
    # It waits for what rr's script does to it.
    [ $native = 137 ] && continue
    all=$((all + 1))
    cd "$work/recorded" || exit 2
    alone "$seconds" "$contraflow" record -q -o ../recording "$program" >../recorded.out 2>&1
    recorded=$?
    if [ $recorded = 137 ] && [ $native != 137 ]; then
        late=$((late + 1))
        echo "TIME   $name"
        continue
    fi
    cd "$work" || exit 2
    timeout -s KILL "$seconds" "$contraflow" check recording </dev/null >check.out 2>&1
    checked=$?
    if [ $checked != 0 ]; then
        replay=$((replay + 1))
        echo "REPLAY $name: $(tail -n 1 check.out)"
    fi
    if [ $recorded != $native ]; then
        status=$((status + 1))
        echo "STATUS $name: $native by itself, $recorded recorded"
    fi
done
echo "$all programs: $replay do not replay, $status end otherwise, $late take longer than $seconds s"
[ $replay = 0 ]
