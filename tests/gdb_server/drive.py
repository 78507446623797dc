"""Run by gdb: executes the commands of the file COMMANDS and writes to OUT where each leads to.
Forward commands are left out at the end of the history, where a live program would run on."""
import os
import gdb

FORWARD = ("step", "next", "finish", "stepi", "nexti", "until", "continue")


def where():
    frame = gdb.newest_frame()
    return "%x %s" % (frame.pc(), frame.name())


def at_end():
    if gdb.selected_inferior().connection.type == "remote":
        words = gdb.execute("monitor when", to_string=True).replace(",", "").split()
        return words[1] == words[3]
    return "Replay mode" not in gdb.execute("info record", to_string=True)


with open(os.environ["COMMANDS"]) as commands, open(os.environ["OUT"], "w") as out:
    for command in commands.read().split("\n"):
        if not command or command in FORWARD and at_end():
            continue
        try:
            gdb.execute(command, to_string=True)
        except gdb.error as error:
            out.write("error: %s\n" % error)
        out.write("%s -> %s\n" % (command, where()))
