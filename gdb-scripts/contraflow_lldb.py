"""Adds commands for contraflow recordings, and for programs that contraflow serves, to LLDB. Load
it with `command script import`; LLDB 22 or newer, which is the first that steps backwards.

The commands query the server like gdb's `monitor`: cf-when, cf-seek, cf-history, cf-find, cf-mark,
cf-marks, cf-unmark, cf-gaps, cf-stats, cf-info, cf-help. LLDB caches registers and memory until the
process runs, so cf-seek makes the server move when the process continues, and continues it.

It sets LLDB's packet timeout to ten minutes, since the server decodes the history and reads symbols
on first use.
"""

import lldb

HELP = {
    "when": "Show the position in the history, the thread, the time, the wall clock and the share.",
    "history": "Show the calls around the current position. Usage: cf-history [N]",
    "find": "List the last N executions of some code, newest first. "
    "Usage: cf-find FUNCTION|FILE:LINE|*ADDRESS [N]",
    "mark": "Mark the current position. Usage: cf-mark NAME",
    "marks": "List the marks.",
    "unmark": "Remove a mark. Usage: cf-unmark NAME",
    "gaps": "List the gaps in the history.",
    "stats": "Show the size of each thread's history.",
    "info": "Show the recorded program and how it ended.",
    "help": "Show the `monitor` commands of the server.",
    "seek": (
        "Go to a position of the history. "
        "Usage: cf-seek N|+N|-N|N%|TIME|+TIME|-TIME|start|end|MARK, where TIME is like 1.5s or 20ms"
    ),
}


def ask(debugger, command):
    """Returns the answer to a `monitor` command and True, or an error message and False."""
    answer = lldb.SBCommandReturnObject()
    debugger.GetCommandInterpreter().HandleCommand(
        "process plugin packet monitor " + command, answer
    )
    if not answer.Succeeded():
        return answer.GetError() or "no process: connect with `gdb-remote` first\n", False
    text = answer.GetOutput() or ""
    # LLDB prints the packet and the last reply around the server's text.
    lines = [line for line in text.splitlines() if not line.startswith(("  packet: ", "response: "))]
    return "\n".join(lines).strip() + "\n", True


class Command:
    """A `monitor` command."""

    name = None

    def __init__(self, debugger, _):
        pass

    def __call__(self, debugger, argument, _, result):
        text, good = ask(debugger, (self.name + " " + argument).strip())
        if good:
            result.AppendMessage(text.rstrip())
        else:
            result.SetError(text.rstrip())

    def get_short_help(self):
        return HELP[self.name]

    def get_long_help(self):
        return HELP[self.name]


class Seek(Command):
    """A command that moves to a position by continuing to it."""

    name = "seek"

    def __call__(self, debugger, argument, context, result):
        text, good = ask(debugger, "seek-on-continue " + argument.strip())
        if not good or not text.startswith("position"):
            result.SetError(text.rstrip())
            return
        was_asynchronous = debugger.GetAsync()
        debugger.SetAsync(False)
        error = context.GetProcess().Continue()
        debugger.SetAsync(was_asynchronous)
        if error.Fail():
            result.SetError(error.GetCString())
            return
        text, _ = ask(debugger, "when")
        result.AppendMessage(text.rstrip())


def __lldb_init_module(debugger, _):
    debugger.HandleCommand("settings set plugin.process.gdb-remote.packet-timeout 600")
    for name in HELP:
        kind = Seek if name == "seek" else type(name.capitalize(), (Command,), {"name": name})
        globals()[kind.__name__] = kind
        debugger.HandleCommand(
            "command script add --overwrite --class %s.%s cf-%s" % (__name__, kind.__name__, name)
        )
