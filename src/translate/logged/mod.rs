//! System calls that are made in the code cache and logged there, without a stop of the thread.
//!
//! A byte of the table of classes says for each call what it writes ([`LoggedClass`]). Before the
//! call, glue writes the registers to a record in the thread's log; after it, the result and a copy
//! of what the kernel wrote. Where that is not known from the class and the result alone, the
//! thread stops after the call, before it executes anything else of the program. Before a call that
//! may wait, or has other effects, the thread stops for its tracer to make the call.
//!
//! Glue uses RCX and R11, which SYSCALL overwrites, and no flags. Where it probes files and events
//! ([`checks`]) or reads the clock ([`clock`]), it uses other registers, and restores them.

mod checks;
mod clock;
mod record;
mod table;
mod time;

pub use clock::ClockCode;
pub use record::LoggedCall;
pub use table::{
    CallFacts, DESCRIPTOR_COUNT, DESCRIPTORS, DescriptorClass, LoggedClass, class_table,
};
pub use time::{Counter, CounterCode};

use super::emit::{Emitter, Gpr};
use super::slots;
use checks::{TCGETS, emit_checks, emit_events_probe, emit_opened_file_probe};
use clock::{Clock, emit_clock};
use table::DIRECTION;
use time::emit_counter_code;

/// The maximum size of the copy of the memory that a call wrote.
const LARGEST_COPY_BYTES: u64 = 0xffff;
/// `struct stat`, `struct timespec`, `struct statx`.
const STAT_BYTES: u32 = 144;
const TIMESPEC_BYTES: u32 = 16;
const STATX_BYTES: u32 = 256;
const TIMEVAL_BYTES: u32 = 16;
/// The kernel's `struct termios` and `struct sigaction`.
const TERMIOS_BYTES: u32 = 36;
const SIGACTION_BYTES: u32 = 32;
/// The size of the code by which a thread stops before a call. The code for after the call follows.
pub(super) const STOP_BYTES: u8 = 10;

/// The words of a record before its copied bytes, in their order: the header. The registers are
/// those before the call.
#[derive(Clone, Copy)]
pub(super) enum Word {
    Rax,
    Rbx,
    Rdx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R12,
    R13,
    R14,
    R15,
    Rcx,
    R11,
    /// The budget before the call.
    Budget,
    /// The number of the edge after the call.
    Edge,
    /// The base of FS, where [`CallHandling::has_fs_base`]; else not written.
    FsBase,
    /// The result of the call, or the time-stamp counter.
    Result,
    Flags,
    /// The number of copied bytes; [`Word::Address`] is the address that they are from.
    Size,
    Address,
    /// The kind of the record: 0 for a whole record of a call, 1 if it lacks effects of the call,
    /// so that the thread stops after the call, [`Counter::mark`] for the read of a counter.
    Kind,
}

/// The size of the room after a record's header in which glue pushes the flags.
pub const LOG_SCRATCH_BYTES: u32 = 64;

/// The size of a record without copied bytes.
pub const HEADER_BYTES: u32 = Word::Kind.offset() + 8;
/// The maximum size of a record.
pub const LARGEST_RECORD_BYTES: u64 = HEADER_BYTES as u64 + LARGEST_COPY_BYTES;

impl Word {
    /// Returns the offset in bytes of the word in a record.
    pub(super) const fn offset(self) -> u32 {
        self as u32 * 8
    }
}

/// The facts on which the code depends that logs or answers system calls in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHandling {
    /// True if programs may read and set the base of FS by instructions.
    pub has_fs_base: bool,
    /// True if the cache executes RDTSCP. CPUs without it fault.
    pub has_tsc_aux: bool,
    /// True if calls are not made, but answered.
    pub answers: bool,
}

