"""Adds commands for contraflow recordings, and for programs that contraflow serves, to LLDB. Load
it with `command script import`; LLDB 22 or newer, which is the first that steps backwards.

The commands query the server like gdb's `monitor`: cf-when, cf-seek, cf-history, cf-find, cf-mark,
cf-marks, cf-unmark, cf-gaps, cf-stats, cf-info, cf-help. LLDB caches registers and memory until the
process runs, so the commands that move (cf-seek, cf-last, cf-home, cf-caller, cf-return) make the
server move when the process continues, and continue it.

LLDB continues backwards (`process continue --reverse`) but has no steps back. In exact recordings
there are cf-reverse-stepi, cf-reverse-step, cf-reverse-next and cf-reverse-finish. After any of
them, LLDB goes forward again.

It sets LLDB's packet timeout to ten minutes, since the server decodes the history and reads symbols
on first use.
"""

import re

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
    "reverse-stepi": "Step one instruction back.",
    "reverse-step": "Step back to the beginning of a source line, also in called functions.",
    "reverse-next": "Step back to the beginning of a source line, over called functions.",
    "reverse-finish": "Go back to the call of the selected frame's function.",
    "last": "Go back to where a value was last changed; without one, to the change before.",
    "home": "Go back out of libraries, to the last call by the program's own code.",
    "caller": "Go back to the call of this function.",
    "return": "Go forward to the return of this function.",
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


def move(debugger, command, context, result):
    """Lets the server move, and the process continue to there. Shows where, and the server's answer."""
    text, good = ask(debugger, "on-continue " + command)
    if good:
        arrive(debugger, text, context, result)
    else:
        result.SetError(text.rstrip())


def arrive(debugger, text, context, result):
    """Lets the process continue to where the server has moved by its answer. Shows where."""
    lines = text.strip().splitlines()
    if not lines or not lines[-1].startswith("position "):
        result.SetError(text.rstrip())
        return
    was_asynchronous = debugger.GetAsync()
    debugger.SetAsync(False)
    error = context.GetProcess().ContinueInDirection(lldb.eRunForward)
    debugger.SetAsync(was_asynchronous)
    if error.Fail():
        result.SetError(error.GetCString())
        return
    show_frame(debugger, result)
    result.AppendMessage("\n".join(lines))


def show_frame(debugger, result):
    frame = lldb.SBCommandReturnObject()
    debugger.GetCommandInterpreter().HandleCommand("frame select 0", frame)
    result.AppendMessage((frame.GetOutput() or "").rstrip())


class Move(Command):
    """A `monitor` command that moves."""

    def __call__(self, debugger, argument, context, result):
        move(debugger, (self.name + " " + argument).strip(), context, result)


class Last(Command):
    """Goes back to the last change of a value, or to the change before that."""

    name = "last"
    # The address and the size of the value asked for last.
    asked = None

    def __call__(self, debugger, argument, context, result):
        if argument.strip():
            value = context.GetFrame().EvaluateExpression(argument)
            address, size = value.GetLoadAddress(), value.GetByteSize()
            if value.GetError().Fail():
                result.SetError(value.GetError().GetCString())
                return
            if address == lldb.LLDB_INVALID_ADDRESS or not size:
                result.SetError("that value is not in memory")
                return
            Last.asked = "%#x %d" % (address, size)
        if Last.asked is None:
            result.SetError("the last change of which value? For example: cf-last account->owner")
            return
        move(debugger, "last " + Last.asked, context, result)


def step_back(debugger, step, context, frame, result):
    """Steps a thread back; `out` is out of the function of a frame. Shows where."""
    thread = context.GetThread()
    if not thread.IsValid():
        result.SetError("no thread: connect with `gdb-remote` first")
        return
    command = "back %d %s" % (thread.GetThreadID(), step)
    if step == "out":
        while frame.IsInlined():
            frame = older(frame)
        caller = older(frame)
        if not caller.IsValid():
            result.SetError("the outermost frame has no caller")
            return
        command += " %#x %#x" % (frame.GetCFA(), caller.GetPC())
    move(debugger, command, context, result)


def older(frame):
    return frame.GetThread().GetFrameAtIndex(frame.GetFrameID() + 1)


class Back(Command):
    """A command that steps back. LLDB itself only continues backwards."""

    # The server's word for the step; none for an instruction.
    step = None

    def __call__(self, debugger, argument, context, result):
        if self.step:
            step_back(debugger, self.step, context, context.GetFrame(), result)
        else:
            move(debugger, "seek -1", context, result)


class Way(Command):
    """A command that moves along the calls: by the call history, or where all values are known, by
    LLDB's own frames."""

    # How the server answers where all values are known.
    without_path = "only recordings of the path"

    def __call__(self, debugger, argument, context, result):
        text, good = ask(debugger, "on-continue " + self.name)
        if not good:
            result.SetError(text.rstrip())
        elif text.startswith(self.without_path):
            self.walk(debugger, context, result)
        else:
            arrive(debugger, text, context, result)


class Caller(Way):
    def walk(self, debugger, context, result):
        step_back(debugger, "out", context, context.GetThread().GetFrameAtIndex(0), result)


class Home(Way):
    # The sources of libraries that compilers put into the program itself: Rust's and C++'s.
    of_compilers = re.compile(r"/rustc/[0-9a-f]+/|.*/rustlib/src/|.*/include/c\+\+/")

    def walk(self, debugger, context, result):
        program = context.GetTarget().GetExecutable()
        callee = None
        for frame in context.GetThread():
            if self.is_own(frame, program):
                break
            callee = frame
        else:
            result.SetError("no call of the program's own code is known here")
            return
        if callee is None:
            result.SetError("this is the program's own code")
            return
        step_back(debugger, "out", context, callee, result)

    def is_own(self, frame, program):
        """Returns true if a frame is one of the program's own code, as far as is known."""
        path = frame.GetLineEntry().GetFileSpec().fullpath or ""
        return frame.GetModule().GetFileSpec() == program and not self.of_compilers.match(path)


class Return(Way):
    def walk(self, debugger, context, result):
        interpreter = debugger.GetCommandInterpreter()
        was_asynchronous = debugger.GetAsync()
        debugger.SetAsync(False)
        interpreter.HandleCommand("frame select 0", lldb.SBCommandReturnObject())
        interpreter.HandleCommand("thread step-out -m all-threads", result)
        debugger.SetAsync(was_asynchronous)
        if result.Succeeded():
            show_frame(debugger, result)


KINDS = {
    "seek": (Move, None),
    "home": (Home, None),
    "caller": (Caller, None),
    "return": (Return, None),
    "last": (Last, None),
    "reverse-stepi": (Back, None),
    "reverse-step": (Back, "into"),
    "reverse-next": (Back, "over"),
    "reverse-finish": (Back, "out"),
}


def __lldb_init_module(debugger, _):
    debugger.HandleCommand("settings set plugin.process.gdb-remote.packet-timeout 600")
    for name in HELP:
        base, step = KINDS.get(name, (Command, None))
        title = name.title().replace("-", "")
        kind = type("Cf" + title, (base,), {"name": name, "step": step})
        globals()[kind.__name__] = kind
        debugger.HandleCommand(
            "command script add --overwrite --class %s.%s cf-%s" % (__name__, kind.__name__, name)
        )
