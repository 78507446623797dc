# gdb joins this line and the next one to one comment, so `source` reads this file as Python \
python = end = None
# if its name ends with .py, and else as gdb commands: `python`, the script, `end`.
python
"""Adds support for contraflow recordings to gdb. Load it with `source`; gdb 13 or newer.

In the past of a recording, gdb knows the path of the program, but often neither registers nor
stack, which its own unwinders need. This script passes gdb the frames of the server's call history,
so that `backtrace`, `up`, `finish`, `next`, `reverse-next` and `reverse-finish` work. If all
registers are known, it does nothing.

It invents no values: in a frame of the call history only the pc is known. The addresses in frame
IDs, which gdb compares, are the real ones if a stop with all registers has shown them. Otherwise
they are placeholders in the right order, 0x3bad... and 0xbbad..., at addresses where programs have
no memory, so that nothing can be read through them. Pointers that gdb computes from them are shown
as unavailable. A frame with an unknown caller has the caller 0, as gdb expects of an outermost
frame.

It changes none of the user's settings, except `print frame-arguments`, which is `none` in the past.
"""

import os
import re
import subprocess

import gdb
import gdb.FrameDecorator
import gdb.unwinder

FRAMES_A_REQUEST = 512
PATIENCE_SECONDS = 3600
# Placeholders for the addresses of frames count down from here with the depth of the stack: below
# the stacks of programs, for frames inside those with real addresses; above every program, for the
# frames outside them.
STAND_IN_INSIDE = 0x3BAD80000000
STAND_IN_AROUND = 0xBBAD80000000
STAND_IN_BYTES = 0x100
STAND_IN_WINDOWS = {STAND_IN_INSIDE >> 32, STAND_IN_AROUND >> 32}
# mov $15, %rax; syscall: the return from signal handlers.
SIGRETURN = bytes.fromhex("48c7c00f0000000f05")
# The reasons why a backtrace ends, by the numbers in the server's replies.
ENTIRE, BEFORE_HISTORY = 0, 1
OLDER_FRAMES = {
    BEFORE_HISTORY: "older frames are before the recorded history",
    2: "older frames are before a gap in the path",
    3: "older frames are not known: the program loaded its stack pointer"
    " (a coroutine, longjmp or an exception)",
    4: "older frames are not known: a return went to an address that no call expected",
}
# The number of frames whose addresses are remembered at a stop with all registers.
REMEMBERED_FRAMES = 500


def execute(command):
    return gdb.execute(command, to_string=True)


def patiently(command, to_string=True):
    """Executes a command that may take the server longer than gdb's timeout. Returns its output, or
    shows it as it comes."""
    patience = gdb.parameter("remotetimeout")
    execute("set remotetimeout %d" % max(patience, PATIENCE_SECONDS))
    try:
        return gdb.execute(command, to_string=to_string)
    finally:
        execute("set remotetimeout %d" % patience)


def request(packet):
    """Returns the server's reply to a packet, or None. A live program's history is decoded before
    the first reply, which may take longer than gdb's timeout."""
    try:
        text = patiently("maintenance packet " + packet)
    except gdb.error:
        return None
    _, found, reply = text.partition('received: "')
    return reply.rpartition('"')[0] if found else None


def tell(packet):
    """Sends a packet and ignores the reply."""
    try:
        execute("maintenance packet " + packet)
    except gdb.error:
        pass


def interruptible(handler):
    """Wraps a handler that gdb calls on resuming, so that no Ctrl-C is lost: gdb only prints the
    exception and continues, so the server shall interrupt the next resume."""

    def handle(event):
        try:
            handler(event)
        except KeyboardInterrupt:
            tell("qContraflow.interrupt:")

    return handle


def number(field):
    return int(field, 16) if re.fullmatch("[0-9a-f]+", field) else None


class HistoryFrame:
    """One activation of the call history."""

    def __init__(self, text):
        fields = [number(field) for field in text.split(",")]
        self.activation, self.entry, self.call_site, self.return_address, self.signal = fields


class Stack:
    """The call history of a thread at a position, innermost frame first, read as needed."""

    def __init__(self, tid):
        self.tid = tid
        self.frames = []
        self.complete, self.depth, self.pc, self.older = False, 0, None, 0
        self.read_more()

    def read_more(self):
        reply = request(
            "qContraflow.stack:%x,%x,%x" % (self.tid, len(self.frames), FRAMES_A_REQUEST)
        )
        head, *frames = (reply or "").split(";")
        fields = [number(field) for field in head.split(",")]
        if len(fields) == 5:
            _, complete, self.depth, self.pc, self.older = fields
            self.complete = complete == 1
            self.frames.extend(HistoryFrame(frame) for frame in frames)

    def is_at(self, pc):
        """Returns true if gdb is at the server's position: `record` moves gdb elsewhere."""
        return self.depth > 0 and pc is not None and self.pc == pc

    def tells(self, frame):
        """Returns true if the activation differs from others of its function. The function in which
        the path begins is one activation, but after a gap or on another stack it may be any."""
        return frame.activation is not None or self.older in (ENTIRE, BEFORE_HISTORY)

    def frame(self, index):
        while len(self.frames) <= index < self.depth:
            before = len(self.frames)
            self.read_more()
            if len(self.frames) == before:
                return None
        return self.frames[index] if index < len(self.frames) else None


class Server:
    """The connections to contraflow, each checked once."""

    def __init__(self):
        self.answers = {}
        # The numbers of those on which all values are known.
        self.exact = set()
        # The program that gdb loaded from a recording; kept after the connection is closed.
        self.program = None

    def is_contraflow(self):
        connection = gdb.selected_inferior().connection
        if connection is None or connection.type not in ("remote", "extended-remote"):
            return False
        if connection.num not in self.answers:
            reply = request("qContraflow.stack:0,0,0")
            self.answers[connection.num] = bool(reply) and not reply.startswith("E")
            if request("qContraflow.exact:") == "1":
                self.exact.add(connection.num)
            if self.answers[connection.num]:
                self.program = gdb.current_progspace().filename
        return self.answers[connection.num]

    def is_exact(self):
        """Returns true for an exact recording, where all values are known."""
        return self.is_contraflow() and gdb.selected_inferior().connection.num in self.exact

    def has_left_its_program(self):
        """Returns true if gdb still has the program of a recording after its connection."""
        program = gdb.current_progspace().filename
        return program is not None and program == self.program

    def forget(self, event):
        self.answers.pop(event.connection.num, None)
        self.exact.discard(event.connection.num)


