"""The breakpoints of contraflow's debug adapter: by line, function, instruction, data and exception.

A client sends all breakpoints of a kind at once. Those that it had before are kept, with their
counts of hits; the others are deleted.
"""

import json
import re

import gdb

import contraflow_values as values

# Begins a line on gdb's console that is an event for the adapter.
EVENT = "contraflow-event "
# Signals that end a program which does not handle them, and say that it is wrong.
FATAL_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS")
# The functions through which exceptions and panics go. gdb's own catchpoints, at probes in the C++
# library, make gdb 13 crash when the library is unloaded backwards.
# The module of rust_panic differs between versions of Rust.
EXCEPTIONS = {
    "throw": "-qualified __cxa_throw",
    "catch": "-qualified __cxa_begin_catch",
    "panic": "-function rust_panic",
}
LARGEST_WATCH_BYTES = 1 << 16
HIT_CONDITION = re.compile(r"\s*(==?|>=?|<=?|!=|%)?\s*(\d+)\s*")
OPERATORS = {
    ">": lambda hits, count: hits > count,
    ">=": lambda hits, count: hits >= count,
    "<": lambda hits, count: hits < count,
    "<=": lambda hits, count: hits <= count,
    "!=": lambda hits, count: hits != count,
    "%": lambda hits, count: count > 0 and hits % count == 0,
}
ACCESS = {"read": gdb.WP_READ, "write": gdb.WP_WRITE, "readWrite": gdb.WP_ACCESS}


def notify(kind, **body):
    gdb.write(EVENT + json.dumps(dict(body, event=kind)) + "\n")


def hits_wanted(text):
    """Returns a test of a count of hits: 5 is the fifth hit, >3 all after the third, %2 every
    second one."""
    found = HIT_CONDITION.fullmatch(text)
    if found is None:
        raise gdb.GdbError("a hit condition is a number, or >, >=, <, <=, !=, %% and a number: %s" % text)
    count = int(found[2])
    test = OPERATORS.get(found[1] or "=", lambda hits, count: hits == count)
    return lambda hits: test(hits, count)


class Point(gdb.Breakpoint):
    """A breakpoint that may count its hits or write a message instead of stopping."""

    wanted, message, hits = None, None, 0

    def stop(self):
        self.hits += 1
        if self.wanted is not None and not self.wanted(self.hits):
            return False
        if self.message is None:
            return True
        frame = gdb.selected_frame()
        sal = frame.find_sal()
        place = {"path": sal.symtab.fullname(), "line": sal.line} if sal.symtab else {}
        notify("log", text=logged(self.message), **place)
        return False


def logged(message):
    """Returns a message with the values of the expressions in braces."""

    def value(match):
        shown = values.attempt(lambda: gdb.parse_and_eval(match[1]))
        return values.text_of(shown) if isinstance(shown, gdb.Value) else shown

    return re.sub(r"\{([^{}]*)\}", value, message)


class Unset:
    """A breakpoint that could not be set."""

    def __init__(self, why):
        self.why = why

    def delete(self):
        pass


def described(point):
    """Returns what the client learns of a breakpoint."""
    if isinstance(point, Unset):
        return {"verified": False, "message": point.why}
    shown = {"id": point.number, "verified": not point.pending}
    if point.pending:
        shown["message"] = "no code is known there yet"
        return shown
    if point.type not in (gdb.BP_BREAKPOINT, gdb.BP_HARDWARE_BREAKPOINT):
        return shown
    places = point.locations
    if places:
        source = places[0].source
        if source is not None and places[0].fullname:
            shown["line"] = source[1]
            shown["source"] = {"path": places[0].fullname}
        shown["instructionReference"] = "%#x" % places[0].address
    if len(places) > 1:
        shown["message"] = "%d places" % len(places)
    return shown


