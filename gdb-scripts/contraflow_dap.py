"""Answers contraflow's debug adapter from inside gdb: stack, scopes, variables, expressions, code,
breakpoints. One command of GDB/MI, `-contraflow REQUEST`, takes and returns JSON. gdb 13 or newer;
contraflow.py is loaded before.
"""

import base64
import json
import os
import re

import gdb

import contraflow_breakpoints as breakpoints
import contraflow_values as values
from contraflow_values import variable

import __main__ as contraflow

FRAMES_LIMIT = 1000
READ_LIMIT_BYTES = 1 << 24
INSTRUCTIONS_LIMIT = 100000
# Commands that would read more lines, or end what the adapter needs.
REFUSED = {
    "commands", "compile", "define", "document", "end", "guile", "gu", "guile-repl", "gr", "pi",
    "python-interactive", "edit", "quit", "exit", "q", "target", "disconnect", "detach", "kill", "k",
    "attach", "run", "r", "start", "starti", "while", "if", "layout", "tui", "interpreter-exec",
    "new-ui", "add-inferior", "inferior", "clone-inferior", "record",
}  # fmt: skip

frames = values.References()
points = breakpoints.Points()
requests = {}


def request(function):
    requests[function.__name__] = function
    return function


class Contraflow(gdb.MICommand):
    """The command of the adapter. If it resumes the program, gdb prints its own result instead, and
    the request `last` returns the answer."""

    def __init__(self):
        super().__init__("-contraflow")
        self.last = None

    def invoke(self, argv):
        name, arguments = json.loads(argv[0])
        if name != "last":
            self.last = json.dumps(self.answer(name, arguments))
        return {"json": self.last}

    def answer(self, name, arguments):
        try:
            return {"answer": requests[name](**arguments)}
        except KeyboardInterrupt:
            return {"error": "interrupted"}
        except (gdb.error, gdb.GdbError, RuntimeError, TypeError) as error:
            return {"error": values.reason(error).strip("<>")}


def forget():
    frames.forget()
    values.containers.forget()


def tid_of(thread):
    return thread.ptid[1] or thread.ptid[0]


def thread_of(tid):
    for thread in gdb.selected_inferior().threads():
        if tid_of(thread) == tid:
            return thread
    raise gdb.GdbError("thread %s does not exist here" % tid)


def select(tid):
    """Selects a thread and its newest frame."""
    thread = thread_of(tid)
    if gdb.selected_thread() != thread:
        thread.switch()
    gdb.newest_frame().select()


def enter(frame_id):
    """Selects a frame that the client names."""
    tid, frame, level = frames.get(frame_id, "frame")
    thread = thread_of(tid)
    if gdb.selected_thread() != thread:
        thread.switch()
    if not frame.is_valid():
        frame = gdb.newest_frame()
        for _ in range(level):
            frame = frame.older()
            if frame is None:
                raise gdb.GdbError("this frame does not exist any more")
    frame.select()
    return frame


class Selected:
    """Restores the newest frame of the thread that was selected: gdb looks for the selected frame
    after it has moved, and `finish` starts from it."""

    def __enter__(self):
        self.thread = gdb.selected_thread()

    def __exit__(self, *_):
        try:
            if self.thread is not None and self.thread.is_valid():
                if gdb.selected_thread() != self.thread:
                    self.thread.switch()
                gdb.newest_frame().select()
        except (gdb.error, RuntimeError):
            pass


# Threads and running.


def thread_list():
    if gdb.selected_inferior().pid == 0:
        return []
    listed = []
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda each: each.num):
        name = thread.name or os.path.basename(gdb.current_progspace().filename or "") or "thread"
        listed.append({"id": tid_of(thread), "name": "%s (%d)" % (name, tid_of(thread))})
    return listed


@request
def stopped():
    """Forgets what belongs to the last stop, and returns the threads."""
    forget()
    # gdb updates its list of threads only when it is asked.
    contraflow.execute("thread find ^$")
    thread = gdb.selected_thread()
    tid = tid_of(thread) if thread else None
    answer = {"thread": tid, "threads": thread_list(), "points": points.known()}
    if thread is not None:
        answer["thrown"] = values.attempt(thrown)
    return answer