class Shown:
    """The addresses of an activation that a stop with all registers has shown."""

    def __init__(self, address, start, caller):
        self.address, self.start, self.caller = address, start, caller


class Memory:
    """The activations of a thread that such stops have shown."""

    def __init__(self):
        self.shown = {}
        # The outermost activation shown, counted from the outermost of the call history.
        self.shallowest = None

    def add(self, activation, depth, shown):
        self.shown[activation] = shown
        self.shallowest = depth if self.shallowest is None else min(depth, self.shallowest)

    def get(self, activation, start):
        """Returns the addresses of an activation; before the history, `start` must match, too."""
        shown = self.shown.get(activation)
        return shown if shown and (activation is not None or shown.start == start) else None


# Not `server = ...`: gdb would remove that word, which is a prefix of its commands.
server, memories = Server(), {}


def selected_tid():
    thread = gdb.selected_thread()
    return thread.ptid[1] or thread.ptid[0] if thread else 0


def pc_of(read):
    """Returns the pc from `read`; None if it is unknown."""
    try:
        return int(read())
    except gdb.error:
        return None


def newest_pc():
    return pc_of(lambda: gdb.newest_frame().pc())


def function_start(pc):
    """Returns the start of the function around pc according to gdb; 0 if it is unknown."""
    if pc <= 0:
        return 0
    block, function = gdb.block_for_pc(pc), None
    while block is not None and not block.is_static and not block.is_global:
        function = block.function or function
        block = block.superblock
    if function is not None:
        return int(function.value().address)
    # Without debug information the symbol table is used: "NAME + OFFSET in section ...".
    name, _, rest = execute("info symbol 0x%x" % pc).partition(" in section ")
    if not rest:
        return 0
    _, plus, offset = name.rpartition(" + ")
    return pc - int(offset) if plus else pc


def is_sigreturn(pc):
    """Returns true if a signal handler returns here. gdb recognizes such code and steps through it,
    but only if its own unwinder made the frame."""
    try:
        code = bytes(gdb.selected_inferior().read_memory(pc - len(SIGRETURN), 2 * len(SIGRETURN)))
    except gdb.MemoryError:
        return False
    # Before its first instruction, or before its second, seven bytes later.
    return SIGRETURN in (code[len(SIGRETURN) :], code[2:-7])


def stand_in(memory, depth):
    """Returns an address for a frame without a known address: higher for outer frames, and always
    the same for one activation."""
    around = memory.shallowest is not None and depth < memory.shallowest
    return (STAND_IN_AROUND if around else STAND_IN_INSIDE) - STAND_IN_BYTES * depth


def unsigned(number):
    kind = gdb.selected_inferior().architecture().integer_type(64, False)
    return gdb.Value(number).cast(kind)


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = unsigned(sp), unsigned(pc)


class CallHistoryUnwinder(gdb.unwinder.Unwinder):
    """An unwinder over the call history, for stops with unknown registers."""

    def __init__(self):
        super().__init__("contraflow-call-history")
        self.stack = None
        # True while the server's answer holds that all registers are known.
        self.is_entire = False
        # For each frame level that gdb has requested: the index in the stack, and the caller's pc.
        # Inlined functions have a level, but no frame in the stack.
        self.levels = {}
        # The starts of the functions around addresses of this stack.
        self.starts = {}

    def __call__(self, pending):
        if calls.may_restore or not server.is_contraflow() or server.is_exact():
            return None
        level = pending.level()
        if level > 0 and self.knows_all():
            return None
        pc = pc_of(lambda: pending.read_register("rip"))
        index = None if pc is None else self.index_of(level, pc)
        if index is None or self.stack.complete:
            return None
        innermost = self.stack.frame(index)
        if index == 0 and innermost is not None and innermost.signal and is_sigreturn(pc):
            return None
        # A caller's pc is after its call, which may be the last instruction of its function.
        identity, caller = self.look_up(index, self.start_of(pc if index == 0 else pc - 1))
        self.levels[level] = index, caller
        unwound = pending.create_unwind_info(identity)
        unwound.add_saved_register("rip", unsigned(caller))
        return unwound

    def knows_all(self):
        """Returns true if the server has said at this stop that all registers are known. A packet a
        frame would make deep stacks slow."""
        return self.is_entire and self.stack.tid == selected_tid()

    def forget(self, event=None):
        self.is_entire = False

    def index_of(self, level, pc):
        """Returns the index of the frame that gdb requests: it requests frames innermost first."""
        inner = level - 1
        while inner >= 0 and inner not in self.levels:
            inner -= 1
        if inner >= 0 and self.stack.tid == selected_tid():
            index, caller = self.levels[inner]
            if caller == pc:
                return index + 1
        self.stack, self.levels, self.starts = Stack(selected_tid()), {}, {}
        self.is_entire = self.stack.complete
        frame_arguments.show() if self.stack.complete else frame_arguments.hide()
        if not self.stack.is_at(pc):
            return None
        source_line.is_at(self.stack.tid, pc)
        return 0

    def index_at(self, level):
        """Returns the index of the frame at a level; None for levels without one."""
        known = self.levels.get(level)
        return known[0] if known is not None else None

    def start_of(self, pc):
        if pc not in self.starts:
            self.starts[pc] = function_start(pc)
        return self.starts[pc]

    def look_up(self, index, start):
        """Returns the ID and the caller of a frame."""
        depth = self.stack.depth - 1 - index
        frame = self.stack.frame(index)
        if frame is None:
            # Outside the outermost frame of the call history, gdb shows one more, or a caller 0.
            return FrameId(STAND_IN_AROUND - STAND_IN_BYTES * depth, start), 0
        memory = memories.setdefault(self.stack.tid, Memory())
        shown = memory.get(frame.activation, start) if self.stack.tells(frame) else None
        if shown is not None:
            return FrameId(shown.address, start), frame.return_address or shown.caller
        address = stand_in(memory, depth)
        return FrameId(address, start or frame.entry or 0), frame.return_address or 0