class Points:
    """All breakpoints of the client, by what they are for."""

    def __init__(self):
        # For each kind, and each file: what the client asked for, and the breakpoint.
        self.sets = {}
        # What the client calls watched memory, by its expression.
        self.titles = {}

    def replace(self, group, wanted):
        """Sets the breakpoints of a group: pairs of a key and a function that sets one."""
        before, after, shown = self.sets.pop(group, []), [], []
        for key, make in wanted:
            kept = next((pair for pair in before if pair[0] == key), None)
            if kept is not None and (isinstance(kept[1], Unset) or not kept[1].is_valid()):
                before.remove(kept)
                kept = None
            if kept is not None:
                before.remove(kept)
                after.append(kept)
            else:
                after.append((key, self.make(make)))
            shown.append(described(after[-1][1]))
        for _, point in before:
            if isinstance(point, Unset) or point.is_valid():
                point.delete()
        self.sets[group] = after
        return {"breakpoints": shown}

    def make(self, make):
        try:
            return make()
        except (gdb.error, gdb.GdbError, RuntimeError, ValueError, TypeError) as error:
            return Unset(values.reason(error).strip("<>"))

    def set(self, wanted, *place, **named):
        """Sets a breakpoint with the conditions that the client gave."""
        hits = wanted.get("hitCondition")
        test = hits_wanted(hits) if hits else None
        message = wanted.get("logMessage") or None
        # Without a method `stop`, the server checks the condition, and most hits cost no stop.
        point = (Point if test or message else gdb.Breakpoint)(*place, **named)
        try:
            if test or message:
                point.wanted, point.message = test, message
            if wanted.get("condition"):
                point.condition = wanted["condition"]
        except (gdb.error, RuntimeError):
            point.delete()
            raise
        return point

    def lines(self, path, wanted):
        def maker(each):
            return lambda: self.set(each, source=path, line=int(each.get("line") or 0))

        return self.replace(("lines", path), [(key(each), maker(each)) for each in wanted])

    def functions(self, wanted):
        def maker(each):
            return lambda: self.set(each, each.get("name", ""))

        return self.replace(("functions",), [(key(each), maker(each)) for each in wanted])

    def instructions(self, wanted):
        def maker(each):
            return lambda: self.set(each, "*%#x" % each["address"])

        return self.replace(("instructions",), [(key(each), maker(each)) for each in wanted])

    def data(self, wanted):
        return self.replace(("data",), [(key(each), lambda each=each: self.watch(each)) for each in wanted])

    def watch(self, wanted):
        access = ACCESS.get(wanted.get("accessType") or "write")
        if access is None:
            raise gdb.GdbError("an access type is read, write or readWrite")
        expression = wanted.get("dataId", "")
        contraflow_check()
        with values.Language("c"):
            return self.set(wanted, expression, gdb.BP_WATCHPOINT, access)

    def of_value(self, value, name):
        if not isinstance(value, gdb.Value):
            return {"dataId": None, "description": "%s has no value here" % name}
        value = values.true_type(value)
        if values.kind_of(value) in values.REFERENCES:
            value = value.referenced_value()
        at = values.address_of_object(value) if value.address is not None else None
        if at is None:
            return {"dataId": None, "description": "%s has no place in memory, or it is not known here" % name}
        size = value.type.sizeof
        if values.named(value.type) is None or values.kind_of(value) not in values.PLAIN + values.POINTERS:
            return self.of_memory(at, size, name)
        return self.info("*(%s *)%#x" % (value.type, at), "%s (%d bytes at %#x)" % (name, size, at), name)

    def of_memory(self, at, size, name=None):
        if not 0 < size <= LARGEST_WATCH_BYTES:
            return {"dataId": None, "description": "at most %d bytes are watched" % LARGEST_WATCH_BYTES}
        title = "%s (%d bytes at %#x)" % (name, size, at) if name else "%d bytes at %#x" % (size, at)
        return self.info("*(unsigned char (*)[%d])%#x" % (size, at), title, name)

    def info(self, data_id, title, name):
        self.titles[data_id] = name or title
        return {"dataId": data_id, "description": title, "accessTypes": list(ACCESS), "canPersist": False}

    def exceptions(self, filters):
        for signal in FATAL_SIGNALS:
            how = "stop print pass" if "signal" in filters else "nostop noprint pass"
            gdb.execute("handle %s %s" % (signal, how), to_string=True)

        wanted = []
        for name, condition in filters.items():
            if name in EXCEPTIONS:
                options = {"condition": condition}
                make = lambda name=name, options=options: self.set(options, EXCEPTIONS[name])
                wanted.append(((name, condition), make))
        self.replace(("exceptions",), wanted)
        return {}

    def known(self):
        """Returns the numbers of the client's breakpoints, by their kind."""
        kinds = {}
        for group, points in self.sets.items():
            for (key, *_), point in points:
                if not isinstance(point, Unset) and point.is_valid():
                    name = self.titles.get(point.location or point.expression, key)
                    kinds[str(point.number)] = [group[0], name]
        return kinds

    def only(self, *place, **named):
        return Only(place, named)


class Only:
    """One breakpoint for one move, during which all others are disabled."""

    def __init__(self, place, named):
        self.place, self.named = place, named

    def __enter__(self):
        self.others = [each for each in gdb.breakpoints() or () if each.enabled]
        self.target = gdb.Breakpoint(*self.place, internal=True, **self.named)
        self.target.silent = True
        if self.target.pending:
            self.target.delete()
            raise gdb.GdbError("no code is known there")
        for each in self.others:
            each.enabled = False
        return self.target

    def __exit__(self, *_):
        for each in self.others:
            if each.is_valid():
                each.enabled = True
        if self.target.is_valid():
            self.target.delete()


def key(wanted):
    names = ("line", "name", "address", "dataId", "accessType", "condition", "hitCondition", "logMessage")
    return tuple(wanted.get(name) for name in names)


def contraflow_check():
    """Fails where the server cannot watch."""
    gdb.execute("cf-check watch", to_string=True)