def thrown():
    """Returns the type of the C++ exception at the start of __cxa_throw; None elsewhere."""
    frame = gdb.newest_frame()
    if frame.name() != "__cxa_throw":
        return None
    symbol = contraflow.execute("info symbol %#x" % (int(frame.read_register("rsi")) & (1 << 64) - 1))
    found = re.match(r"typeinfo for (.*?)(?:@\S*)? in section", symbol)
    return found[1] if found else None


@request
def threads():
    return {"threads": thread_list()}


@request
def prepare(thread, line=False):
    """Prepares a resume of a thread, and returns gdb's number of it."""
    select(thread)
    if line:
        contraflow.contraflow_source_line.begin()
    return {"number": gdb.selected_thread().global_num}


@request
def is_running():
    return any(thread.is_running() for thread in gdb.selected_inferior().threads())


@request
def settled():
    contraflow.contraflow_source_line.end()
    return {}


@request
def seek(to):
    forget()
    return move_to(to)


def move_to(to):
    """Moves to a position. Keeps the client's frames and variables: some callers go back after it."""
    answer = contraflow.patiently("monitor seek " + to)
    if not re.search("^position ", answer, re.MULTILINE):
        raise gdb.GdbError(answer.strip())
    contraflow.seek.forget_the_old_place()
    contraflow.remember_addresses()
    return {"text": answer.strip()}


# Stack and scopes.


def source_of(symtab):
    if symtab is None:
        return None
    path = symtab.fullname()
    return {"name": os.path.basename(symtab.filename), "path": path}


def function_name(frame):
    name = frame.name()
    if name is None:
        return "%#x" % frame.pc()
    return name


def described(tid, frame, level):
    sal = frame.find_sal()
    shown = {
        "id": frames.add((tid, frame, level)),
        "name": function_name(frame),
        "line": sal.line if sal.symtab else 0,
        "column": 1 if sal.symtab else 0,
        "instructionPointerReference": "%#x" % frame.pc(),
    }
    if frame.type() == gdb.SIGTRAMP_FRAME:
        shown.update(name="<signal handler called>", presentationHint="label")
        return shown
    source = source_of(sal.symtab)
    if source is not None and os.path.exists(source["path"]):
        shown["source"] = source
    elif source is not None:
        # Clients would open an empty file, and complain about the line.
        shown["name"] += " (%s:%d)" % (source["name"], sal.line)
        shown.update(line=0, column=0, presentationHint="subtle")
    else:
        shown["presentationHint"] = "subtle"
        library = gdb.solib_name(frame.pc())
        if library:
            shown["name"] += " (%s)" % os.path.basename(library)
    return shown


class Walk:
    """The frame at which the last page of a stack ended."""

    def __init__(self):
        self.tid, self.frame, self.level = None, None, 0

    def at(self, tid, level):
        if self.tid != tid or self.frame is None or self.level > level or not self.frame.is_valid():
            self.tid, self.frame, self.level = tid, gdb.newest_frame(), 0
        while self.level < level and self.frame is not None:
            self.frame = self.frame.older()
            self.level += 1
        return self.frame

    def next(self):
        self.frame = self.frame.older()
        self.level += 1
        return self.frame

    def forget(self):
        self.frame = None


walk = Walk()


@request
def stackTrace(threadId=0, startFrame=0, levels=0, **_):
    select(threadId)
    start, count = max(startFrame or 0, 0), min(levels or FRAMES_LIMIT, FRAMES_LIMIT)
    if start == 0:
        walk.forget()
    frame, shown = walk.at(threadId, start), []
    while frame is not None and len(shown) < count:
        if frame.pc() == 0 and start + len(shown) > 0:
            # The caller of the outermost frame of a call history.
            frame = None
            break
        shown.append(described(threadId, frame, start + len(shown)))
        frame = walk.next()
    total = start + len(shown)
    if frame is not None and frame.pc() != 0:
        # More than are shown: how many is not known before they are unwound.
        total += count
    return {"stackFrames": shown, "totalFrames": total}


@request
def scopes(frameId=0, **_):
    with Selected():
        frame = enter(frameId)
        shown = []

        def add(name, make, hint=None, expensive=False):
            container = Scope(frameId, make)
            scope = {"name": name, "expensive": expensive}
            if hint:
                scope["presentationHint"] = hint
            shown.append(dict(scope, variablesReference=values.containers.add(container)))

        if frame.find_sal().symtab is not None and frame.function() is not None:
            if any(symbol.is_argument for symbol in function_block(frame)):
                add("Arguments", lambda each: values.scope_variables(each, "arguments"), "arguments")
            add("Locals", lambda each: values.scope_variables(each, "locals"), "locals")
            add("Globals of the file", values.globals_of, "globals", True)
        add("Registers", values.register_groups, "registers", True)
        return {"scopes": shown}