def caller_of(frame):
    """Returns the next outer frame that this one is not inlined in."""
    older = frame.older()
    while older is not None and older.type() == gdb.INLINE_FRAME:
        older = older.older()
    return older


def remember_addresses(event=None):
    """Remembers the addresses of frames at a stop with all registers, so that they have the same
    IDs in the past."""
    if event is not None and not isinstance(event, gdb.StopEvent):
        return
    if not server.is_contraflow() or gdb.selected_thread() is None:
        return
    stack = Stack(selected_tid())
    if not stack.complete:
        order_note.tell()
    if not stack.complete or not stack.is_at(newest_pc()):
        return
    memory = memories.setdefault(stack.tid, Memory())
    frame = gdb.newest_frame()
    if frame.type() == gdb.INLINE_FRAME:
        frame = caller_of(frame)
    index = 0
    while frame is not None and index < min(stack.depth, REMEMBERED_FRAMES):
        recorded, caller = stack.frame(index), caller_of(frame)
        if frame.type() == gdb.NORMAL_FRAME:
            shown = look_at(frame, caller, recorded, index)
            if shown is None:
                break
            if stack.tells(recorded):
                memory.add(recorded.activation, stack.depth - 1 - index, shown)
            index += 1
        frame = caller


def look_at(frame, caller, recorded, index):
    """Returns a frame's address and caller, if the call history and gdb agree on them."""
    start = function_start(frame.pc() if index == 0 else frame.pc() - 1)
    if caller is None:
        # gdb hides the caller of `main`, but knows it.
        text = execute("info frame level %d" % frame.level())
        address = re.search(r"frame at (0x[0-9a-f]+)", text)
        saved = re.search(r"saved rip = (0x[0-9a-f]+)", text)
        if address is None:
            return None
        return Shown(int(address[1], 16), start, int(saved[1], 16) if saved else 0)
    beyond = caller
    while beyond is not None and beyond.type() not in (gdb.NORMAL_FRAME, gdb.INLINE_FRAME):
        beyond = beyond.older()
    if beyond is None or recorded.return_address not in (None, beyond.pc()):
        return None
    return Shown(int(caller.read_register("rsp")), start, beyond.pc())


class OrderNote:
    """A note, printed once per recording, that the order of its threads is partly unknown."""

    def __init__(self):
        self.told = None

    def tell(self):
        inferior = gdb.selected_inferior()
        if self.told == inferior.connection.num or len(inferior.threads()) < 2:
            return
        if "order between threads is not known" in patiently("monitor when"):
            self.told = inferior.connection.num
            gdb.write("[The order of threads is known only as closely as cf-when shows]\n")


class FrameArguments:
    """The setting for arguments of frames that gdb prints at stops. In the past it prints none:
    for each unreadable argument it would print an error with a placeholder address."""

    def __init__(self):
        self.usual = None

    def hide(self):
        usual = gdb.parameter("print frame-arguments")
        if usual not in ("none", "presence"):
            self.usual = usual
            execute("set print frame-arguments none")

    def show(self, event=None):
        if self.usual is not None:
            execute("set print frame-arguments " + self.usual)
            self.usual = None


class SourceLine:
    """The source line of a `reverse-step` or `reverse-next`. gdb steps back instruction by
    instruction; if the server knows the line, it steps over it at once. With watchpoints, for which
    gdb reads values after each instruction, the line is not reported."""

    def __init__(self):
        self.wanted, self.told = False, None

    def begin(self):
        watches = (gdb.BP_WATCHPOINT, gdb.BP_HARDWARE_WATCHPOINT)
        looks = any(stop.type in watches and stop.enabled for stop in gdb.breakpoints())
        self.wanted = not looks and server.is_contraflow()

    def is_at(self, tid, pc):
        if not self.wanted:
            return
        line = gdb.find_pc_line(pc)
        known = line.symtab is not None and line.last is not None
        place = (tid, line.pc, line.last + 1) if known else None
        if place is not None and place != self.told:
            self.told = place
            request("qContraflow.line:%x,%x,%x" % place)

    def end(self, event=None):
        self.wanted = False
        if self.told is not None:
            self.told = None
            request("qContraflow.line:")


class Selection:
    """Reports the thread that gdb resumes to the server: the packets of `reverse-stepi` do not name
    it, and `thread apply all` would look like a choice of the last thread."""

    def tell(self):
        if server.is_contraflow() and selected_tid():
            tell("qContraflow.select:%x" % selected_tid())


selection = Selection()
order_note = OrderNote()
frame_arguments = FrameArguments()
source_line = SourceLine()


class Command(gdb.Command):
    """A command with the name of its class: `When` is cf-when."""

    # The name, where another class has it.
    spelled = None

    def __init__(self, kind, *completer):
        name = self.spelled or type(self).__name__.lower()
        super().__init__("cf-" + name, kind, *completer)
        self.name = name


class Question(Command):
    """A command that the server answers, also available with `monitor`."""

    completer = gdb.COMPLETE_NONE

    def __init__(self):
        super().__init__(gdb.COMMAND_STATUS, self.completer)

    def invoke(self, argument, from_tty):
        need_contraflow()
        gdb.write(patiently("monitor " + (self.name + " " + argument).strip()))


class When(Question):
    """Show the position in the recorded history.

Usage: cf-when

Shows the position among the instructions of all threads, the thread's own count, the time since
the start, the wall clock, and the share of the history that is before the position."""


class History(Question):
    """Show the calls around the current position.

Usage: cf-history [N]

Shows N functions that the thread reached before this position and N after it; the default is 10.
In an exact recording, the first use makes the path of the run, which takes a while."""

    def invoke(self, argument, from_tty):
        need_contraflow()
        # The server says how far it is.
        patiently("monitor " + ("history " + argument).strip(), to_string=False)


class Find(Question):
    """List the executions of some code.

Usage: cf-find FUNCTION | FILE:LINE | *ADDRESS [N]

Lists the last N executions (100 if N is not given), newest first, each with its position for
cf-seek. Quote names with blanks: cf-find 'operator delete' 20."""

    completer = gdb.COMPLETE_LOCATION