/// The registers that are stored as they are, by their numbers in the encoding.
const PLAIN: [(u8, Word); 14] = [
    (0, Word::Rax),
    (3, Word::Rbx),
    (2, Word::Rdx),
    (6, Word::Rsi),
    (7, Word::Rdi),
    (5, Word::Rbp),
    (4, Word::Rsp),
    (8, Word::R8),
    (9, Word::R9),
    (10, Word::R10),
    (12, Word::R12),
    (13, Word::R13),
    (14, Word::R14),
    (15, Word::R15),
];
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;
const R8: u8 = 8;
const R9: u8 = 9;
const R10: u8 = 10;
pub(super) const R11: u8 = 11;

/// The addresses of the code that makes and logs a call, and of that which reads and logs counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogCode {
    /// The start of the code.
    pub start: u64,
    /// The start and the end of its probes of files or events: there, RAX, RDX and R10 may be in
    /// the record only.
    pub probes: (u64, u64),
    /// The code that reads each clock.
    pub clocks: [ClockCode; 2],
    /// The address of the SYSCALL.
    pub syscall: u64,
    /// The address of the REP MOVSB that copies to the record.
    pub copy: u64,
    /// The address of the INT3 at which a thread stops after a call.
    pub stop: u64,
    /// The code that reads each counter.
    pub counters: [CounterCode; 2],
}

/// The size in bytes of SYSCALL, and of REP MOVSB.
pub const LOG_INSN_BYTES: u64 = 2;

/// Emits the code that makes and logs calls, and that which reads and logs counters. At the start
/// of each, the program's RCX and R11 and the budget are in their slots, as are the number of the
/// edge after the call or read, and the address to go on at. At that address, R11 is the budget
/// again, and the code there sets RCX.
///
/// The code has these parts in this order, with jumps from one to the other:
///
/// ```text
/// registers  writes the registers to the record
/// checks     by the class: -> call, events or clock, or stops before the call
/// call       SYSCALL -> result
/// events     epoll_wait(2) without waiting: some -> result; none: stops before the call
/// clock      reads a clock by the vdso: success -> commit; failure -> call
/// result     success -> sizes; refused -> commit; another error -> stop
/// sizes      the call wrote nothing -> commit; known memory -> copy; else -> stop
///            it opened a file -> opened
/// opened     probes which file that is: harmless -> commit; else -> stop
/// copy       copies the memory to the record -> commit; direction flag set -> stop
/// commit     adds the record to the log, goes on with the program
/// stop       adds the record with `Word::Kind` set, INT3, goes on with the program
/// counters   for each `Counter`, apart from the above: reads and logs it
/// ```
pub(super) fn emit_log_code(emitter: &mut Emitter, handling: CallHandling) -> LogCode {
    let start = emitter.here();
    emit_registers(emitter, handling.has_fs_base);
    let checks = emit_checks(emitter);
    let probes = checks.probes;
    let syscall = emitter.here();
    emitter.put(&[0x0f, 0x05]);
    let made = emitter.jump_from_here();
    emitter.aim_here(checks.events);
    let some = emit_events_probe(emitter, checks.stop);
    let clocks = [Clock::GetTime, Clock::TimeOfDay];
    let clocks = clocks.map(|clock| {
        emitter.aim_here(checks.clocks[clock as usize]);
        let (code, jumps) = emit_clock(emitter, clock);
        emitter.aim(jumps.to_call, syscall);
        (code, jumps.done)
    });
    for field in [made, some] {
        emitter.aim_here(field);
    }
    let (refused, fails_late) = emit_result_words(emitter);
    let mut jumps = emit_sizes(emitter);
    emitter.aim_here(jumps.opened);
    let (is_all, is_more) = emit_opened_file_probe(emitter);
    jumps.to_commit.extend([is_all, refused]);
    jumps.to_commit.extend(clocks.map(|(_, done)| done));
    jumps.to_stop.push(is_more);
    let clocks = clocks.map(|(code, _)| code);
    for field in jumps.to_copy {
        emitter.aim_here(field);
    }
    let (copy, downwards) = emit_copy(emitter);
    jumps.to_stop.extend([fails_late, downwards]);
    for field in jumps.to_commit {
        emitter.aim_here(field);
    }
    emit_commit(emitter);
    emitter.jump_slot(slots::JUMP);
    for field in jumps.to_stop {
        emitter.aim_here(field);
    }
    emitter.load(Gpr::Rcx, slots::LOG);
    // mov r11d, 1
    emitter.put(&[0x41, 0xbb, 1, 0, 0, 0]);
    emitter.store_at(R11, RCX, Word::Kind.offset());
    emit_commit(emitter);
    let stop = emitter.here();
    emitter.put(&[0xcc]);
    emitter.jump_slot(slots::JUMP);
    let counters = Counter::ALL.map(|counter| emit_counter_code(emitter, counter, handling));
    LogCode { start, probes: (probes.start, probes.end), clocks, syscall, copy, stop, counters }
}

