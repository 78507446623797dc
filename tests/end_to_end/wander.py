"""Run by gdb: executes the commands of the file COMMANDS and writes to OUT where each leads to:
the address, the line, and the functions on the stack with the addresses that they are at.

A walk stays between `main` and the end of what was recorded, as gdb's own recording begins at
`main`. Forward commands are left out at the end, where a live program would run on."""
import os
import re

import gdb

FORWARD = ("step", "next", "finish", "stepi", "nexti", "until", "continue", "advance")
FULL = gdb.selected_inferior().connection.type == "native"


def run(command):
    return gdb.execute(command, to_string=True)


def position():
    here, end = re.match(r"position (\d+) of (\d+)", run("monitor when")).groups()
    return int(here), int(end)


def at_end():
    if FULL:
        return "Replay mode" not in run("info record")
    here, end = position()
    return here == end


def where():
    frame = gdb.newest_frame()
    text = "%x line %s" % (frame.pc(), frame.find_sal().line)
    while frame is not None:
        text += " %x:%s" % (frame.pc(), frame.name())
        frame = frame.older()
    return text


def walk(commands, out, begin):
    for command in commands:
        if not command or command.split()[0] in FORWARD and at_end():
            continue
        try:
            run(command)
        except gdb.error as error:
            out.write("error: %s\n" % re.sub("0x[0-9a-f]+", "ADDR", str(error)))
        if begin is not None and position()[0] < begin:
            run("cf-seek %d" % begin)
        out.write("%s -> %s\n" % (command, where()))


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
    walk(commands.read().split("\n"), out, begin)