class Asked(Command):
    """A question about the whole recording, which contraflow itself answers."""

    def __init__(self):
        super().__init__(gdb.COMMAND_STATUS, gdb.COMPLETE_LOCATION)

    def invoke(self, argument, from_tty):
        program = os.environ.get("CONTRAFLOW_PROGRAM")
        recording = os.environ.get("CONTRAFLOW_RECORDING")
        if not program or not recording:
            raise gdb.GdbError(
                "cf-%s needs a recording: start gdb by `contraflow replay`, or use `contraflow %s`"
                % (self.name, self.name)
            )
        options = self.options(gdb.string_to_argv(argument))
        command = [program, self.name, recording] + options
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for line in asked.stdout:
                gdb.write(line)
        finally:
            asked.terminate()
            asked.wait()


class Hits(Asked):
    """List all executions of some code, with the values of expressions at each.

Usage: cf-hits FUNCTION | FILE:LINE | 0xADDRESS [EXPRESSION, EXPRESSION...]

Each line has a position for cf-seek. `bt 3` among the expressions shows three frames:
cf-hits crash.c:31 a->id, a->owner, bt 3"""

    def options(self, words):
        if not words:
            raise gdb.GdbError("cf-hits needs a function, a line or an address; see `help cf-hits`")
        return ["--at", words[0], "--print", " ".join(words[1:])]


class CallsOf(Asked):
    """List all calls of a function, with arguments, results and durations in instructions.

Usage: cf-calls FUNCTION [FUNCTION...]

Each line has a position for cf-seek."""

    spelled = "calls"

    def options(self, words):
        if not words:
            raise gdb.GdbError("cf-calls needs a function; see `help cf-calls`")
        if any(word.startswith("-") for word in words):
            raise gdb.GdbError("cf-calls takes functions alone; it shows arguments, results and durations")
        functions = [option for word in words for option in ("--function", word)]
        return functions + ["--args", "--returns", "--duration"]


class Origin(Asked):
    """Show where a value came from, step by step backwards.

Usage: cf-origin EXPRESSION

EXPRESSION is a variable, what else has an address, such as account->owner, or a register of the
innermost frame, such as $rax. From copy to copy, to what computed the value, or brought it into the
program: a constant, a file, a system call. Each line has a position for cf-seek."""

    def __init__(self):
        Command.__init__(self, gdb.COMMAND_STATUS, gdb.COMPLETE_EXPRESSION)

    def options(self, words):
        if not words:
            raise gdb.GdbError("cf-origin needs an expression; see `help cf-origin`")
        expression = " ".join(words)
        try:
            value = gdb.parse_and_eval(expression)
            value.fetch_lazy()
        except gdb.error as error:
            raise gdb.GdbError(str(error))
        if value.is_optimized_out:
            raise gdb.GdbError("%s is optimized out here: ask at another position" % expression)
        when = re.match(r"position ([0-9.]+)", patiently("monitor when"))
        options = ["--thread", str(selected_tid())] + (["--at", when[1]] if when else [])
        if value.address is not None:
            return options + ["--bytes", str(value.type.sizeof), "%#x" % int(value.address)]
        if gdb.selected_frame().level() > 0:
            raise gdb.GdbError("%s has no address in this frame: it is in a register, or computed" % expression)
        return options + ["--frame", "0", expression]


class Mark(Question):
    """Give the current position a name.

Usage: cf-mark NAME

`cf-seek NAME` returns to it, `cf-marks` lists the names, `cf-unmark NAME` removes one."""


class Marks(Question):
    """List the positions that cf-mark has named.

Usage: cf-marks"""


class Unmark(Question):
    """Remove a name that cf-mark gave.

Usage: cf-unmark NAME"""

    # gdb calls `complete` only if no predefined completer is given.
    def __init__(self):
        Command.__init__(self, gdb.COMMAND_STATUS)

    def complete(self, text, word):
        return [name for name in mark_names() if name.startswith(word)]


class Stats(Question):
    """Show the size of each thread's history.

Usage: cf-stats"""


class Gaps(Question):
    """List the gaps in the recorded history.

Usage: cf-gaps"""


def mark_names():
    """Returns the names that cf-mark has given."""
    if not server.is_contraflow():
        return []
    answer = patiently("monitor marks")
    return [name for name, found, _ in (l.partition(": position ") for l in answer.splitlines()) if found]


