"""Values as variables of the Debug Adapter Protocol, for contraflow's debug adapter.

A variable with children has a reference: a number for a container, which is kept until the program
moves. Unknown values are shown as <unavailable>; nothing is made up.
"""

import itertools
import re

import gdb

TEXT_LIMIT = 1000
ELEMENTS_LIMIT = 64
# The most children of one answer, if the client does not ask for a page.
CHILDREN_LIMIT = 500
# Placeholders of contraflow.py for addresses of frames in the past.
STAND_IN = re.compile(r"0x(?:3bad|bbad)[0-9a-f]{8}\b")
UNREADABLE = re.compile(r"<error: Cannot access memory at address 0x(?:3bad|bbad)[0-9a-f]{8}>")
# The printers of the C++ library say how many elements there are.
LENGTH = re.compile(r"\bof length (\d+)|\bwith (\d+) elements?|\bof size (\d+)")
PLAIN = (
    gdb.TYPE_CODE_INT,
    gdb.TYPE_CODE_CHAR,
    gdb.TYPE_CODE_BOOL,
    gdb.TYPE_CODE_ENUM,
    gdb.TYPE_CODE_FLT,
)
POINTERS = (gdb.TYPE_CODE_PTR,)
REFERENCES = (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF)
RECORDS = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
UNAVAILABLE = "<unavailable>"


def kind_of(value):
    return value.type.strip_typedefs().code


def reason(error):
    """Returns an error as text for the user."""
    text = str(error)
    if STAND_IN.search(text) or "not available" in text or "unavailable" in text:
        return UNAVAILABLE
    return "<%s>" % text


def text_of(value):
    """Returns a value as one line of text."""
    try:
        if value.is_optimized_out:
            return "<optimized out>"
        text = value.format_string(max_elements=ELEMENTS_LIMIT, max_depth=3, pretty_structs=False)
    except (gdb.error, RuntimeError, ValueError) as error:
        return reason(error)
    except Exception as error:
        # A printer of the program may fail in any way, as on memory that is not initialized.
        return "<%s: %s>" % (type(error).__name__, error)
    text = STAND_IN.sub("?", UNREADABLE.sub(UNAVAILABLE, text)).replace("\n", " ")
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."


def address_of(value):
    """Returns the address of a value, or that which a pointer has; None if there is none."""
    try:
        address = int(value) if kind_of(value) in POINTERS else value.address
        address = None if address is None else int(address)
    except (gdb.error, RuntimeError):
        return None
    return None if address is None or STAND_IN.search("%#x" % address) else address


def named(type_):
    """Returns a type's name if an expression may contain it."""
    name = str(type_)
    return name if "{" not in name and "(*" not in name else None


def true_type(value):
    """Returns an object as what its virtual table says."""
    try:
        if kind_of(value) in RECORDS + REFERENCES + POINTERS and value.dynamic_type != value.type:
            return value.cast(value.dynamic_type)
    except (gdb.error, RuntimeError):
        pass
    return value


class References:
    """The containers that the client knows by number. Numbers are not used again."""

    def __init__(self):
        self.items, self.last = {}, 0

    def add(self, item):
        self.last += 1
        self.items[self.last] = item
        return self.last

    def get(self, number, what):
        if number not in self.items:
            raise gdb.GdbError("this %s is of an earlier stop: ask again" % what)
        return self.items[number]

    def forget(self):
        self.items.clear()


containers = References()


class Children:
    """Children that are made one after the other; the place of the last page is kept."""

    def __init__(self, make):
        self.make, self.iterator, self.at = make, None, 0

    def page(self, start, count):
        if self.iterator is None or start < self.at:
            self.iterator, self.at = iter(self.make()), 0
        skipped = start - self.at
        page = list(itertools.islice(self.iterator, skipped, skipped + count))
        self.at = start + len(page)
        return page


class Container:
    """What has children: pairs of a name and a value, each with an expression or None."""

    def __init__(self, children, expression=None):
        self.children, self.expression = Children(children), expression

    def page(self, start, count):
        if count:
            return [variable(*child) for child in self.children.page(start, count)]
        children = self.children.page(start, CHILDREN_LIMIT + 1)
        shown = [variable(*child) for child in children[:CHILDREN_LIMIT]]
        if len(children) > CHILDREN_LIMIT:
            rest = Rest(self, start + CHILDREN_LIMIT)
            more = {"name": "[more]", "value": "from %d on" % rest.start, "presentationHint": {"kind": "virtual"}}
            shown.append(dict(more, variablesReference=containers.add(rest)))
        return shown