@request
def function(frameId=0, **_):
    """Returns the line at which the function of a frame begins; none if it is not known."""
    with Selected():
        found = enter(frameId).function()
        return {"line": found.line if found is not None and found.line else None}


def function_block(frame):
    block = frame.block()
    while block.function is None and block.superblock is not None:
        block = block.superblock
    return block


class Scope:
    """The variables of a scope, made when they are first shown."""

    def __init__(self, frame_id, make):
        self.frame_id, self.make, self.made, self.expression = frame_id, make, None, None

    def page(self, start, count):
        if self.made is None:
            self.made = self.make(enter(self.frame_id))
        return self.made[start : start + count] if count else self.made[start:]


@request
def variables(variablesReference=0, start=0, count=0, **_):
    with Selected():
        container = values.containers.get(variablesReference, "variable")
        return {"variables": container.page(start or 0, count or 0)}


# Expressions and commands.


@request
def evaluate(expression="", frameId=None, context="watch", **_):
    if context == "repl":
        return command(expression, frameId)
    with Selected():
        if frameId is not None:
            enter(frameId)
        calls = gdb.parameter("may-call-functions")
        if context == "hover":
            gdb.execute("set may-call-functions off")
        try:
            return result(gdb.parse_and_eval(expression), expression)
        finally:
            if context == "hover":
                gdb.execute("set may-call-functions " + ("on" if calls else "off"))


def result(value, expression):
    shown = variable("", value, expression)
    answer = {"result": shown["value"], "variablesReference": shown["variablesReference"]}
    for key in ("type", "memoryReference", "indexedVariables", "namedVariables"):
        if key in shown:
            answer[key] = shown[key]
    return answer


# A variable alone, or with an operator that no argument of a command begins with.
OPERATION = re.compile(r"\w+(?:[^\w\s/(-].*|->.*|\s+(?:[-+*%<>&|^=!]=?|==|&&|\|\||<<|>>)\s+\S.*)?", re.DOTALL)


def is_expression(text):
    """Returns true if text is an expression that begins with a variable, which goes before commands
    of the same name."""
    word = re.match(r"[A-Za-z_]\w*", text)
    if word is None or not OPERATION.fullmatch(text):
        return False
    try:
        symbol, _ = gdb.lookup_symbol(word[0])
        here = gdb.selected_frame().find_sal().symtab
    except (gdb.error, RuntimeError):
        return False
    if symbol is None or symbol.type is None:
        return False
    # gdb also finds static variables of other files, such as `quit` of the C library.
    is_of_file = here is not None and symbol.symtab.filename == here.filename
    return symbol.needs_frame or is_of_file or gdb.lookup_global_symbol(word[0]) is not None


def is_command(text):
    word = re.match(r"[A-Za-z!][\w.-]*|!", text)
    if word is None:
        return text.startswith(("#", "|"))
    try:
        contraflow.execute("help " + word[0].split(".")[0])
        return True
    except gdb.error as error:
        return str(error).startswith("Ambiguous")


def command(text, frame_id):
    text = text.strip()
    forced = text.startswith(("`", "-exec "))
    if forced:
        text = re.sub(r"^(`|-exec )", "", text).strip()
    if not text:
        return {"result": "", "variablesReference": 0}
    with Selected():
        if frame_id is not None:
            enter(frame_id)
        if not forced and (is_expression(text) or not is_command(text)):
            return result(gdb.parse_and_eval(text), text)
        word = re.match(r"[\w-]*", text)[0]
        if word in REFUSED or (word in ("python", "py") and text == word):
            raise gdb.GdbError("`%s` cannot be used here: the debug adapter controls gdb" % word)
        return {"result": contraflow.execute(text).rstrip("\n"), "variablesReference": 0}


@request
def completions(text="", column=1, frameId=None, **_):
    text = text[: max(column - 1, 0)]
    with Selected():
        if frameId is not None:
            enter(frameId)
        prefix = "" if is_command(text) and not is_expression(text) else "print "
        lines = contraflow.execute("complete " + prefix + text).splitlines()
    word = re.search(r"[\w$:~-]*$", text)[0]
    start = len(text) - len(word)
    targets = []
    for line in lines:
        line = line[len(prefix) :]
        if line.startswith(text[:start]) and "max-completions" not in line:
            targets.append({"label": line[start:], "start": start, "length": len(word)})
    return {"targets": targets}