class Info(Command):
    """Show the recorded program, how it ended, and the gaps of the history.

Usage: cf-info"""

    def __init__(self):
        super().__init__(gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        need_contraflow()
        gdb.write(patiently("monitor info"))
        gdb.write(patiently("monitor gaps"))


WATCHPOINTS = (gdb.BP_WATCHPOINT, gdb.BP_HARDWARE_WATCHPOINT, gdb.BP_READ_WATCHPOINT, gdb.BP_ACCESS_WATCHPOINT)
AT_ADDRESS = re.compile(r"-location .*|\*\([^()]*(?:\([^()]*\)[^()]*)?\) *0x[0-9a-f]+")


def is_everywhere(expression):
    """Returns True if an expression has a value wherever the program is."""
    if AT_ADDRESS.fullmatch(expression):
        return True
    return re.fullmatch(r"\w+", expression) is not None and gdb.lookup_global_symbol(expression) is not None


class Seek(Command):
    """Go to a position of the recorded history.

Usage: cf-seek POSITION | +COUNT | -COUNT | PERCENT% | TIME | +TIME | -TIME | start | end | MARK

POSITION counts the instructions of all threads from the beginning of the history. It may be an
expression. COUNT is relative to the current position. TIME is since the start, like 1.5s, 20ms,
300us or 7ns. MARK is a name that cf-mark gave."""

    as_it_stands = re.compile(r"[+-]?[0-9.]+(%|ns|us|ms|s)|[0-9]+\.[0-9]+")

    def __init__(self):
        super().__init__(gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        need_contraflow()
        self.go("seek " + self.target(argument.strip()))

    def go(self, command):
        """Executes a `monitor` command that moves, and shows the new position."""
        self.select_newest_frame()
        answer = patiently("monitor " + command)
        if not answer.startswith("position"):
            raise gdb.GdbError(answer.strip())
        self.forget_the_old_place()
        gdb.write(answer)
        remember_addresses()
        if newest_pc() is not None:
            gdb.execute("frame")

    def select_newest_frame(self):
        """gdb looks for the selected frame among those of the new place, and aborts if it was a
        caller's."""
        try:
            gdb.newest_frame().select()
        except gdb.error:
            pass

    def target(self, argument):
        if not argument:
            raise gdb.GdbError("cf-seek needs a position; see `help cf-seek`")
        if argument in ("start", "begin", "end") or self.as_it_stands.fullmatch(argument):
            return argument
        if argument in mark_names():
            return argument
        sign = argument[0] if argument[0] in "+-" else ""
        return sign + str(int(gdb.parse_and_eval(argument[len(sign) :])))

    def forget_the_old_place(self):
        # Updates gdb's threads. `info threads` would also read registers of the selected thread,
        # which may not exist at the new position.
        calls.resume()
        execute("thread find ^$")
        reply = request("qC") or ""
        for thread in gdb.selected_inferior().threads():
            pid, tid = thread.ptid[0], thread.ptid[1] or thread.ptid[0]
            if reply in ("QC%x" % tid, "QCp%x.%x" % (pid, tid)):
                thread.switch()
        resumption.stop()
        unwinder.forget()
        execute("maintenance flush register-cache")
        execute("maintenance flush dcache")
        self.update_libraries()
        self.renew_watched_values()

    def renew_watched_values(self):
        """gdb compares the next value of a watchpoint with the one of the old place. Enabling it reads the
        value anew; it would delete one whose variables are not there."""
        for point in gdb.breakpoints() or ():
            if not (point.enabled and point.type in WATCHPOINTS and is_everywhere(point.expression or "")):
                continue
            point.enabled = False
            # gdb reads the expression again, in the language of here. It fails in a wrong one.
            languages = (language for language in ("c", "auto", "rust") if not point.enabled)
            for language in languages:
                execute("with language %s -- enable %d" % (language, point.number))

    def update_libraries(self):
        """gdb did not see the program load or unload libraries on the way. Before the linker has a list
        of them, gdb keeps what it knows."""
        if "<library " not in (request("qXfer:libraries-svr4:read::0,400") or ""):
            return
        try:
            execute("sharedlibrary" if gdb.parameter("auto-solib-add") else "info sharedlibrary")
        except gdb.error:
            pass

    def complete(self, text, word):
        choices = ["begin", "start", "end"] + mark_names()
        return [choice for choice in choices if choice.startswith(word)]


seek = Seek()


class Checkpoints:
    """The checkpoints of the user: marks of the server. gdb's own ones are forks of a local program."""

    def __init__(self):
        self.forget()
        self.are_commands_defined = False

    def forget(self, event=None):
        self.last = 0
        # The place of each, by its number.
        self.places = {}

    def define_commands(self):
        """Replaces gdb's commands once it is connected to contraflow."""
        if server.is_contraflow() and not self.are_commands_defined:
            self.are_commands_defined = True
            for command in (Checkpoint, Restart, InfoCheckpoints, DeleteCheckpoint):
                command()

    def number(self, argument):
        try:
            number = int(gdb.parse_and_eval(argument))
        except gdb.error:
            number = None
        if number not in self.places:
            raise gdb.GdbError("no checkpoint %s; see `info checkpoints`" % argument)
        return number

    def name(self, number):
        return "checkpoint-%d" % number


checkpoints = Checkpoints()


class CheckpointCommand(gdb.Command):
    def __init__(self):
        super().__init__(self.spelled, gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        need_contraflow()
        self.act(argument.strip())


class Checkpoint(CheckpointCommand):
    """Make a checkpoint of the current position.

Usage: checkpoint

`restart N` returns to it. It is also a mark: `cf-seek checkpoint-N`."""

    spelled = "checkpoint"

    def act(self, argument):
        number = checkpoints.last + 1
        answer = patiently("monitor mark " + checkpoints.name(number)).strip()
        _, found, position = answer.partition(": ")
        if not found:
            raise gdb.GdbError(answer)
        frame = gdb.newest_frame()
        place, line = "%#x" % frame.pc(), frame.find_sal()
        if line.symtab is not None:
            place += ", file %s, line %d" % (line.symtab.filename, line.line)
        checkpoints.last = number
        checkpoints.places[number] = "%s at %s" % (position, place)
        gdb.write("Checkpoint %d: %s\n" % (number, checkpoints.places[number]))


class Restart(CheckpointCommand):
    """Return to a checkpoint.

Usage: restart N"""

    spelled = "restart"

    def act(self, argument):
        seek.go("seek " + checkpoints.name(checkpoints.number(argument)))


class InfoCheckpoints(CheckpointCommand):
    """List the checkpoints.

Usage: info checkpoints"""

    spelled = "info checkpoints"

    def act(self, argument):
        for number, place in checkpoints.places.items():
            gdb.write("%d %s\n" % (number, place))
        if not checkpoints.places:
            gdb.write("No checkpoints.\n")


class DeleteCheckpoint(CheckpointCommand):
    """Delete a checkpoint.

Usage: delete checkpoint N"""

    spelled = "delete checkpoint"

    def act(self, argument):
        number = checkpoints.number(argument)
        patiently("monitor unmark " + checkpoints.name(number))
        del checkpoints.places[number]


class Way(Command):
    """A command that moves along the calls: by the call history, or where all values are known, by
    gdb's own frames."""

    def __init__(self):
        super().__init__(gdb.COMMAND_RUNNING)

    def invoke(self, argument, from_tty):
        need_contraflow()
        if not server.is_exact():
            seek.go(self.name)
            return
        try:
            self.walk()
        except gdb.error as error:
            raise gdb.GdbError(str(error))


class Home(Way):
    """Go back out of libraries, to the program's own code.

Usage: cf-home

Goes to the innermost call by the program's own code."""

    # The lengths of call instructions in bytes, the usual ones first.
    lengths = (5, 2, 3, 6, 7, 4)
    # The sources of libraries that compilers put into the program itself: Rust's and C++'s.
    of_compilers = re.compile(r"/rustc/[0-9a-f]+/|.*/rustlib/src/|.*/include/c\+\+/")
    # Go's: in the directory that has the sources of its run-time system, which begins each stack.
    of_go = re.compile(r"(.*/src/)runtime/[^/]*\.(go|s)$")

    def walk(self):
        newest = gdb.newest_frame()
        go = self.go_library(newest)
        if self.is_own(newest, go):
            raise gdb.GdbError("this is the program's own code")
        frame = self.first_own(newest, go)
        call = self.call_before(frame) if frame is not None else None
        if call is None:
            raise gdb.GdbError("no call of the program's own code is known here")
        # gdb's reverse-finish leaves the innermost function only, and takes jumps for calls.
        others = [each for each in gdb.breakpoints() if each.enabled]
        stop = gdb.Breakpoint("*%#x" % call, internal=True)
        stop.silent = True
        stop.condition = "$sp == %#x" % int(frame.read_register("sp"))
        try:
            for each in others:
                each.enabled = False
            gdb.execute("reverse-continue", to_string=True)
        finally:
            stop.delete()
            for each in others:
                each.enabled = True
        # The call may be one of a library's function that was inlined.
        own = self.first_own(gdb.newest_frame(), go)
        if own is not None:
            own.select()
        gdb.execute("frame")

    def first_own(self, frame, go):
        while frame is not None and not self.is_own(frame, go):
            frame = frame.older()
        return frame

    def is_own(self, frame, go):
        """Returns true if a frame is one of the program's own code, as far as is known."""
        if gdb.solib_name(frame.pc()) is not None:
            return False
        path = self.source_of(frame)
        return not self.of_compilers.match(path) and not (go and path.startswith(go))

    def source_of(self, frame):
        symtab = frame.find_sal().symtab
        return symtab.fullname() if symtab is not None else ""

    def go_library(self, frame):
        """Returns the directory of the sources of Go's library, if the frames are of a Go program."""
        for _ in range(REMEMBERED_FRAMES):
            found = gdb.solib_name(frame.pc()) is None and self.of_go.match(self.source_of(frame))
            frame = frame.older()
            if found or frame is None:
                return found.group(1) if found else None
        return None

    def call_before(self, frame):
        """Returns the address of the call instruction from which a frame goes on; None if there is
        none, as after a signal."""
        for length in self.lengths:
            try:
                insn = frame.architecture().disassemble(frame.pc() - length)[0]
            except (gdb.error, OverflowError):
                # No code is there.
                continue
            if insn["length"] == length and insn["asm"].startswith("call"):
                return insn["addr"]
        return None


class Caller(Way):
    """Go back to the call of this function. Needs no symbols.

Usage: cf-caller"""

    def walk(self):
        gdb.newest_frame().select()
        gdb.execute("reverse-finish")


class Return(Way):
    """Go forward to the return of this function. Needs no symbols.

Usage: cf-return"""

    def walk(self):
        gdb.newest_frame().select()
        gdb.execute("finish")


class Last(Command):
    """Go back to where a value was last changed.

Usage: cf-last [EXPRESSION]

EXPRESSION is a variable, or what else has an address, such as account->owner. The instruction that
writes is next. Without EXPRESSION, goes to the change before, of the value that was asked for last."""

    def __init__(self):
        super().__init__(gdb.COMMAND_RUNNING, gdb.COMPLETE_EXPRESSION)
        self.place = None

    def invoke(self, argument, from_tty):
        need_contraflow()
        if argument:
            try:
                self.place = self.in_memory(argument)
            except gdb.error as error:
                raise gdb.GdbError(str(error))
        if self.place is None:
            raise gdb.GdbError("cf-last needs an expression; see `help cf-last`")
        address, of_type = self.place
        after = self.text()
        seek.go("last %#x %d" % (address, of_type.sizeof))
        becomes = ", and becomes " + after if after is not None else ""
        gdb.write("it is %s%s\n" % (self.shown(), becomes))

    def in_memory(self, expression):
        """Returns the address and type of an expression's value."""
        value = gdb.parse_and_eval(expression)
        if value.type.strip_typedefs().code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
        if value.address is None:
            raise gdb.GdbError("%s has no address: it is in a register, or computed" % expression)
        return int(value.address), value.type

    def text(self):
        """Returns a number or an address that is there now. Of other values, more than that memory
        may have changed since it was written."""
        try:
            value = self.value()
            kind = value.type.strip_typedefs().code
            if kind == gdb.TYPE_CODE_PTR:
                return "%#x" % int(value)
            plain = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_FLT)
            return value.format_string() if kind in plain else None
        except gdb.error as error:
            return "<%s>" % error

    def shown(self):
        """Returns the value that is there now, in full."""
        try:
            return self.value().format_string(max_elements=40)
        except gdb.error as error:
            return "<%s>" % error

    def value(self):
        address, of_type = self.place
        return gdb.Value(address).cast(of_type.pointer()).dereference()


def need_contraflow():
    if not server.is_contraflow():
        raise gdb.GdbError("this is not a contraflow recording; connect with `target remote` first")


class Finish:
    """Reports the end of a `finish` in the past to the server: gdb would read the unknown registers
    with the returned value as zeros. gdb announces each resuming command, of its command line and
    of GDB/MI, after it has inserted its breakpoint at the end."""

    breakpoint = re.compile(r"^0\s+finish\s.*?(0x[0-9a-f]+).*\sthread (\d+)", re.MULTILINE)

    def __init__(self):
        self.told = False

    def begin(self):
        if not server.is_contraflow() or gdb.selected_thread() is None:
            return
        place = self.end()
        if place is not None or self.told:
            fields = "" if place is None else "%x,%x,%x" % place
            tell("qContraflow.finish:" + fields)
        self.told = place is not None

    def end(self):
        """Returns the thread, the address and the remaining frames of a `finish` in the past."""
        thread = gdb.selected_thread()
        found = self.breakpoint.findall(execute("maintenance info breakpoints"))
        addresses = [int(address, 16) for address, number in found if int(number) == thread.global_num]
        if not addresses:
            return None
        stack = Stack(selected_tid())
        if stack.complete:
            return None
        # For a frame outside the call history, any stop at the address counts.
        index = unwinder.index_at(gdb.selected_frame().level())
        return stack.tid, addresses[0], stack.depth - 1 - index if index is not None else 1 << 63


class Resumption:
    """Reports to the server before gdb resumes. gdb announces a thread that it finds running, as
    after `attach`, like a resuming command. It has no selected thread then, and aborts if a script
    requests that one. So only threads that were seen stopped count.

    Only the first resume of a command is handled: a Ctrl-C during a handler is lost, and gdb
    resumes again for each breakpoint whose condition is false."""

    def __init__(self):
        self.stopped, self.listens = [], False
        self.handler = interruptible(self.begin)

    def stop(self, event=None):
        self.stopped = gdb.selected_inferior().threads()
        self.listen()

    def listen(self, event=None):
        if not self.listens:
            self.listens = True
            gdb.events.cont.connect(self.handler)

    def begin(self, event):
        if any(thread in self.stopped for thread in gdb.selected_inferior().threads()):
            self.listens = False
            gdb.events.cont.disconnect(self.handler)
            selection.tell()
            finish.begin()


class Calls:
    """The functions that gdb calls for its user, where all registers are known. Before the next
    resume, gdb unwinds to the frame that was selected, and aborts if that asks the server."""

    def __init__(self):
        self.running, self.may_restore = 0, False

    def note(self, event):
        begins = isinstance(event, gdb.InferiorCallPreEvent)
        self.running += 1 if begins else -1
        self.may_restore = True

    def resume(self, event=None):
        if self.running == 0:
            self.may_restore = False


class UnavailablePointer:
    """A pointer computed from a placeholder."""

    def to_string(self):
        return "<unavailable>"


def printer_of_stand_ins(value):
    kind = value.type.strip_typedefs().code
    if kind not in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF) or not server.is_contraflow():
        return None
    try:
        address = int(value if kind == gdb.TYPE_CODE_PTR else value.address)
    except gdb.error:
        return None
    return UnavailablePointer() if address >> 32 in STAND_IN_WINDOWS else None


class Decorator(gdb.FrameDecorator.FrameDecorator):
    """A frame of the call history, whose variables are unavailable. gdb would print an error with
    the address that it cannot read, which is a placeholder."""

    def __init__(self, frame, unavailable):
        super().__init__(frame)
        self.unavailable = unavailable

    def function(self):
        return self.inferior_frame().name() or "??"

    def frame_args(self):
        return self.all_unavailable(super().frame_args())

    def frame_locals(self):
        return self.all_unavailable(super().frame_locals())

    def all_unavailable(self, variables):
        return variables and [Variable(v.symbol(), self.unavailable) for v in variables]


class Variable:
    def __init__(self, symbol, value):
        self.name, self.unavailable = symbol, value

    def symbol(self):
        return self.name

    def value(self):
        return self.unavailable


class CallHistoryFilter:
    """A frame filter that decorates the frames of `backtrace`."""

    def __init__(self):
        self.name, self.priority, self.wanted = "contraflow-call-history", 100, True
        self.why = None
        gdb.frame_filters[self.name] = self

    @property
    def enabled(self):
        """Returns true only if needed: with a filter, gdb prints all frames differently."""
        return self.wanted and server.is_contraflow() and self.unavailable_value() is not None

    @enabled.setter
    def enabled(self, wanted):
        self.wanted = wanted

    def filter(self, frames):
        unavailable = self.unavailable_value()
        self.why = None
        for frame in frames:
            if frame.inferior_frame().pc() != 0:
                yield Decorator(frame, unavailable)
        # All frames have been shown.
        self.why = OLDER_FRAMES.get(Stack(selected_tid()).older)

    def begin(self):
        """Restores the setting for `backtrace`, which shows unavailable arguments."""
        self.why = None
        if self.enabled:
            frame_arguments.show()

    def end(self):
        """Prints at the end of `backtrace` why there are no older frames."""
        if self.enabled:
            frame_arguments.hide()
        if self.why is not None:
            gdb.write("(%s)\n" % self.why)
            self.why = None

    def unavailable_value(self):
        """Returns gdb's unavailable value, if the frames are of the call history."""
        if gdb.selected_thread() is None:
            return None
        stack = Stack(selected_tid())
        if stack.complete or not stack.is_at(newest_pc()):
            return None
        value = gdb.newest_frame().read_register("rsp")
        try:
            int(value)
            return None
        except gdb.error:
            return value


class Patience:
    """The timeout while gdb connects: the server may first index the recording, which takes longer
    than gdb's default."""

    def __init__(self):
        self.usual = None

    def begin(self):
        self.usual = gdb.parameter("remotetimeout")
        execute("set remotetimeout %d" % max(self.usual, PATIENCE_SECONDS))

    def end(self, event=None):
        if self.usual is not None:
            execute("set remotetimeout %d" % self.usual)
            self.usual = None


class Presence:
    """The packet for the status of tracepoints, which gdb sends while it connects. The server takes
    it for the sign of a gdb without this script, and prints how to load the script."""

    packet = "remote trace-status-packet"

    def __init__(self):
        self.usual = None

    def begin(self):
        if self.usual is None:
            self.usual = {None: "auto", True: "on", False: "off"}[gdb.parameter(self.packet)]
        execute("set %s off" % self.packet)

    def end(self, event=None):
        if self.usual is not None:
            execute("set %s %s" % (self.packet, self.usual))
            self.usual = None


def connecting():
    patience.begin()
    presence.begin()


def connected():
    patience.end()
    presence.end()
    resumption.stop()
    static_program.settle()
    checkpoints.define_commands()


class StaticProgram:
    """A correction for static programs. If gdb connects to one in the middle of its run, it finds
    the C library's list of libraries, takes the whole program for a dynamic linker, and steps
    through all functions. Without the list it searches no linker, so the server hides the list
    while gdb searches again."""

    def settle(self):
        if not server.is_contraflow() or ".interp" in execute("info files"):
            return
        if request("qContraflow.data:hide") != "OK":
            return
        path = gdb.parameter("solib-search-path") or ""
        try:
            execute("set solib-search-path " + path)
        finally:
            request("qContraflow.data:show")
            execute("maintenance flush register-cache")
            execute("maintenance flush dcache")


finish = Finish()
resumption = Resumption()
calls = Calls()
unwinder = CallHistoryUnwinder()
patience = Patience()
presence = Presence()
static_program = StaticProgram()


def is_present():
    """Returns true at the present of a live program."""
    return "still running" in patiently("monitor when")


class Check(Command):
    """Refuse a command that a recording does not support. Used by hooks of such commands.

Usage: cf-check run | proc | mappings | watch | frame"""

    def __init__(self):
        super().__init__(gdb.COMMAND_OBSCURE)

    def invoke(self, argument, from_tty):
        checks = {
            "run": self.run,
            "proc": self.proc,
            "mappings": self.mappings,
            "watch": self.watch,
            "frame": self.frame,
        }
        checks.get(argument, lambda: None)()

    def run(self):
        """Fails: gdb would start the program natively."""
        connection = gdb.selected_inferior().connection
        if connection is not None and connection.type == "extended-remote":
            # The server starts it, or reports why not.
            return
        if server.is_contraflow() and is_present():
            raise gdb.GdbError(
                "the program runs already; `target extended-remote` can run it again"
            )
        if server.is_contraflow():
            raise gdb.GdbError(
                "a recording cannot run again; `cf-seek begin` goes to its beginning"
            )
        if gdb.selected_inferior().connection is None and server.has_left_its_program():
            raise gdb.GdbError(
                "the recording has been left; `contraflow replay` opens it again"
                " (to run the program itself, load it with `file` first)"
            )

    def proc(self):
        """Fails in the past: gdb would request the ID of a process of this machine."""
        if server.is_contraflow() and not is_present():
            raise gdb.GdbError("the past has no process; `cf-info` shows what is known")

    def mappings(self):
        """Fails where the server does not know all mappings."""
        if server.is_contraflow() and not server.is_exact():
            self.proc()

    def watch(self):
        """Fails in the past: gdb would fail when it continues, and blame the CPU."""
        if not server.is_contraflow():
            return
        # A program's present, and an exact recording, have all values.
        if not is_present() and not server.is_exact():
            raise gdb.GdbError(
                "watchpoints cannot be checked in the past, where values are unknown;"
                " breakpoints stop there, and cf-find lists the executions of some code"
            )

    def frame(self):
        """Fails in the past: gdb would show placeholders."""
        if server.is_contraflow() and gdb.selected_thread() is not None:
            if not Stack(selected_tid()).complete:
                raise gdb.GdbError(
                    "the registers of frames are not known in the past; `bt` shows the frames"
                )


def define_hooks():
    """Defines hooks for commands without an event. Keeps hooks that the user has defined."""
    hooks = [
        ("hook-reverse-step", "python contraflow_source_line.begin()"),
        ("hookpost-reverse-step", "python contraflow_source_line.end()"),
        ("hook-reverse-next", "python contraflow_source_line.begin()"),
        ("hookpost-reverse-next", "python contraflow_source_line.end()"),
        # After an error there is no stop, and in a script no prompt either.
        ("hook-reverse-stepi", "python contraflow_source_line.end()"),
        ("hook-reverse-nexti", "python contraflow_source_line.end()"),
        ("hook-backtrace", "python contraflow_frames.begin()"),
        ("hookpost-backtrace", "python contraflow_frames.end()"),
        ("hook-run", "cf-check run"),
        ("hook-start", "cf-check run"),
        ("hook-starti", "cf-check run"),
        ("info hook-proc", "cf-check proc"),
        ("hook-watch", "cf-check watch"),
        ("hook-rwatch", "cf-check watch"),
        ("hook-awatch", "cf-check watch"),
        ("info hook-frame", "cf-check frame"),
        ("info frame hook-level", "cf-check frame"),
        ("info frame hook-function", "cf-check frame"),
        ("target hook-remote", "python contraflow_connecting()"),
        ("target hookpost-remote", "python contraflow_connected()"),
        ("target hook-extended-remote", "python contraflow_connecting()"),
        ("target hookpost-extended-remote", "python contraflow_connected()"),
    ]
    hooks.append(("info proc hook-mappings", "cf-check mappings"))
    for part in ("all", "cmdline", "cwd", "exe", "files", "stat", "status"):
        hooks.append(("info proc hook-" + part, "cf-check proc"))
    defined = re.findall(r"^(.*?) -- ", execute("help user-defined"), re.MULTILINE)
    for name, body in hooks:
        if name not in defined:
            gdb.execute("define %s\n%s\nend" % (name, body))


def load():
    import __main__

    if not hasattr(gdb.events, "connection_removed"):
        raise gdb.GdbError("contraflow's script needs gdb 13 or newer; this is gdb " + gdb.VERSION)

    __main__.contraflow_source_line = source_line
    __main__.contraflow_frames = CallHistoryFilter()
    __main__.contraflow_connecting = connecting
    __main__.contraflow_connected = connected
    gdb.unwinder.register_unwinder(None, unwinder, replace=True)
    gdb.events.stop.connect(remember_addresses)
    gdb.events.stop.connect(source_line.end)
    gdb.events.connection_removed.connect(server.forget)
    gdb.events.connection_removed.connect(checkpoints.forget)
    gdb.events.before_prompt.connect(resumption.listen)
    resumption.listen()
    gdb.events.stop.connect(resumption.stop)
    gdb.events.inferior_call.connect(calls.note)
    gdb.events.cont.connect(calls.resume)
    gdb.events.cont.connect(unwinder.forget)
    gdb.events.connection_removed.connect(calls.resume)
    gdb.events.connection_removed.connect(unwinder.forget)
    gdb.events.connection_removed.connect(frame_arguments.show)
    gdb.events.before_prompt.connect(patience.end)
    gdb.events.before_prompt.connect(presence.end)
    gdb.events.before_prompt.connect(source_line.end)
    Check()
    define_hooks()
    gdb.pretty_printers.append(printer_of_stand_ins)
    for command in (When, Info, History, Find, Hits, CallsOf, Origin, Mark, Marks, Unmark, Stats, Gaps, Home, Caller, Return, Last):
        command()
    # gdb may be connected already.
    resumption.stop()
    static_program.settle()
    checkpoints.define_commands()
    remember_addresses()


load()
end