/// Emits code that writes the registers to the record, and from their slots RCX, R11, the budget
/// and the edge. It leaves RCX at the record, and destroys R11. It writes neither flags nor the
/// words after the base of FS.
pub(super) fn emit_registers(emitter: &mut Emitter, has_fs_base: bool) {
    emitter.load(Gpr::Rcx, slots::LOG);
    for (register, word) in PLAIN {
        emitter.store_at(register, RCX, word.offset());
    }
    for (slot, word) in [
        (slots::RCX, Word::Rcx),
        (slots::R11, Word::R11),
        (slots::TRACE_POINTER, Word::Budget),
        (slots::EDGE, Word::Edge),
    ] {
        emitter.load(Gpr::R11, slot);
        emitter.store_at(R11, RCX, word.offset());
    }
    if has_fs_base {
        // rdfsbase r11
        emitter.put(&[0xf3, 0x49, 0x0f, 0xae, 0xc3]);
        emitter.store_at(R11, RCX, Word::FsBase.offset());
    }
}

/// Emits code that completes the header of the record after the SYSCALL: the result, the flags, and
/// 0 as size, address and kind. Saves the program's R11 in its slot, restores R10, destroys RCX and
/// sets R11 to 0. Falls through after a success. Returns two jumps: for errors after which nothing
/// was written (`is_refusal` in [`class_table`]), and others.
fn emit_result_words(emitter: &mut Emitter) -> (usize, usize) {
    emitter.store(Gpr::R11, slots::R11);
    emitter.load(Gpr::Rcx, slots::LOG);
    emitter.store_at(RAX, RCX, Word::Result.offset());
    emitter.store_at(R11, RCX, Word::Flags.offset());
    // A probe for events has changed R10.
    emitter.load_at(R10, RCX, Word::R10.offset());
    // mov r11d, 0
    emitter.put(&[0x41, 0xbb, 0, 0, 0, 0]);
    for word in [Word::Size, Word::Address, Word::Kind] {
        emitter.store_at(R11, RCX, word.offset());
    }
    // mov rcx, rax; bswap rcx; movzx ecx, cl: 0 if the result is not negative
    emitter.put(&[0x48, 0x89, 0xc1, 0x48, 0x0f, 0xc9, 0x0f, 0xb6, 0xc9]);
    let succeeds = emitter.jump_if_rcx_is_0();
    // movzx ecx, ax; movzx ecx, byte gs:[rcx + classes]
    emitter.put(&[0x0f, 0xb7, 0xc8]);
    emitter.load_class();
    let fails_late = emitter.jump_if_rcx_is_0();
    let refused = emitter.jump_from_here();
    emitter.aim_here(succeeds);
    (refused, fails_late)
}

/// The memory that a call wrote, by its class.
enum Written {
    /// This many bytes, at the address that the instruction with these bytes copies to R11.
    Bytes([u8; 3], u32),
    /// As many bytes as the result says, at the address that this instruction copies to R11. The
    /// thread stops after the call if they are more than [`LARGEST_COPY_BYTES`].
    Result([u8; 3]),
    /// The settings of a terminal at RDX. The thread stops after other requests.
    Terminal,
}

/// The jumps out of the code that looks up what a call wrote.
struct SizeJumps {
    /// Taken if the call wrote nothing.
    to_commit: Vec<usize>,
    /// Taken with an address in R11 and a size in RCX.
    to_copy: Vec<usize>,
    /// Taken after a file was opened.
    opened: usize,
    /// Taken if the thread must stop.
    to_stop: Vec<usize>,
}

