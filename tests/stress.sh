#!/bin/sh
# Many short programs, one after the other, translated: each prints and returns what it does by
# itself, within its time, and leaves no process behind.
# Usage: stress.sh CONTRAFLOW [RUNS]
set -u
contraflow=$1
runs=${2:-200}
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CONTRAFLOW_HOME="$dir/store" LC_ALL=C STRESS_RUN="$dir"
seconds=120

gcc -w -O1 -pthread -o "$dir/stress" "$here/programs/stress.c" -ldl || exit 77
seq 1 2000 >"$dir/text"
cat >"$dir/commands" <<COMMANDS
$dir/stress threads
$dir/stress cancels
$dir/stress leaves
$dir/stress forks
$dir/stress vforks
$dir/stress spawns
$dir/stress libraries
$dir/stress moves
$dir/stress pipeline
$dir/stress chain 6
sh -c 'for i in 1 2 3 4 5; do (echo \$i; exit \$i) | cat; done; exit 3'
bash -c 'x=\$(for i in {1..20}; do echo \$i & done; wait); echo \$x | wc -w'
bash -c 'trap "echo got" USR1; (kill -USR1 \$\$); sleep 0.1; kill -TERM \$\$'
timeout 0.1 sleep 60
xargs -a $dir/text -n 200 -P 4 sh -c 'echo \$# >/dev/null; exit 0'
find $dir -name text -exec wc -l {} ;
sort -rn --parallel=4 $dir/text
gzip -c $dir/text
perl -e 'my @k; for (1..8) { my \$p = fork; if (!\$p) { exit \$_ } push @k, \$p } my \$s = 0; for (@k) { waitpid \$_, 0; \$s += \$? >> 8 } print "\$s\n"'
python3 -c 'import subprocess; print(sum(len(subprocess.run(["echo", str(i)], capture_output=True).stdout) for i in range(5)))'
python3 -c 'import threading; l = []; t = [threading.Thread(target=l.append, args=(i,)) for i in range(40)]; [x.start() for x in t]; [x.join() for x in t]; print(sum(l))'
node -e 'let s = 0; for (let i = 0; i < 1e6; i++) s = (s * 31 + i) | 0; console.log(s); setTimeout(() => process.exit(4), 10)'
java -Xshare:auto -XX:TieredStopAtLevel=1 -version
COMMANDS
total=$(wc -l <"$dir/commands")

# Runs a command line, with what it prints in $dir/$1.out and its status in $dir/$1.status.
run() {
    name=$1
    shift
    timeout -s KILL "$seconds" "$@" sh -c "exec $command" >"$dir/$name.out" 2>"$dir/$name.err" </dev/null
    echo $? >"$dir/$name.status"
}

# Processes that have the mark of this run in their environment, without this script itself.
left() {
    for environment in /proc/[0-9]*/environ; do
        pid=${environment#/proc/}
        pid=${pid%/environ}
        if [ "$pid" != $$ ] && [ "$(ps -o ppid= -p "$pid" 2>/dev/null | tr -d ' ')" != $$ ] \
            && cat "$environment" 2>/dev/null | tr '\0' '\n' | grep -qx "STRESS_RUN=$dir"; then
            echo "$pid"
        fi
    done
}

failed=0 skipped=0 number=0
while [ "$number" -lt "$runs" ]; do
    line=$((number % total + 1))
    number=$((number + 1))
    command=$(sed -n "${line}p" "$dir/commands")
    if ! command -v "${command%% *}" >/dev/null; then
        skipped=$((skipped + 1))
        [ "$number" -gt "$total" ] || echo "SKIPPED: ${command%% *} is not installed"
        continue
    fi
    run native
    run soft "$contraflow" record --quiet --backend soft --force -o "$dir/recording"
    if ! cmp -s "$dir/native.out" "$dir/soft.out" \
        || ! cmp -s "$dir/native.status" "$dir/soft.status"; then
        failed=$((failed + 1))
        echo "FAILED, run $number: $command"
        echo "  status $(cat "$dir/soft.status") instead of $(cat "$dir/native.status")"
        diff "$dir/native.out" "$dir/soft.out" | head -5
        head -c 500 "$dir/soft.err"
    fi
    processes=$(left)
    if [ -n "$processes" ]; then
        failed=$((failed + 1))
        echo "LEFT BEHIND, run $number: $processes of $command"
        kill -9 $processes
    fi
done
echo "$number runs of $total programs: $failed failed, $skipped skipped"
[ "$failed" = 0 ]
