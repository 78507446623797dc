#!/bin/sh
# Records the programs of the Linux Test Project that test system calls, and replays them to their ends:
# some 1400 programs, for almost all calls of the kernel. Prints those that do not replay (REPLAY), whose
# verdicts are others than natively (VERDICT), or that take too long (TIME), and how many there are of each.
# Programs that change what is the machine's (its clock, its swap, its modules) are left out.
# Usage: run.sh CONTRAFLOW [NAME...]
#   LTP_BUILD      the directory of LTP's source (https://github.com/linux-test-project/ltp), configured, where
#                  `make -C testcases/kernel/syscalls` was run
#   SUITE_SECONDS  the time that a recording, and a replay, may take (60)
#   SUITE_LOGS     a directory to keep outputs in
set -u
contraflow=$(realpath "$1") || exit 2
shift

skip() {
    echo "SKIPPED: LTP: $1" >&2
    exit 0
}
for tool in setsid unshare; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
tests=${LTP_BUILD:-/nonexistent}/testcases/kernel/syscalls
[ -x "$tests/getpid/getpid01" ] || skip "LTP_BUILD names no LTP that is built"
tests=$(realpath "$tests")
seconds=${SUITE_SECONDS:-60}
if [ -n "${SUITE_LOGS-}" ]; then
    mkdir -p "$SUITE_LOGS"
    dir=$(realpath "$SUITE_LOGS")
else
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
fi
export CONTRAFLOW_HOME="$dir/home"
# Programs find their helpers in PATH.
mkdir -p "$dir/bin"
find "$tests" -type f -perm -u+x ! -name '*.sh' ! -name '*.so' -exec ln -sf -t "$dir/bin" {} +
export PATH="$dir/bin:$PATH"
export LTP_TIMEOUT_MUL=3 LTP_COLORIZE_OUTPUT=n

# What is the machine's.
machines='reboot|kexec|swap|_module|syslog|quotactl|clock_settime|settimeofday|stime|adjtime|leapsec|acct|vhangup|nfsservctl|sysfs|sched_setscheduler|set_mempolicy|migrate_pages|move_pages|mbind|get_mempolicy|ioctl_loop|ioctl_sg|fanotify|fallocate|fsync|sync_file_range|syncfs|msgstress|fork13|fork14|openposix|bpf_prog|userfaultfd|io_uring'
if [ $# -eq 0 ]; then
    # Programs that name their tests; others are helpers.
    set -- $(cd "$dir/bin" && ls | grep -E '[0-9]{2}$' | grep -vE "$machines")
fi

# alone SECONDS COMMAND...: runs it in namespaces of its own, so that no process outlives it.
alone() {
    limit=$1
    shift
    unshare --pid --fork --kill-child --mount-proc --uts --ipc sh -c \
        'limit=$1; shift; timeout -s KILL "$limit" setsid "$@"' sh "$limit" "$@" </dev/null
}
unshare --pid --fork --kill-child --mount-proc true 2>/dev/null || skip "it needs PID namespaces (root)"

# Prints how often each verdict was given.
verdicts() {
    grep -aoE 'T(PASS|FAIL|BROK|CONF)' "$1" | sort | uniq -c | tr -s ' \n' ' '
}

all=0 replay=0 verdict=0 late=0
for name in "$@"; do
    program=$dir/bin/$name
    work=$dir/work/$name
    rm -rf "$work"
    mkdir -p "$work/native" "$work/recorded"
    cd "$work/native" || exit 2
    export TMPDIR="$work/native"
    alone 20 "$program" >../native.out 2>&1
    native=$?
    # It takes long, or is skipped.
    case $native in 32 | 137) rm -rf "$work"; continue ;; esac
    all=$((all + 1))
    cd "$work/recorded" || exit 2
    export TMPDIR="$work/recorded"
    alone "$seconds" "$contraflow" record -q -o ../recording "$program" >../recorded.out 2>&1
    recorded=$?
    cd "$work" || exit 2
    good=yes
    if [ $recorded = 137 ]; then
        late=$((late + 1))
        good=no
        echo "TIME    $name"
    else
        timeout -s KILL "$seconds" "$contraflow" check recording </dev/null >check.out 2>&1
        if [ $? != 0 ] || grep -q 'as far as' check.out; then
            replay=$((replay + 1))
            good=no
            echo "REPLAY  $name: $(tail -n 1 check.out)"
        fi
        if [ "$native $(verdicts native.out)" != "$recorded $(verdicts recorded.out)" ]; then
            verdict=$((verdict + 1))
            good=no
            echo "VERDICT $name: $native $(verdicts native.out)natively, $recorded $(verdicts recorded.out)recorded"
        fi
    fi
    [ $good = no ] || rm -rf "$work"
done
echo "$all programs: $replay do not replay, $verdict have other verdicts, $late take longer than $seconds s"
[ $replay = 0 ]
