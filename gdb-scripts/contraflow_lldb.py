"""Makes LLDB at home in a contraflow recording, or in a program that contraflow serves. Load it with
`command script import`; LLDB 22 or newer, which is the first that goes backwards.

The commands ask the server, as gdb's `monitor` does: cf-when, cf-seek, cf-history, cf-find, cf-mark,
cf-marks, cf-unmark, cf-gaps, cf-stats, cf-info, cf-help. LLDB keeps registers and memory that it has
read until the process runs, so cf-seek asks the server to go to the place as soon as the process
continues, and continues it.

It lets LLDB wait up to ten minutes for the server, which decodes the history and reads symbols when
they are first asked for.
"""

import lldb

HELP = {
    "when": "Show where in the history this is: position, thread, time, wall clock, share.",
    "history": "Show the calls around here. Usage: cf-history [N]",
    "find": "List the last N places where the path comes to some code, the last one first. "
    "Usage: cf-find FUNCTION|FILE:LINE|*ADDRESS [N]",
    "mark": "Mark this place. Usage: cf-mark NAME",
    "marks": "List the places that were marked.",
    "unmark": "Forget a mark. Usage: cf-unmark NAME",
    "gaps": "List the holes in the history.",
    "stats": "Show how much of a history each thread has.",
    "info": "Show what was recorded and how it ended.",
    "help": "Show what `monitor` commands the server has.",
    "seek": (
        "Go to a place of the history. "
        "Usage: cf-seek N|+N|-N|N%|TIME|+TIME|-TIME|start|end|MARK, where TIME is as 1.5s or 20ms"
    ),
}


def ask(debugger, command):
    """The server's answer to a `monitor` command, or what went wrong, and whether it did."""
    answer = lldb.SBCommandReturnObject()
    debugger.GetCommandInterpreter().HandleCommand(
        "process plugin packet monitor " + command, answer
    )
    if not answer.Succeeded():
        return answer.GetError() or "no process: connect with `gdb-remote` first\n", False
    text = answer.GetOutput() or ""
    # LLDB shows the packet and the last reply around what the server says.
    lines = [line for line in text.splitlines() if not line.startswith(("  packet: ", "response: "))]
    return "\n".join(lines).strip() + "\n", True


class Command:
    """One `monitor` command."""

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
    """Goes to a place by continuing to it."""

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