@request
def setVariable(variablesReference=0, name="", value="", **_):
    with Selected():
        container = values.containers.get(variablesReference, "variable")
        if isinstance(container, Scope):
            enter(container.frame_id)
        children = container.page(0, 0)
        expression = next((each.get("evaluateName") for each in children if each["name"] == name), None)
        if expression is None:
            raise gdb.GdbError("%s cannot be set: it has no place in memory" % name)
        return assign(expression, value)


@request
def setExpression(expression="", value="", frameId=None, **_):
    with Selected():
        if frameId is not None:
            enter(frameId)
        return assign(expression, value)


def assign(expression, text):
    gdb.parse_and_eval("(%s) = (%s)" % (expression, text))
    for container in values.containers.items.values():
        if isinstance(container, Scope):
            container.made = None
    answer = result(gdb.parse_and_eval(expression), expression)
    answer["value"] = answer.pop("result")
    return answer


# Memory and code.


def address(reference, offset=0):
    try:
        return (int(reference, 0) + (offset or 0)) & (1 << 64) - 1
    except ValueError:
        raise gdb.GdbError("%s is not an address" % reference)


def readable(start, count):
    """Returns the bytes at an address, up to the first that is not known."""
    inferior, data = gdb.selected_inferior(), b""
    while len(data) < count:
        at = start + len(data)
        size = min(count - len(data), 0x1000 - at % 0x1000)
        try:
            data += bytes(inferior.read_memory(at, size))
        except gdb.error:
            return data + few(inferior, at, size)
    return data


def few(inferior, at, size):
    """Returns the first bytes of a page, which is not known as a whole."""
    data = b""
    while size > 0:
        part = (size + 1) // 2
        try:
            data += bytes(inferior.read_memory(at + len(data), part))
            size -= part
        except gdb.error:
            # The first unknown byte is among these.
            size = part if part < size else part - 1
    return data


@request
def readMemory(memoryReference="", offset=0, count=0, **_):
    at = address(memoryReference, offset)
    if not 0 <= count <= READ_LIMIT_BYTES:
        raise gdb.GdbError("at most %d bytes are read at once" % READ_LIMIT_BYTES)
    data = readable(at, count)
    answer = {"address": "%#x" % at}
    if data:
        answer["data"] = base64.b64encode(data).decode()
    if len(data) < count:
        answer["unreadableBytes"] = count - len(data)
    return answer


def start_of(pc):
    """Returns the start of the function around an address; None if it is not known."""
    start = contraflow.function_start(pc)
    return start if 0 < start <= pc else None


class Code:
    """Instructions around an address."""

    def __init__(self, wants_symbols):
        self.architecture = gdb.selected_inferior().architecture()
        self.wants_symbols, self.last = wants_symbols, None

    def forward(self, at, count):
        """Returns up to so many instructions from an address on."""
        found = []
        while len(found) < count:
            step = min(count - len(found), 500)
            try:
                more = self.architecture.disassemble(at, count=step)
            except gdb.error:
                more = self.one_by_one(at, step)
            found += more
            if len(more) < step:
                break
            at = more[-1]["addr"] + more[-1]["length"]
        return found

    def one_by_one(self, at, count):
        found = []
        while len(found) < count:
            try:
                found += self.architecture.disassemble(at, count=1)
            except gdb.error:
                break
            at = found[-1]["addr"] + found[-1]["length"]
        return found

    def backward(self, end, count):
        """Returns up to so many instructions before an address: x86 code can only be read from a
        known start on, so it is read function by function."""
        found = []
        while len(found) < count:
            start = start_of(end - 1)
            if start is None:
                break
            try:
                part = self.architecture.disassemble(start, end - 1)
            except gdb.error:
                break
            if not part or part[-1]["addr"] + part[-1]["length"] != end:
                # Data, or a start that is none.
                break
            found, end = part + found, start
        return found[-count:] if count else []

    def shown(self, insn):
        at, size = insn["addr"], insn["length"]
        shown = {"address": "%#x" % at, "instruction": insn["asm"].replace("\t", " ")}
        code = readable(at, size)
        if len(code) == size:
            shown["instructionBytes"] = code.hex(" ")
        if self.wants_symbols and start_of(at) == at:
            symbol = contraflow.execute("info symbol %#x" % at).partition(" in section")[0]
            shown["symbol"] = symbol
        line = gdb.find_pc_line(at)
        if line.symtab is not None and (line.symtab.fullname(), line.line) != self.last:
            self.last = line.symtab.fullname(), line.line
            shown.update(location=source_of(line.symtab), line=line.line)
        return shown