/// Emits code that finds the memory that a successful call wrote, by its class and its result. It
/// always leaves by one of the returned jumps. Keeps all registers but RCX and R11.
fn emit_sizes(emitter: &mut Emitter) -> SizeJumps {
    emitter.load(Gpr::Rcx, slots::LOG);
    // movzx ecx, word [rcx + number]
    emitter.put(&[0x0f, 0xb7, 0x89]);
    emitter.put_u32(Word::Rax.offset());
    emitter.load_class();
    let (mut to_copy, mut to_stop) = (Vec::new(), Vec::new());
    // RCX counts down from the class: it is 0 at the code for that class.
    emitter.decrement_rcx();
    let mut to_commit = vec![emitter.jump_if_rcx_is_0()];
    // mov r11, rsi / rdx / rdi / r8
    let (rsi, rdx, rdi, r8) =
        ([0x49, 0x89, 0xf3], [0x49, 0x89, 0xd3], [0x49, 0x89, 0xfb], [0x4d, 0x89, 0xc3]);
    // By class, from `LoggedClass::AttributesAtRsi` on.
    let kinds = [
        Some(Written::Bytes(rsi, STAT_BYTES)),
        Some(Written::Bytes(rdx, STAT_BYTES)),
        Some(Written::Result(rsi)),
        Some(Written::Result(rdx)),
        Some(Written::Result(rdi)),
        Some(Written::Bytes(r8, STATX_BYTES)),
        Some(Written::Bytes(rsi, TIMESPEC_BYTES)),
        Some(Written::Terminal),
        Some(Written::Bytes(rdx, SIGACTION_BYTES)),
        Some(Written::Bytes(rdi, TIMEVAL_BYTES)),
        // LoggedClass::Command
        None,
        // LoggedClass::Reads and Receives
        Some(Written::Result(rsi)),
        Some(Written::Result(rsi)),
        // LoggedClass::Writes, Closes, Copies and Wakes
        None,
        None,
        None,
        None,
    ];
    for kind in kinds {
        emitter.decrement_rcx();
        let this = emitter.jump_if_rcx_is_0();
        let Some(kind) = kind else {
            to_commit.push(this);
            continue;
        };
        let next = emitter.jump_from_here();
        emitter.aim_here(this);
        let from = match kind {
            Written::Bytes(from, size) => {
                emit_size(emitter, size);
                from
            }
            Written::Terminal => {
                // lea ecx, [rsi - request]
                emitter.put(&[0x8d, 0x8e]);
                emitter.put_u32(TCGETS.wrapping_neg().cast_unsigned());
                let is_this = emitter.jump_if_rcx_is_0();
                to_stop.push(emitter.jump_from_here());
                emitter.aim_here(is_this);
                emit_size(emitter, TERMIOS_BYTES);
                rdx
            }
            Written::Result(from) => {
                // mov rcx, rax; movzx r11d, ax
                emitter.put(&[0x48, 0x89, 0xc1, 0x44, 0x0f, 0xb7, 0xd8]);
                emitter.subtract_from_rcx();
                let small = emitter.jump_if_rcx_is_0();
                to_stop.push(emitter.jump_from_here());
                emitter.aim_here(small);
                // movzx ecx, ax
                emitter.put(&[0x0f, 0xb7, 0xc8]);
                from
            }
        };
        emitter.put(&from);
        to_copy.push(emitter.jump_from_here());
        emitter.aim_here(next);
    }
    emitter.decrement_rcx();
    let opened = emitter.jump_if_rcx_is_0();
    let mut events = Vec::new();
    for _ in [LoggedClass::Events, LoggedClass::EventsByMask] {
        emitter.decrement_rcx();
        events.push(emitter.jump_if_rcx_is_0());
    }
    to_stop.push(emitter.jump_from_here());
    for field in events {
        emitter.aim_here(field);
    }
    // mov rcx, rax; movzx r11d, al
    emitter.put(&[0x48, 0x89, 0xc1, 0x44, 0x0f, 0xb6, 0xd8]);
    emitter.subtract_from_rcx();
    let few = emitter.jump_if_rcx_is_0();
    to_stop.push(emitter.jump_from_here());
    emitter.aim_here(few);
    // Events have 12 bytes. lea rcx, [rax + 2 rax]; lea rcx, [4 rcx]
    emitter.put(&[0x48, 0x8d, 0x0c, 0x40, 0x48, 0x8d, 0x0c, 0x8d, 0, 0, 0, 0]);
    emitter.put(&rsi);
    to_copy.push(emitter.jump_from_here());
    SizeJumps { to_commit, to_copy, opened, to_stop }
}

