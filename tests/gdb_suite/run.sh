#!/bin/sh
# Runs parts of gdb's own testsuite with `contraflow serve` in gdbserver's place, and prints how many
# of their checks pass and fail, beside gdbserver's where that is installed.
# Usage: run.sh CONTRAFLOW [--board remote|extended] [FILE.exp...]
#   GDB_TESTSUITE  the directory gdb/testsuite of gdb's source, of the version of the gdb in use
#   SUITE_SECONDS  the time that each file may take (600)
#   SUITE_PORT     the first TCP port to use, for runs beside each other (2346)
#   SUITE_LOGS     a directory to keep the logs in
set -u
contraflow=$(realpath "$1") || exit 2
shift
board=remote
if [ "${1-}" = --board ]; then
    board=$2
    shift 2
fi
here=$(dirname "$(realpath "$0")")
if [ $# -eq 0 ]; then
    set -- gdb.base/structs.exp gdb.base/call-ar-st.exp gdb.base/call-sc.exp \
        gdb.base/callfuncs.exp gdb.base/break.exp gdb.base/watchpoint.exp \
        gdb.base/catch-syscall.exp gdb.base/siginfo-obj.exp gdb.base/sigstep.exp \
        gdb.threads/schedlock.exp gdb.threads/no-unwaited-for-left.exp gdb.btrace/buffer-size.exp
fi

skip() {
    echo "SKIPPED: gdb's testsuite: $1" >&2
    exit 0
}
for tool in runtest gdb gcc; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
if [ -z "${GDB_TESTSUITE-}" ]; then
    for source in /usr/src/gdb-*/gdb/testsuite; do
        [ -d "$source" ] && GDB_TESTSUITE=$source
    done
fi
[ -f "${GDB_TESTSUITE:-/nonexistent}/lib/gdb.exp" ] ||
    skip "GDB_TESTSUITE names no gdb/testsuite (apt-get source gdb)"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
triplet=$(gcc -dumpmachine)
export CONTRAFLOW="$contraflow" CONTRAFLOW_HOME="$dir/store" LC_ALL=C

# Runs FILE with SERVER in a directory of its own and prints "PASSES FAILS".
run() {
    work=$dir/$2
    rm -rf "$work"
    mkdir -p "$work"
    cat >"$work/site.exp" <<SITE
set srcdir $GDB_TESTSUITE
set objdir $work
set tool gdb
set host_triplet $triplet
set build_triplet $triplet
set target_triplet $triplet
set target_alias $triplet
source $GDB_TESTSUITE/lib/append_gdb_boards_dir.exp
set boards_dir {}
lappend boards_dir $here/boards
SITE
    (
        cd "$work" || exit 2
        # gdb decodes the packets of a live program's path.
        case $1 in gdb.btrace/*) export SUITE_OPTIONS="--path --no-stop-at-end" ;; esac
        # gdb's `record` asks before the end too.
        case $1 in gdb.reverse/*) export SUITE_OPTIONS= ;; esac
        SUITE_SERVER=$3 timeout "${SUITE_SECONDS:-600}" runtest --status --tool gdb \
            --target_board "contraflow-$board" GDB="$(command -v gdb)" "$1" >run.log 2>&1
    )
    [ -f "$work/gdb.sum" ] || { cat "$work/run.log" >&2; echo "- -"; return; }
    if [ -n "${SUITE_LOGS-}" ]; then
        mkdir -p "$SUITE_LOGS"
        name=$(echo "$1" | tr / _)
        cp "$work/gdb.sum" "$SUITE_LOGS/$name.$2.sum"
        cp "$work/gdb.log" "$SUITE_LOGS/$name.$2.log"
    fi
    echo "$(grep -c '^PASS' "$work/gdb.sum") $(grep -cE '^(FAIL|UNRESOLVED|ERROR)' "$work/gdb.sum")"
}

gdbserver=$(command -v gdbserver) || gdbserver=
printf '%-44s %12s %12s\n' "pass/fail ($board)" contraflow "${gdbserver:+gdbserver}"
for file; do
    # shellcheck disable=SC2046 # two numbers
    set -- $(run "$file" contraflow "$here/contraflow-gdbserver")
    ours=$1/$2
    theirs=
    if [ -n "$gdbserver" ]; then
        # shellcheck disable=SC2046 # two numbers
        set -- $(run "$file" gdbserver "$gdbserver")
        theirs=$1/$2
    fi
    printf '%-44s %12s %12s\n' "$file" "$ours" "$theirs"
done