def no_code(at):
    return {"address": "%#x" % at, "instruction": "??", "presentationHint": "invalid"}


@request
def disassemble(memoryReference="", offset=0, instructionOffset=0, instructionCount=0, resolveSymbols=False, **_):
    at, first, count = address(memoryReference, offset), instructionOffset or 0, instructionCount
    if not 0 <= count <= INSTRUCTIONS_LIMIT or abs(first) > INSTRUCTIONS_LIMIT:
        raise gdb.GdbError("at most %d instructions are shown at once" % INSTRUCTIONS_LIMIT)
    code, shown = Code(resolveSymbols), []
    if first < 0:
        before = code.backward(at, -first)
        missing = -first - len(before)
        start = before[0]["addr"] if before else at
        shown = [no_code(max(start - n, 0)) for n in range(missing, 0, -1)]
        shown += [code.shown(insn) for insn in before]
    ahead = max(first + count, 0)
    skipped = max(first, 0)
    after = code.forward(at, ahead)
    end = after[-1]["addr"] + after[-1]["length"] if after else at
    shown += [code.shown(insn) for insn in after[skipped:]]
    shown = shown[:count]
    end += max(skipped - len(after), 0)
    while len(shown) < count:
        shown.append(no_code(end & (1 << 64) - 1))
        end += 1
    return {"instructions": shown}


@request
def modules(startModule=0, moduleCount=0, **_):
    listed = []
    for objfile in gdb.objfiles():
        path = objfile.username
        if not path or objfile.owner is not None:
            continue
        sysroot = gdb.parameter("sysroot").rstrip("/")
        shown = path[len(sysroot) :] if sysroot and path.startswith(sysroot + "/") else path
        listed.append({"id": path, "name": os.path.basename(shown), "path": shown})
    total = len(listed)
    end = startModule + moduleCount if moduleCount else total
    return {"modules": listed[startModule:end], "totalModules": total}


@request
def exceptionInfo(**_):
    details = {}
    for name, expression in (("signal", "$_siginfo.si_signo"), ("code", "$_siginfo.si_code"), ("address", "$_siginfo._sifields._sigfault.si_addr")):
        value = values.attempt(lambda: gdb.parse_and_eval(expression))
        if isinstance(value, gdb.Value):
            details[name] = values.text_of(value)
    return details


# Breakpoints.


@request
def setBreakpoints(source=None, breakpoints=None, lines=None, **_):
    path = (source or {}).get("path")
    if not path:
        raise gdb.GdbError("a source without a path has no breakpoints")
    wanted = breakpoints if breakpoints is not None else [{"line": line} for line in lines or []]
    return points.lines(path, wanted)


@request
def setFunctionBreakpoints(breakpoints=(), **_):
    return points.functions(breakpoints)


@request
def setInstructionBreakpoints(breakpoints=(), **_):
    for each in breakpoints:
        each["address"] = address(each.get("instructionReference", ""), each.get("offset"))
    return points.instructions(breakpoints)


@request
def setDataBreakpoints(breakpoints=(), **_):
    return points.data(breakpoints)


@request
def setExceptionBreakpoints(filters=(), filterOptions=(), **_):
    options = {each.get("filterId"): each.get("condition") for each in filterOptions or ()}
    return points.exceptions(dict({name: None for name in filters}, **options))


@request
def dataBreakpointInfo(name="", variablesReference=None, frameId=None, bytes=None, asAddress=False, **_):
    with Selected():
        if asAddress:
            return points.of_memory(address(name), bytes or 1)
        if variablesReference:
            container = values.containers.get(variablesReference, "variable")
            if isinstance(container, Scope):
                enter(container.frame_id)
            child = next((each for each in container.page(0, 0) if each["name"] == name), {})
            name = child.get("evaluateName") or name
        elif frameId is not None:
            enter(frameId)
        return points.of_value(values.attempt(lambda: gdb.parse_and_eval(name)), name)


