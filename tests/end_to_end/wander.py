"""Run by gdb: executes the commands of the file COMMANDS and writes to OUT where each leads to:
the address, the line, and the functions on the stack with the addresses that they are at.

A walk stays between `main` and the end of what was recorded, as gdb's own recording begins at
`main`. Forward commands are left out at the end, where a live program would run on."""
import os
import re

import gdb

# Commands that print values; those of addresses on the stack depend on the environment.
PRINTING = ("print", "x/", "info registers", "finish")
STACK = re.compile(r"0x7ff[0-9a-f]{9}\b|\b1407[0-9]{11}\b")
FORWARD = ("step", "next", "finish", "stepi", "nexti", "until", "continue", "advance")
VALUES = "VALUES" in os.environ
FULL = gdb.selected_inferior().connection.type == "native"


# The address of the fault that ended an exact recording.
fault = None


def run(command):
    return gdb.execute(command, to_string=True)


def position():
    places = re.match(r"position ([0-9.]+) of ([0-9.]+)", run("monitor when")).groups()
    here, end = ([int(part) for part in place.split(".")] for place in places)
    return here, end


def at_end():
    if FULL:
        return "Replay mode" not in run("info record")
    here, end = position()
    # In an exact recording, the fatal signal comes between the last instruction and the end.
    faults = fault is not None and here[0] + 1 == end[0] and gdb.newest_frame().pc() == fault
    return here == end or faults


def where():
    frame = gdb.newest_frame()
    text = "%x line %s" % (frame.pc(), frame.find_sal().line)
    while frame is not None:
        text += " %x:%s" % (frame.pc(), frame.name())
        frame = frame.older()
    return text


def values():
    """The arguments and variables of the function, without addresses, which depend on the
    environment."""
    frame = gdb.newest_frame()
    try:
        block = frame.block()
    except RuntimeError:
        return ""
    text = []
    while block is not None:
        for symbol in block:
            if symbol.is_argument or symbol.is_variable and symbol.needs_frame:
                value = symbol.value(frame).format_string(symbols=False)
                text.append("%s=%s" % (symbol.name, re.sub("0x[0-9a-f]+", "ADDR", value)))
        if block.function is not None:
            break
        block = block.superblock
    return " ".join(text)


def printed(command, said):
    """What a command printed, without what depends on the environment."""
    lines = said.strip().split("\n")
    if not command.startswith(("print", "x/", "info")):
        lines = [line for line in lines if line.startswith("Value returned")]
    lines = (re.sub(r"^(Value returned is )?\$\d+ = ", "", line) for line in lines)
    return "; ".join(" ".join(STACK.sub("STACK", line).split()) for line in lines)


def walk(commands, out, begin):
    for command in commands:
        if not command or command.split()[0] in FORWARD and at_end():
            continue
        said = ""
        try:
            said = run(command)
        except gdb.error as error:
            out.write("error: %s\n" % re.sub("0x[0-9a-f]+", "ADDR", str(error)))
        if begin is not None and position()[0] < begin:
            run("cf-seek " + ".".join(str(part) for part in begin))
        out.write("%s -> %s\n" % (command, where()))
        if VALUES:
            out.write("  %s\n" % values())
        if VALUES and command.startswith(PRINTING):
            out.write("  %s\n" % printed(command, said))


with open(os.environ["COMMANDS"]) as commands, open(os.environ["OUT"], "w") as out:
    begin = None
    if not FULL:
        if at_end():
            run("cf-seek begin")
        run("tbreak *main")
        run("continue")
        begin = position()[0]
    run("delete")
    if FULL:
        run("record full")
        run("continue")
    elif os.environ.get("LIVE"):
        run("continue")
    else:
        run("cf-seek end")
        if ", exact," in run("monitor when"):
            fault = gdb.newest_frame().pc()
    walk(commands.read().split("\n"), out, begin)
