"""Run by gdb at the end of an exact recording: how long its user waits, gdb's own time included."""

import os
import random
import time

import gdb

SEEKS = 40


def seconds(command):
    begun = time.perf_counter()
    gdb.execute(command, to_string=True)
    return time.perf_counter() - begun


def say(name, times):
    times = sorted(times)
    print(f"{name}: {times[len(times) // 2]:.4f} s in the median, {times[-1]:.4f} at worst")


def memory():
    """The replay's processes but gdb, and their memory in MB, what they share divided among them."""
    replay, pids = os.getppid(), [os.getppid()]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{pid}/stat") as stat:
            parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        if parent == replay and int(pid) != os.getpid():
            pids.append(int(pid))
    kilobytes = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            kilobytes += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return f"{len(pids)} processes, {kilobytes / 1000:.0f} MB"


gdb.execute("set pagination off")
gdb.execute("set confirm off")
if VARIABLE:
    gdb.execute(f"watch -l {VARIABLE}", to_string=True)
    print(f"back over the whole run to a write: {seconds('reverse-continue'):.2f} s")
    gdb.execute("delete")
generator = random.Random(1)
print(f"before the seeks: {memory()}")
say("seek", [seconds(f"cf-seek {generator.uniform(0, 100):.4f}%") for _ in range(SEEKS)])
print(f"after the seeks: {memory()}")
times = [seconds("reverse-stepi") for _ in range(200)]
say("first reverse-stepi", times[:1])
say("reverse-stepi", times[1:])
say("stepi", [seconds("stepi") for _ in range(200)])