/// Emits `mov ecx, size`, for the code at a jump of `to_copy`.
fn emit_size(emitter: &mut Emitter, size: u32) {
    emitter.put(&[0xb9]);
    emitter.put_u32(size);
}

/// Emits code that copies RCX bytes at R11 to the record, and restores RSI and RDI. If the
/// direction flag is set, it copies nothing, and the size in the record is 0. Returns the address
/// of the REP MOVSB, and the jump that is taken if the direction flag is set.
fn emit_copy(emitter: &mut Emitter) -> (u64, usize) {
    emitter.load(Gpr::Rdi, slots::LOG);
    emitter.store_at(RCX, RDI, Word::Size.offset());
    emitter.store_at(R11, RDI, Word::Address.offset());
    // movzx r11d, byte [rdi + flags + 1]; movzx ecx, byte gs:[r11 + classes + direction]
    emitter.put(&[0x44, 0x0f, 0xb6, 0x9f]);
    emitter.put_u32(Word::Flags.offset() + 1);
    emitter.put(&[0x65, 0x41, 0x0f, 0xb6, 0x8b]);
    emitter.put_u32(slots::SYSCALL_CLASSES + DIRECTION);
    let upwards = emitter.jump_if_rcx_is_0();
    // mov r11d, 0
    emitter.put(&[0x41, 0xbb, 0, 0, 0, 0]);
    emitter.store_at(R11, RDI, Word::Size.offset());
    emitter.load_at(RDI, RDI, Word::Rdi.offset());
    let downwards = emitter.jump_from_here();
    emitter.aim_here(upwards);
    emitter.load_at(RCX, RDI, Word::Size.offset());
    emitter.load_at(RSI, RDI, Word::Address.offset());
    // lea rdi, [rdi + header]
    emitter.put(&[0x48, 0x8d, 0xbf]);
    emitter.put_u32(HEADER_BYTES);
    let copy = emitter.here();
    emitter.put(&[0xf3, 0xa4]);
    emitter.load(Gpr::Rcx, slots::LOG);
    emitter.load_at(RSI, RCX, Word::Rsi.offset());
    emitter.load_at(RDI, RCX, Word::Rdi.offset());
    (copy, downwards)
}

/// Emits code that adds the record to the log: moves the address for the next one, and reduces the
/// room. It loads the budget into R11, and destroys RCX.
fn emit_commit(emitter: &mut Emitter) {
    emitter.load(Gpr::Rcx, slots::LOG);
    emitter.load_at(R11, RCX, Word::Size.offset());
    // lea r11, [r11 + header]; lea rcx, [rcx + r11]; not r11
    emitter.put(&[0x4d, 0x8d, 0x9b]);
    emitter.put_u32(HEADER_BYTES);
    emitter.put(&[0x4a, 0x8d, 0x0c, 0x19, 0x49, 0xf7, 0xd3]);
    emitter.store(Gpr::Rcx, slots::LOG);
    emitter.load(Gpr::Rcx, slots::LOG_ROOM);
    // lea rcx, [rcx + r11 + 1]
    emitter.put(&[0x4a, 0x8d, 0x4c, 0x19, 1]);
    emitter.store(Gpr::Rcx, slots::LOG_ROOM);
    emitter.load(Gpr::R11, slots::TRACE_POINTER);
}
