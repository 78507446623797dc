"""The goals of exact recordings, beside what is measured: one table, on this machine, in one run.

    python3 benches/goals/run.py [CONTRAFLOW] [NAME...]

Each line runs a program by itself and recorded, in turn, RUNS (5) times, and compares the medians.
With names, only the lines are run that contain one of them. Programs that are not installed are
named and left out. Machines are shared and noisy: ratios within one run count.
"""

import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RUNS = int(os.environ.get("RUNS", "5"))
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

contraflow = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/contraflow").resolve()
chosen = sys.argv[2:]
directory = Path(tempfile.mkdtemp())
recording = directory / "recording"
met, missed = [], []


def have(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        print(f"SKIPPED: {', '.join(missing)}: not installed")
    return not missing


def wanted(name):
    return not chosen or any(part in name for part in chosen)


def compile_c(source, flags=("-O2", "-ftree-vectorize", "-mavx2")):
    program = directory / Path(source).stem
    if not program.exists():
        command = ["gcc", "-g", *flags, "-o", program, ROOT / source]
        subprocess.run([*map(str, command), "-lpthread"], check=True)
    return str(program)


def seconds(command, before=None, **options):
    if before:
        before()
    begun = time.perf_counter()
    subprocess.run(command, check=False, **(QUIET | options))
    return time.perf_counter() - begun


def recorder(*options, into=recording):
    return [str(contraflow), "record", "-q", "-o", str(into), *options]


def report(name, measured, goal, is_met, details=""):
    (met if is_met else missed).append(name)
    print(f"{name:<34} {measured:>12} {goal:>14} {'met' if is_met else 'MISSED':<7} {details}", flush=True)


def in_turn(command, before=None, options=(), **where):
    """The medians of a program by itself and recorded. The first run of each counts for neither."""

    def clear():
        shutil.rmtree(recording, ignore_errors=True)
        if before:
            before()

    native, recorded = [], []
    for turn in range(RUNS + 1):
        times = seconds(command, clear, **where), seconds(recorder(*options) + command, clear, **where)
        if turn > 0 or RUNS == 1:
            native.append(times[0])
            recorded.append(times[1])
    return statistics.median(native), statistics.median(recorded)


def ratio(name, goal, command, **options):
    if not wanted(name):
        return
    native, recorded = in_turn(command, **options)
    times = recorded / native
    report(name, f"{times:.2f}", f"{goal:g} times", times <= goal, f"{native:.3f} s, recorded {recorded:.3f} s")


def added(name, goal, command, **options):
    if not wanted(name):
        return
    native, recorded = in_turn(command, **options)
    more = 1000 * (recorded - native)
    details = f"{native:.3f} s, recorded {recorded:.3f} s"
    report(name, f"+{more:.0f} ms", f"+{goal} ms", more <= goal, details)


def log_bytes():
    return sum(file.stat().st_size for file in recording.glob("log*"))


def compute():
    for program, goal in [("calls", 1.6), ("fib", 1.6), ("sort", 1.4), ("vector", 1.2)]:
        ratio(program, goal, [compile_c(f"benches/capture/{program}.c")])
    data = directory / "data"
    data.write_bytes(contraflow.read_bytes()[:8_000_000])
    ratio("gzip -9, 8 MB", 1.15, ["gzip", "-9", "-c", str(data)])
    if have("xz"):
        ratio("xz -1, 8 MB", 1.3, ["xz", "-1", "-c", str(data)])
    ratio("python3, a loop", 1.6, [sys.executable, "-c", "for i in range(3000000): pass"])


def starts():
    added("bash -c :", 40, ["bash", "-c", ":"])
    added("ls -l /etc", 40, ["ls", "-l", "/etc"])
    added("python3 -c pass", 150, [sys.executable, "-c", "pass"])
    if have("node"):
        ratio("node -e 0", 3, ["node", "-e", "0"])
    if have("java", "javac") and wanted("java's hello"):
        subprocess.run(["javac", "-d", directory, HERE / "Hello.java"], check=True)
        ratio("java's hello", 5, ["java", "-cp", str(directory), "Hello"])


def files():
    ratio("find /usr", 1.6, ["find", "/usr"])
    memory = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    tree = memory / "tree"
    for number in range(10_000):
        folder = tree / str(number // 100)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_text(f"{number}\n")
    copy = memory / "copy"

    def clear():
        shutil.rmtree(copy, ignore_errors=True)

    ratio("cp -r of 10,000 files", 1.6, ["cp", "-r", str(tree), str(copy)], before=clear)
    clear()
    if have("git") and wanted("git status in 10,000 files"):
        git = ["git", "-C", str(tree), "-c", "user.name=n", "-c", "user.email=e"]
        for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
            subprocess.run(git + step, check=True, **QUIET)
        ratio("git status in 10,000 files", 1.6, ["git", "-C", str(tree), "status"])
    shutil.rmtree(memory)


def wait_for(port):
    for _ in range(600):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def throughput(name, server, port, measure):
    """A server's throughput, recorded, as a part of its own."""
    if not wanted(name):
        return
    rates = []
    for launcher in ([], recorder()):
        shutil.rmtree(recording, ignore_errors=True)
        process = subprocess.Popen(launcher + server, cwd=directory, start_new_session=True, **QUIET)
        wait_for(port)
        rates.append(statistics.median(measure() for _ in range(RUNS)))
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    part = rates[1] / rates[0]
    details = f"{rates[0]:.0f} a second, recorded {rates[1]:.0f}"
    report(name, f"{part:.2f}", "0.5 of native", part >= 0.5, details)


def servers():
    if have("sqlite3"):
        inserts = directory / "inserts.sql"
        lines = [f"INSERT INTO t VALUES ({n}, 'value {n}');" for n in range(100_000)]
        inserts.write_text("CREATE TABLE t(a, b);\nBEGIN;\n" + "\n".join(lines) + "\nCOMMIT;\n")
        ratio("sqlite3, 100,000 inserts", 1.6, ["sqlite3", ":memory:", f".read {inserts}"])
    port = random.randrange(20_000, 30_000)
    if have("redis-server", "redis-benchmark"):

        def redis():
            command = ["redis-benchmark", "-p", str(port), "-n", "50000", "-q", "-t", "set", "--csv"]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            return float(out.splitlines()[-1].split(",")[1].strip('"'))

        throughput("redis-benchmark", ["redis-server", "--port", str(port), "--save", ""], port, redis)
    if have("nginx", "ab"):
        (directory / "index.html").write_text("x" * 600)
        configuration = directory / "nginx.conf"
        configuration.write_text(
            f"daemon off; master_process off; pid {directory}/nginx.pid; error_log /dev/null;\n"
            f"events {{}} http {{ access_log off; server {{ listen {port + 1}; root {directory}; }} }}\n"
        )
        directory.chmod(0o755)

        def nginx():
            url = f"http://127.0.0.1:{port + 1}/index.html"
            out = subprocess.run(["ab", "-q", "-n", "20000", "-c", "8", url], capture_output=True, text=True)
            return float(re.search(r"Requests per second: *([\d.]+)", out.stdout)[1])

        throughput("nginx under ab", ["nginx", "-c", str(configuration)], port + 1, nginx)


def processes():
    if not (have("make") and wanted("make of 50 C files")):
        return
    tree = directory / "make"
    tree.mkdir()
    for number in range(50):
        text = "#include <stdio.h>\n" + "".join(
            f"int f{number}_{n}(int x) {{ return x * {n} + printf(\"%d\", x); }}\n" for n in range(40)
        )
        (tree / f"f{number}.c").write_text(text)
    objects = " ".join(f"f{number}.o" for number in range(50))
    (tree / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n")
    command = ["make", "-s", "-C", str(tree), "all"]

    def clean():
        for path in [*tree.glob("*.o"), *directory.glob("recording*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    native = statistics.median(seconds(command, clean) for _ in range(min(RUNS, 3)))
    recorded = statistics.median(
        seconds(recorder("--follow-forks") + command, clean) for _ in range(min(RUNS, 3))
    )
    # make, and for each file gcc, cc1 and as.
    each = 1000 * (recorded - native) / 151
    details = f"{native:.2f} s, recorded {recorded:.2f} s"
    report("make of 50 C files", f"{recorded / native:.2f}", "5 times", recorded <= 5 * native, details)
    report("make of 50 C files, an exec", f"{each:.1f} ms", "20 ms", each <= 20)


def threads():
    cores = len(os.sched_getaffinity(0))
    ratio("four threads that compute", 1.5 * cores, [compile_c("benches/goals/threads.c")])
    ratio("two threads, turns by futex", 5, [compile_c("benches/goals/pingpong.c")])
    if wanted("clock_gettime"):
        native, recorded = in_turn([compile_c("benches/capture/clock.c")])
        each = 1e9 * recorded / 2_000_000
        details = f"{1e9 * native / 2_000_000:.0f} ns by itself, start included in both"
        report("clock_gettime, a call", f"{each:.0f} ns", "100 ns", each <= 100, details)


def compiled_at_run_time():
    def steady(name, command, rounds):
        if not wanted(name):
            return
        best = []
        for launcher in ([], recorder()):
            shutil.rmtree(recording, ignore_errors=True)
            full = launcher + command + [str(rounds)]
            best.append(float(subprocess.run(full, capture_output=True, text=True).stdout.split()[0]))
        times = best[1] / best[0]
        details = f"{1000 * best[0]:.1f} ms the best round, recorded {1000 * best[1]:.1f} ms"
        report(name, f"{times:.2f}", "1.8 times", times <= 1.8, details)

    if have("node"):
        steady("node, steady", ["node", str(HERE / "work.js")], 200)
    if have("java", "javac") and wanted("java -server, steady"):
        subprocess.run(["javac", "-d", directory, HERE / "Work.java"], check=True)
        steady("java -server, steady", ["java", "-server", "-cp", str(directory), "Work"], 200)


def logs():
    if wanted("log, a second of computing"):
        elapsed = seconds(recorder() + [compile_c("benches/goals/threads.c")], remove)
        rate = log_bytes() / 1e6 / elapsed
        report("log, a second of computing", f"{rate:.3f} MB", "1 MB", rate <= 1)
    if wanted("log, a system call"):
        # Calls without data: each reads the clock.
        seconds(recorder() + [compile_c("benches/capture/clock.c")], remove)
        each = log_bytes() / 2_000_000
        report("log, a system call", f"{each:.1f} bytes", "64 bytes", each <= 64)


def remove():
    shutil.rmtree(recording, ignore_errors=True)


def past():
    """What a user of an exact recording waits for: some 10^9 instructions, and a run of a minute."""
    if not wanted("the past"):
        return
    if not have("gdb"):
        return
    billion = compile_c("benches/exact/billion.c", ["-O1"])
    # Of each, the second: the first one leaves a code cache.
    elapsed = min(seconds(recorder() + [billion], remove) for _ in range(2))
    checked = min(seconds([str(contraflow), "check", str(recording)]) for _ in range(2))
    name = "the past: replay to the end"
    details = f"recorded in {elapsed:.2f} s, replayed in {checked:.2f} s"
    report(name, f"{checked / elapsed:.2f}", "1 recording", checked <= elapsed, details)
    measure("written", 1)
    for megabytes, goal in ((100, 1.0), (1000, 5.0)):
        program = compile_c("benches/goals/resident.c")
        seconds(recorder() + [program, str(megabytes), "60"], remove)
        measure("", goal, f"60 s, {megabytes} MB")


def measure(variable, step_goal, of="10^9"):
    script = directory / "measure.py"
    script.write_text(f"VARIABLE = {variable!r}\n" + (ROOT / "benches/exact/measure.py").read_text())
    gdb = [str(contraflow), "replay", str(recording), "--", "-nx", "-batch"]
    # gdb's own start is not ours.
    opened = statistics.median(seconds(gdb) - seconds(["gdb", "-nx", "-batch"]) for _ in range(RUNS))
    report(f"the past: open, {of}", f"{opened:.2f} s", "0.5 s", opened <= 0.5)
    out = subprocess.run([*gdb, "-x", str(script)], capture_output=True, text=True).stdout

    def said(name, pattern, goal, scale=1.0, unit="s"):
        found = re.search(rf"^{pattern}", out, re.MULTILINE)
        if found is None:
            report(f"the past: {name}", "failed", "", False, out[-200:])
            return
        value = scale * float(found[1])
        report(f"the past: {name}, {of}", f"{value:.3g} {unit}", f"{goal:g} {unit}", value <= goal)

    if variable:
        said("a write found backwards", r"back over.*: ([\d.]+) s", 2)
    said("first reverse-stepi", r"first reverse-stepi: ([\d.]+)", step_goal)
    said("reverse-stepi", r"reverse-stepi: ([\d.]+)", 0.5, 1000, "ms")
    said("seek, median", r"seek: ([\d.]+)", 0.3)
    said("seek, worst", r"seek: .*median, ([\d.]+)", 1.5)


def main():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())[1]
    load = os.getloadavg()[0]
    print(f"host: {model}, {os.cpu_count()} CPUs, {time.strftime('%F', time.gmtime())}, load {load:.2f}")
    print(f"{'':<34} {'measured':>12} {'goal':>14}")
    try:
        for part in (compute, starts, files, servers, processes, threads, compiled_at_run_time, logs, past):
            part()
    finally:
        shutil.rmtree(directory)
    print(f"{len(met)} of {len(met) + len(missed)} goals met")


main()
