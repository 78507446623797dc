//! Programs that nobody wrote for contraflow.

use super::assert_replays;
use crate::support::have;

fn replays(command: &[&str]) {
    if have(command[0]) {
        assert_replays(command);
    }
}

#[test]
fn tools_replay() {
    replays(&["sort", "Cargo.lock"]);
    replays(&["gzip", "-9", "-c", "Cargo.lock"]);
    replays(&["tar", "cf", "-", "src/recording"]);
    replays(&["grep", "-rn", "fn ", "src/recording"]);
    replays(&["md5sum", "Cargo.lock"]);
}

#[test]
fn shells_replay() {
    let script = "trap 'echo got' USR1; kill -USR1 $$; echo a b | tr a-z A-Z | while read x; do \
                  echo \"<$x>\"; done; sleep 0.01 & wait $!; echo $? $(echo sub)";
    replays(&["bash", "-c", script]);
    replays(&["sh", "-c", "kill -KILL $$"]);
}

/// The shell blocks all signals, and waits by sigsuspend(2) for the one of its child.
#[test]
fn waits_with_masks_of_their_own_end() {
    replays(&["dash", "-c", "sleep 0.05 & wait $!; echo $?"]);
}

#[test]
fn perl_replays() {
    let script = "my %h; $h{$_ % 97} .= $_ for 1..5000; print length(join '', values %h), `echo hi`; \
                  $SIG{ALRM} = sub { exit 3 }; alarm 1; 1 while 1";
    replays(&["perl", "-e", script]);
}

#[test]
fn python_replays() {
    let script = "\
import mmap, queue, signal, subprocess, tempfile, threading, time
q, out = queue.Queue(), []
def work():
    for i in iter(q.get, None): out.append(i * i)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
[q.put(i) for i in list(range(100)) + [None] * 3]
[t.join() for t in threads]
print(sum(out), subprocess.check_output(['echo', 'hi']))
n = 0
def tick(s, f):
    global n
    n += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
while n < 5: pass
signal.setitimer(signal.ITIMER_REAL, 0)
f = tempfile.TemporaryFile()
f.write(b'a' * 9000); f.flush()
m = mmap.mmap(f.fileno(), 0)
m[0:5] = b'hello'
import os
os.pwrite(f.fileno(), b'ZZZ', 2)
f.seek(0)
print(f.read(8), m[0:8])
";
    replays(&["python3", "-c", script]);
}

#[test]
fn databases_and_compilers_replay() {
    replays(&[
        "sqlite3",
        ":memory:",
        "create table t(a); insert into t values(1),(2); select * from t",
    ]);
    replays(&["git", "log", "--oneline", "-5"]);
    replays(&["gcc", "-fsyntax-only", "tests/programs/fib.c"]);
}