class Rest:
    """The children of a container from a place on."""

    def __init__(self, container, start):
        self.container, self.start, self.expression = container, start, None

    def page(self, start, count):
        return self.container.page(self.start + start, count)


class Listed:
    """A container whose variables are made already."""

    def __init__(self, variables):
        self.variables, self.expression = variables, None

    def page(self, start, count):
        made = self.variables() if callable(self.variables) else self.variables
        return made[start : start + count] if count else made[start:]


def field(expression, name):
    return "(%s).%s" % (expression, name) if expression else None


class Language:
    """Lets gdb read expressions in one language, whatever that of the selected frame is."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.before = gdb.parameter("language")
        gdb.execute("set language " + self.name, to_string=True)

    def __exit__(self, *_):
        gdb.execute("set language " + self.before, to_string=True)


def is_read(expression):
    """Returns False if gdb does not read an expression: of Rust, members of some enumerations."""
    if gdb.current_language() != "rust":
        return True
    return isinstance(attempt(lambda: gdb.parse_and_eval(expression)), gdb.Value)


def located(value, expression):
    """Returns an expression for a value: the given one, or one of its address."""
    if expression is None and value.address is not None:
        address, name = address_of_object(value), named(value.type)
        if address is not None and name is not None:
            return "*(%s *)%#x" % (name, address)
    return expression


def address_of_object(value):
    try:
        address = int(value.address)
    except (gdb.error, RuntimeError, TypeError):
        return None
    return None if STAND_IN.search("%#x" % address) else address


def fields(value, expression):
    """Returns the children of a structure or union."""
    for each in value.type.strip_typedefs().fields():
        if not hasattr(each, "bitpos"):
            # A static member is elsewhere.
            name, child = each.name, attempt(lambda: value[each])
            yield name or "<static>", child, None
            continue
        child = attempt(lambda: value[each])
        if each.is_base_class:
            yield "<%s>" % each.name, Base(child), None
        elif each.name:
            yield each.name, child, field(expression, each.name)
        elif isinstance(child, gdb.Value) and kind_of(child) in RECORDS:
            # An anonymous structure: its members are used like those around it.
            yield from fields(child, expression)


class Base:
    """The part of an object that is of a base class: it is not shown as the whole object again."""

    def __init__(self, value):
        self.value = value


def elements(value, expression):
    low, high = value.type.strip_typedefs().range()
    for index in range(low, high + 1):
        name = "[%d]" % index
        yield name, attempt(lambda: value[index]), "(%s)%s" % (expression, name) if expression else None


def attempt(read):
    """Returns a value, or the reason why there is none as text."""
    try:
        return read()
    except (gdb.error, RuntimeError) as error:
        return reason(error)


def printed(printer, hint):
    """Returns the children of a printer; those of a map alternate between keys and values."""
    children = printer.children()
    if hint != "map":
        for name, child in children:
            yield str(name), child, None
        return
    children = iter(children)
    for (_, key), (_, child) in zip(children, children):
        yield Key(key), child, None


class Key:
    """The name of a value in a map: it is made only for those that are shown."""

    def __init__(self, key):
        self.key = key

    def __str__(self):
        return "[%s]" % (text_of(self.key) if isinstance(self.key, gdb.Value) else self.key)


def is_sequence(printer):
    hint = getattr(printer, "display_hint", lambda: None)()
    return hint in ("array", "map")


def variable(name, value, expression=None, hint=None):
    """Returns a variable of the protocol. A string instead of a value is shown as it is."""
    shown = {"name": str(name), "variablesReference": 0}
    is_base = isinstance(value, Base)
    value = value.value if is_base else value
    if hint:
        shown["presentationHint"] = hint
    if not isinstance(value, gdb.Value):
        shown["value"] = str(value)
        return shown
    shown["type"] = str(value.type)
    known = value if is_base else true_type(value)
    if known.type != value.type:
        # Members of the true type need a cast.
        expression = None if kind_of(known) in RECORDS else expression
    printer = attempt(lambda: gdb.default_visualizer(known))
    kind = kind_of(known)
    if kind in REFERENCES and printer is None:
        known = attempt(known.referenced_value)
        if not isinstance(known, gdb.Value):
            shown["value"] = known
            return shown
        known = true_type(known)
        printer, kind = attempt(lambda: gdb.default_visualizer(known)), kind_of(known)
    expression = located(known, expression)
    if expression and not is_read(expression):
        expression = None
    shown["value"] = text_of(known)
    if expression:
        shown["evaluateName"] = expression
    address = address_of(known)
    if address is not None:
        shown["memoryReference"] = "%#x" % address
    if shown["value"] not in (UNAVAILABLE, "<optimized out>"):
        inside = expression if known.type == value.type or kind not in POINTERS else None
        describe_children(shown, known, kind, printer, inside)
    return shown


def describe_children(shown, value, kind, printer, expression):
    children = None
    if printer is not None and not isinstance(printer, str):
        if hasattr(printer, "children"):
            hint = getattr(printer, "display_hint", lambda: None)()
            children = lambda: printed(printer, hint)
            length = LENGTH.search(shown["value"])
            if length and is_sequence(printer):
                shown["indexedVariables"] = int(next(filter(None, length.groups()), 0))
                if not shown["indexedVariables"]:
                    return
    elif kind in RECORDS:
        if value.type.strip_typedefs().fields():
            children = lambda: fields(value, expression)
    elif kind == gdb.TYPE_CODE_ARRAY:
        low, high = value.type.strip_typedefs().range()
        if high >= low:
            shown["indexedVariables"] = high - low + 1
            children = lambda: elements(value, expression)
    elif kind in POINTERS:
        children = behind(value, expression)
    if children is not None:
        shown["variablesReference"] = containers.add(Container(children, expression))


def behind(pointer, expression):
    """Returns the children of a pointer: the fields of a structure, or the value itself."""
    target = pointer.type.strip_typedefs().target().strip_typedefs()
    if target.code in (gdb.TYPE_CODE_VOID, gdb.TYPE_CODE_FUNC):
        return None
    if address_of(pointer) in (None, 0):
        return None
    value = attempt(pointer.dereference)
    inside = "*(%s)" % expression if expression else None
    if isinstance(value, gdb.Value):
        inside = located(value, inside)
    if isinstance(value, gdb.Value) and target.code in RECORDS:
        if attempt(lambda: gdb.default_visualizer(value)) is None and attempt(lambda: value.fetch_lazy()) is None:
            return lambda: fields(value, inside)
    return lambda: iter([("*", value, inside)])


def scope_variables(frame, block_kind):
    """Returns the arguments or locals of a frame, those of inner blocks first."""
    try:
        block = frame.block()
    except RuntimeError:
        return []
    shown, seen = [], {}
    while block is not None:
        for symbol in block:
            if symbol.is_argument == (block_kind == "arguments") and (symbol.is_variable or symbol.is_argument):
                name = symbol.name
                if not name:
                    continue
                value = attempt(lambda: frame.read_var(symbol, block))
                hidden = name in seen
                label = "%s@%d" % (name, symbol.line) if hidden else name
                seen[name] = True
                shown.append(variable(label, value, None if hidden else name))
        if block.function is not None:
            break
        block = block.superblock
    return shown


def globals_of(frame):
    """Returns the global and static variables of a frame's file."""
    symtab = frame.find_sal().symtab
    if symtab is None:
        return []
    shown = {}
    for block in (symtab.static_block(), symtab.global_block()):
        for symbol in block:
            if symbol.is_variable and symbol.name and symbol.symtab.filename == symtab.filename:
                name = symbol.name
                shown.setdefault(name, attempt(lambda: symbol.value(frame) if symbol.needs_frame else symbol.value()))
    return [variable(name, value, name) for name, value in sorted(shown.items())]


def registers(frame, group):
    names = [each.name for each in frame.architecture().registers(group)]
    return [register(frame, name) for name in names]


def register(frame, name):
    value = attempt(lambda: frame.read_register(name))
    shown = variable(name, value, "$" + name)
    if isinstance(value, gdb.Value) and kind_of(value) in (gdb.TYPE_CODE_INT,) and shown["value"] != UNAVAILABLE:
        shown["value"] = attempt(lambda: value.format_string(format="x"))
    shown.pop("memoryReference", None)
    return shown


def register_groups(frame):
    """Returns the general registers, and the others as containers."""
    shown = registers(frame, "general")
    for group, title in (("float", "floating point"), ("vector", "vector"), ("system", "system")):
        container = Listed(lambda group=group: registers(frame, group))
        shown.append({"name": title, "value": "", "variablesReference": containers.add(container)})
    return shown