@request
def go(path="", line=0, back=False):
    """Runs to a line, in one direction, whatever breakpoints are on the way."""
    gdb.newest_frame().select()
    before = position()
    with points.only(source=path, line=line) as target:
        contraflow.execute("reverse-continue" if back else "continue")
        places = [each.address for each in target.locations]
        arrived = gdb.newest_frame().pc() in places and position() != before
    if not arrived:
        move_to(before)
        raise gdb.GdbError("line %d does not run %s here" % (line, "before" if back else "after"))
    return {}


@request
def restart_frame(frame=0):
    """Goes back to the beginning of the function of a frame."""
    function = enter(frame)
    start = contraflow.function_start(function.pc())
    if function.older() is None or not start:
        raise gdb.GdbError("the call of this function is not known")
    contraflow.execute("reverse-finish")
    with points.only("*%#x" % start):
        contraflow.execute("continue")
    return {}


@request
def mark(command="mark", name=""):
    answer = contraflow.patiently("monitor %s %s" % (command, name)).strip()
    if not answer.startswith("mark "):
        raise gdb.GdbError(answer)
    return {"text": answer}


# Moves that the protocol does not have.


def where():
    """Describes the current place."""
    frame = gdb.newest_frame()
    sal = frame.find_sal()
    place = {"function": function_name(frame), "address": "%#x" % frame.pc()}
    if sal.symtab is not None:
        place.update(source=source_of(sal.symtab), line=sal.line)
    return place


def position():
    text = contraflow.patiently("monitor when")
    found = re.search(r"^position (\S+) of ([\d.]+)", text, re.MULTILINE)
    if found is None:
        raise gdb.GdbError(text.strip())
    at, end = ([int(part) for part in number.split(".")] for number in found.groups())
    # The end may be some instructions after the last number that a seek takes.
    return found[1] if at < end else "end"


@request
def visit(positions=(), expressions=()):
    """Returns the values of expressions at positions."""
    here, shown = position(), []
    try:
        for each in positions:
            move_to(each)
            shown.append([evaluated(text) for text in expressions])
    finally:
        move_to(here)
    return {"values": shown}


def evaluated(text):
    """Returns an expression's value as text. At the first instruction of a function, gdb may be in one
    that is inlined there, and does not know the function's arguments: they are looked for around it."""
    value = values.attempt(lambda: gdb.parse_and_eval(text))
    frame = gdb.newest_frame()
    while not isinstance(value, gdb.Value) and frame is not None and frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
        frame.select()
        value = values.attempt(lambda: gdb.parse_and_eval(text))
    gdb.newest_frame().select()
    return values.text_of(value) if isinstance(value, gdb.Value) else value


# The types of the values whose writers were asked for, by their addresses and sizes.
types = {}


@request
def writers(address=None, size=0, expression=None, frameId=None, start=None, limit=1):
    """Returns the last changes of memory before here, or before `start`, latest first."""
    here, found = position(), []
    if expression is not None:
        at, type = place_of(expression, frameId)
        size = type.sizeof
        types[at, size] = type
    else:
        at = int(address, 0)
        type = types.get((at, size))
    place = {"memoryReference": hex(at), "bytes": size}
    try:
        if start is not None:
            move_to(start)
        for _ in range(limit):
            after = content(at, size, type)
            answer = contraflow.patiently("monitor last %#x %d" % (at, size))
            if not answer.startswith("position"):
                return dict(place, writers=found, end=answer.strip())
            contraflow.seek.forget_the_old_place()
            thread = gdb.selected_thread()
            change = {"position": position(), "thread": tid_of(thread), "before": content(at, size, type), "after": after}
            found.append(dict(change, **where()))
    finally:
        move_to(here)
    return dict(place, writers=found, end=None)


def place_of(expression, frame_id):
    """Returns the address of a value in a frame, and its type."""
    with Selected():
        if frame_id is not None:
            enter(frame_id)
        value = gdb.parse_and_eval(expression)
        if value.is_optimized_out or value.address is None:
            raise gdb.GdbError("%s is in a register or optimized out: it has no place in memory" % expression)
        return int(value.address), value.type


def content(at, size, type):
    """Returns memory as a value of a type, or as bytes."""
    data = readable(at, size)
    if type is None or len(data) < size:
        return data.hex(" ") if len(data) == size else values.UNAVAILABLE
    value = values.attempt(lambda: gdb.Value(data, type))
    return values.text_of(value) if isinstance(value, gdb.Value) else value


Contraflow()
