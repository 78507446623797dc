"""Run by gdb on a test program: single-steps it from main to its end and writes the history down,
one instruction a line, with the memory and the registers of the final state.

Environment: HISTORY, the file to write; TURN, after how many instructions another thread gets its
turn (0: threads are not switched); LIMIT, the most instructions to step.
"""
import os
import signal

import gdb

out = open(os.environ["HISTORY"], "w")
turn = int(os.environ.get("TURN", "0"))
limit = int(os.environ.get("LIMIT", "200000"))
kinds = {}


def quiet(command):
    return gdb.execute(command, to_string=True)


def kind(pc):
    if pc not in kinds:
        arch = gdb.selected_frame().architecture()
        text = arch.disassemble(pc)[0]
        name = text["asm"].replace("bnd ", "").replace("repz ", "").split()[0]
        what = "call" if name.startswith("call") else "ret" if name.startswith("ret") else "-"
        kinds[pc] = (text["length"], what)
    return kinds[pc]


def pc_of_thread():
    return int(gdb.parse_and_eval("$pc")) & 0xFFFFFFFFFFFFFFFF


def step_one():
    pc = pc_of_thread()
    thread = gdb.selected_thread()
    length, what = kind(pc)
    before = pc
    quiet("stepi")
    if signals:
        return False
    out.write("insn %d %x %d %s\n" % (thread.ptid[1], before, length, what))
    return True


signals = []
ended = []
gdb.events.stop.connect(
    lambda event: signals.append(event.stop_signal) if isinstance(event, gdb.SignalEvent) else None
)
gdb.events.exited.connect(lambda event: ended.append(getattr(event, "exit_code", -1)))


def mappings():
    for line in quiet("info proc mappings").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[0].startswith("0x"):
            perms = fields[4] if len(fields) > 4 and set(fields[4]) <= set("rwxps-") else ""
            name = fields[-1] if fields[-1].startswith(("/", "[")) else ""
            yield int(fields[0], 16), int(fields[1], 16), perms, name


def write_memory():
    inferior = gdb.selected_inferior()
    for start, end, perms, name in mappings():
        if name in ("[vvar]", "[vsyscall]"):
            continue
        try:
            data = bytes(inferior.read_memory(start, end - start))
        except gdb.MemoryError:
            continue
        constant = "w" not in perms
        out.write("%s %x %s\n" % ("code" if constant else "data", start, data.hex()))


def write_threads():
    frame = gdb.selected_frame()
    names = [r.name for r in frame.architecture().registers()]
    stopped = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        tid = thread.ptid[1]
        out.write("thread %d %s\n" % (tid, thread.name))
        for name in names:
            if name in WANTED:
                value = gdb.selected_frame().read_register(name)
                out.write("reg %d %s %s\n" % (tid, name, to_hex(value)))
    stopped.switch()
    out.write("final %d\n" % stopped.ptid[1])


WANTED = set(
    "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip eflags cs ss ds es fs gs "
    "fs_base gs_base orig_rax mxcsr".split()
) | set("xmm%d" % n for n in range(16))


def to_hex(value):
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_UNION:
        value = value["uint128"]
        return "%x" % int(str(value), 0)
    return "%x" % (int(value) & ((1 << (8 * value.type.sizeof)) - 1))


def write_auxv():
    with open("/proc/%d/auxv" % gdb.selected_inferior().pid, "rb") as auxv:
        out.write("auxv %s\n" % auxv.read().hex())
    out.write("exec %s\n" % gdb.current_progspace().filename)


def write_libraries():
    """The dynamic linker's list: _r_debug.r_map, then l_addr, l_name, l_ld, l_next of each."""

    def word(addr):
        return int.from_bytes(bytes(gdb.selected_inferior().read_memory(addr, 8)), "little")

    def text(addr):
        data = b""
        while not data.endswith(b"\0"):
            data += bytes(gdb.selected_inferior().read_memory(addr + len(data), 1))
        return data[:-1].decode()

    entry = word(int(gdb.parse_and_eval("(long)&_r_debug")) + 8)
    while entry:
        load_bias, name, dynamic = word(entry), text(word(entry + 8)), word(entry + 16)
        if "/" in name or not name:
            out.write("lib %x %x %x %s\n" % (entry, load_bias, dynamic, name))
        entry = word(entry + 24)


def run():
    quiet("set confirm off")
    quiet("set pagination off")
    quiet("break main")
    quiet("run")
    if turn:
        quiet("set scheduler-locking on")
    quiet("delete")
    end = None
    if gdb.lookup_global_symbol("history_end"):
        end = int(gdb.parse_and_eval("(long)&history_end"))
    steps = 0
    while steps < limit and pc_of_thread() != end and step_one():
        steps += 1
        if turn and steps % turn == 0:
            threads = sorted(gdb.selected_inferior().threads(), key=lambda t: t.num)
            here = threads.index(gdb.selected_thread())
            threads[(here + 1) % len(threads)].switch()
    if signals:
        out.write("signal %d\n" % signal.Signals[signals[0]].value)
    write_auxv()
    write_libraries()
    write_threads()
    write_memory()
    out.close()
    quiet("kill")


run()
