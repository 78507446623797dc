"""How long a user of the debug adapter waits: python3 measure.py CONTRAFLOW RECORDING SOURCE LINE [COUNT].

Opens a recording, and steps back with the variables of each place. If the line has COUNT hits, asks for
them, and for the timeline of the whole run."""

import json
import subprocess
import sys
import time

STEPS = 60


class Adapter:
    def __init__(self, contraflow):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([contraflow, "dap"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self.seq = 0
        self.events = []

    def send(self, command, **arguments):
        self.seq += 1
        text = json.dumps({"seq": self.seq, "type": "request", "command": command, "arguments": arguments})
        self.process.stdin.write(f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        self.process.stdin.flush()
        return self.seq

    def message(self):
        size = 0
        while line := self.process.stdout.readline().strip():
            size = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(size))

    def wait(self, matches):
        """Returns the first event that matches, also of those that came before."""
        while True:
            for at, event in enumerate(self.events):
                if matches(event):
                    return self.events.pop(at)
            self.events.append(self.message())

    def ask(self, command, **arguments):
        seq = self.send(command, **arguments)
        answer = self.wait(lambda m: m["type"] == "response" and m["request_seq"] == seq)
        if not answer["success"]:
            sys.exit(f"{command}: {answer.get('message')}")
        return answer.get("body", {})

    def stopped(self):
        return self.wait(lambda m: m["type"] == "event" and m["event"] == "stopped")["body"]


def show(adapter, thread):
    """Asks for what an IDE shows at a stop."""
    adapter.ask("threads")
    frame = adapter.ask("stackTrace", threadId=thread, startFrame=0, levels=20)["stackFrames"][0]
    for scope in adapter.ask("scopes", frameId=frame["id"])["scopes"][:2]:
        adapter.ask("variables", variablesReference=scope["variablesReference"])


contraflow, recording, source, line, *count = sys.argv[1:]
begun = time.perf_counter()
adapter = Adapter(contraflow)
adapter.ask("initialize", adapterID="contraflow", supportsProgressReporting=False)
launch = adapter.send("launch", recording=recording)
adapter.wait(lambda m: m.get("event") == "initialized")
adapter.ask("configurationDone")
thread = adapter.stopped()["threadId"]
show(adapter, thread)
print(f"opened at the end, with its variables: {time.perf_counter() - begun:.2f} s (goal 2)")

adapter.ask("setBreakpoints", source={"path": source}, breakpoints=[{"line": int(line)}])
adapter.ask("reverseContinue", threadId=thread)
adapter.stopped()
adapter.ask("setBreakpoints", source={"path": source}, breakpoints=[])
times = []
for _ in range(STEPS):
    begun = time.perf_counter()
    adapter.ask("stepBack", threadId=thread)
    adapter.stopped()
    show(adapter, thread)
    times.append(time.perf_counter() - begun)
times.sort()
print(f"a step back, with the variables: {times[STEPS // 2] * 1000:.0f} ms in the median, {times[-1] * 1000:.0f} at worst (goal 100)")

if count:
    begun = time.perf_counter()
    wanted = {"source": {"path": source}, "line": int(line), "limit": int(count[0]), "token": 1}
    hits = adapter.send("contraflow/hits", **wanted)
    adapter.wait(lambda m: m.get("event") == "contraflow/hitsFound")
    print(f"hits of a line begin to show: {time.perf_counter() - begun:.2f} s (goal 0.5)")
    adapter.wait(lambda m: m.get("request_seq") == hits)
    print(f"all {count[0]} are shown: {time.perf_counter() - begun:.1f} s")
    # The path of the run is made for the first one, unless the hits needed it.
    for what in ("first", "next"):
        begun = time.perf_counter()
        chart = adapter.ask("contraflow/timeline", width=1200)
        took = time.perf_counter() - begun
        print(f"the timeline, the {what} time: {took:.2f} s (goal 1), {len(chart['threads'])} threads")
adapter.ask("disconnect")
