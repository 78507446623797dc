//! System calls that threads make and log in the code cache, without a stop. Each thread has a log
//! in its area. A *record* of it has the registers before the call, the result, and the memory that
//! the call wrote. Some calls for the time are not made: a function of the vdso reads the clock. A
//! *slot* is a word of the thread's area in which the cache's code keeps a register or other value.

use super::area::Area;
use super::error::Error;
use super::exact::ExactState;
use super::logged_calls::{LoggedCalls, RecordResolver};
use super::process::{CLASSES_OFFSET, TranslatedProcess};
use super::thread::TranslatedThread;
use crate::common::{Addr, AddrRange};
use crate::insn::Registers;
use crate::syscalls::is_refused;
use crate::tracee::{SiginfoBytes, siginfo};
use crate::translate::{
    CacheMemory, ClockCode, GlueRegisters, HEADER_BYTES, LARGEST_RECORD_BYTES, LOG_INSN_BYTES,
    LogCode, LoggedCall, LoggedClass, class_table, slots,
};

/// Results of calls that a signal interrupted, and that the kernel is about to make again or to end
/// (include/linux/errno.h).
const ERESTARTSYS: i64 = -512;
const ERESTART_RESTARTBLOCK: i64 = -516;

use LoggedClass::{
    ActionAtRdx, AttributesAtRdx, AttributesAtRsi, Closes, Command, Copies, Events, EventsByMask,
    ExtendedAttributesAtR8, Nothing, Opens, Other, Reads, Receives, ResultAtRdi, ResultAtRdx,
    ResultAtRsi, TerminalAtRdx, TimeAtRsi, TimeOfDay, Wakes, Writes,
};

/// The numbers of calls that do not wait without limit, change no mappings, signals or threads, and
/// write nothing but what their class says.
const LOGGED: &[(u64, LoggedClass)] = &[
    (0, Reads),                    // read
    (1, Writes),                   // write
    (3, Closes),                   // close
    (4, AttributesAtRsi),          // stat
    (5, AttributesAtRsi),          // fstat
    (6, AttributesAtRsi),          // lstat
    (8, Nothing),                  // lseek
    (13, ActionAtRdx),             // rt_sigaction
    (16, TerminalAtRdx),           // ioctl
    (17, ResultAtRsi),             // pread64
    (18, Writes),                  // pwrite64
    (20, Writes),                  // writev
    (21, Nothing),                 // access
    (39, Nothing),                 // getpid
    (44, Writes),                  // sendto
    (45, Receives),                // recvfrom
    (46, Writes),                  // sendmsg
    (72, Command),                 // fcntl
    (78, ResultAtRsi),             // getdents
    (79, ResultAtRdi),             // getcwd
    (80, Nothing),                 // chdir
    (81, Nothing),                 // fchdir
    (82, Nothing),                 // rename
    (83, Nothing),                 // mkdir
    (84, Nothing),                 // rmdir
    (86, Nothing),                 // link
    (87, Nothing),                 // unlink
    (88, Nothing),                 // symlink
    (89, ResultAtRsi),             // readlink
    (90, Nothing),                 // chmod
    (91, Nothing),                 // fchmod
    (92, Nothing),                 // chown
    (93, Nothing),                 // fchown
    (94, Nothing),                 // lchown
    (95, Nothing),                 // umask
    (96, TimeOfDay),               // gettimeofday
    (102, Nothing),                // getuid
    (104, Nothing),                // getgid
    (107, Nothing),                // geteuid
    (108, Nothing),                // getegid
    (110, Nothing),                // getppid
    (111, Nothing),                // getpgrp
    (186, Nothing),                // gettid
    (191, Other),                  // getxattr
    (192, Other),                  // lgetxattr
    (193, Other),                  // fgetxattr
    (194, Other),                  // listxattr
    (195, Other),                  // llistxattr
    (196, Other),                  // flistxattr
    (202, Wakes),                  // futex
    (217, ResultAtRsi),            // getdents64
    (221, Nothing),                // fadvise64
    (228, TimeAtRsi),              // clock_gettime
    (232, Events),                 // epoll_wait
    (233, Nothing),                // epoll_ctl
    (257, Opens),                  // openat
    (258, Nothing),                // mkdirat
    (260, Nothing),                // fchownat
    (262, AttributesAtRdx),        // newfstatat
    (263, Nothing),                // unlinkat
    (264, Nothing),                // renameat
    (265, Nothing),                // linkat
    (266, Nothing),                // symlinkat
    (267, ResultAtRdx),            // readlinkat
    (268, Nothing),                // fchmodat
    (269, Nothing),                // faccessat
    (280, Nothing),                // utimensat
    (281, EventsByMask),           // epoll_pwait
    (316, Nothing),                // renameat2
    (326, Copies),                 // copy_file_range
    (332, ExtendedAttributesAtR8), // statx
    (439, Nothing),                // faccessat2
];

/// Returns the registers of a record, with those that it lacks from `now`.
fn with_system_registers(record: Registers, now: &Registers) -> Registers {
    let Registers { cs, ss, fs_base, ds, es, fs, gs, .. } = *now;
    Registers { cs, ss, fs_base, ds, es, fs, gs, ..record }
}

/// Returns true if a call of this class may write the program's memory.
fn writes_memory(class: LoggedClass) -> bool {
    !matches!(class, Nothing | Command | Writes | Closes | Copies | Wakes | Opens)
}

impl RecordResolver for TranslatedProcess {
    fn address(&self, edge: u64) -> u64 {
        self.start_of_edge(edge)
    }

    fn budget(&self, pointer: u64) -> u64 {
        self.budget_of_r11(pointer)
    }

    fn visible_bytes(&self, addr: Addr, size_bytes: usize) -> usize {
        self.visible_bytes(addr, size_bytes)
    }
}

impl TranslatedProcess {
    /// Writes the table of the system calls that threads make and log in the cache, after something
    /// changed on which that depends: none while all calls have to stop. Call it only where the
    /// code is [`super::CodeKind::Logging`]; does nothing where it answers calls.
    pub fn update_logged_calls(&self) {
        if self.answers_calls() {
            return;
        }
        let is_logged = |(_, class): &(u64, LoggedClass)| {
            let stops = self.stops_at_calls || self.watches_calls || self.has_foreign();
            !(stops || self.watches_kernel_writes && writes_memory(*class))
        };
        let calls = LOGGED.iter().copied().filter(is_logged);
        self.window.shared.write(CLASSES_OFFSET, &class_table(calls, is_refused, &self.call_facts));
    }

    /// Makes threads stop before each system call while `watches` is true, as a debugger watches
    /// the calls, also in code that is translated already. If it is false, they stop as before.
    /// Call it only where the code is [`super::CodeKind::Logging`].
    pub fn watch_calls(&mut self, watches: bool) {
        if std::mem::replace(&mut self.watches_calls, watches) != watches {
            self.update_logged_calls();
        }
    }

    /// Makes threads stop before each system call from now on, for good. Call it only where the
    /// code is [`super::CodeKind::Logging`].
    pub fn stop_at_calls(&mut self) {
        self.stops_at_calls = true;
        self.update_logged_calls();
    }

    /// Empties the log in an area: its calls are lost. Where the code answers calls, also withdraws
    /// the answers.
    pub(super) fn clear_log(&self, area: &Area) {
        let shared = &self.window.shared;
        let room = if self.answers_calls() {
            -1
        } else {
            area.buffer_bytes.cast_signed() - LARGEST_RECORD_BYTES.cast_signed()
        };
        shared.store(area.slot(slots::LOG_ROOM), room.cast_unsigned());
        shared.store(area.slot(slots::LOG), area.buffer(0));
    }

    /// Removes the calls from a thread's log and returns them. `now` returns the thread's
    /// registers, from which the calls get their segment registers; if it returns `None`, the calls
    /// are lost. They are lost, too, if the program has damaged the slot with the end of the log.
    pub fn take_logged_calls(
        &self,
        thread: &TranslatedThread,
        now: impl FnOnce() -> Option<Registers>,
    ) -> LoggedCalls {
        let (shared, area) = (&self.window.shared, &thread.area);
        let size = shared.load(area.slot(slots::LOG)).wrapping_sub(area.buffer(0));
        if size == 0 {
            return LoggedCalls::default();
        }
        // The program can write to the slot. If it did, its calls are lost.
        let size = if size > area.buffer_bytes { 0 } else { size };
        let size = usize::try_from(size).unwrap_or(0);
        let log = shared.bytes(area.offset_of(area.buffer(0)), size);
        self.clear_log(area);
        let Some(now) = now() else { return LoggedCalls::default() };
        let now = Registers { gs_base: thread.gs_base(), ..now };
        let has_fs_base =
            self.translator.call_handling().is_some_and(|handling| handling.has_fs_base);
        LoggedCalls::settle(log, now, has_fs_base, self)
    }

    /// Returns the program's address at which the edge with this number starts; 0 if there is none.
    fn start_of_edge(&self, number: u64) -> u64 {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.translator.edges_from(number).first().map_or(0, |edge| edge.start)
    }

    /// Returns the code of a zone that makes and logs calls, if `rip` is in it.
    fn log_code_at(&self, rip: u64) -> Option<LogCode> {
        let zone = self.translator.zones().iter().find(|zone| zone.contains(rip))?;
        zone.log.filter(|log| (log.start..=log.stop).contains(&rip))
    }

    /// Returns true if a thread with this instruction pointer, which is after an INT3, has stopped
    /// after a call that it logged, since the record lacks effects of the call.
    pub(super) fn has_stopped_after_call(&self, rip: u64) -> bool {
        let at = rip.wrapping_sub(1);
        self.log_code_at(at).is_some_and(|log| log.stop == at)
    }

    /// Returns the program's state before a call that a thread is about to make and log, or in
    /// whose place it reads a clock or counter, or that a signal interrupted and the kernel would
    /// restart. `None` if the thread is elsewhere.
    pub(super) fn state_before_logged_call(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Option<ExactState> {
        let before = self.before_clock(thread, registers);
        if let Some(before) = before.or_else(|| self.before_counter(thread, registers)) {
            return Some(self.state_at_call(thread, &before));
        }
        let log = self.log_code_at(registers.rip)?;
        // The probes use these registers. The record has the program's values.
        if (log.probes.0..log.probes.1).contains(&registers.rip) {
            let Registers { r10, rax, rdx, .. } = self.recorded_registers(thread)?;
            return Some(self.state_at_call(thread, &Registers { r10, rax, rdx, ..*registers }));
        }
        // Up to the SYSCALL, the code changes only RCX and R11, which are in their slots.
        if registers.rip <= log.syscall {
            return Some(self.state_at_call(thread, registers));
        }
        // After the SYSCALL, the call is undone only if the kernel would make it again.
        let is_in_call =
            registers.rip == log.syscall + LOG_INSN_BYTES && registers.orig_rax.cast_signed() >= 0;
        let restarts = ERESTART_RESTARTBLOCK..=ERESTARTSYS;
        let again = Registers { rax: registers.orig_rax, ..*registers };
        (is_in_call && restarts.contains(&registers.rax.cast_signed()))
            .then(|| self.state_at_call(thread, &again))
    }

    /// Returns the state before the call that a thread makes or logs: RIP, RCX and R11 from the
    /// thread's slots, its own GS base, and all other registers from `registers`.
    fn state_at_call(&self, thread: &TranslatedThread, registers: &Registers) -> ExactState {
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let program = Registers {
            rip: self.start_of_edge(load(slots::EDGE) & u64::from(u32::MAX)),
            rcx: load(slots::RCX),
            r11: load(slots::R11),
            orig_rax: u64::MAX,
            gs_base: thread.gs_base(),
            ..*registers
        };
        ExactState { program, pointer: load(slots::TRACE_POINTER), partial: None }
    }

    /// Returns the registers before the call whose record a thread is writing, without those that
    /// records lack (see [`with_system_registers`]); `None` if the slot with the record's address
    /// is damaged.
    fn recorded_registers(&self, thread: &TranslatedThread) -> Option<Registers> {
        let (shared, area) = (&self.window.shared, thread.area);
        let at = shared.load(area.slot(slots::LOG));
        let mut record = [0; HEADER_BYTES as usize];
        // The program can write to the slot.
        let room = area.buffer_bytes.saturating_sub(HEADER_BYTES.into());
        if at.wrapping_sub(area.buffer(0)) > room {
            return None;
        }
        shared.read(area.offset_of(at), &mut record);
        LoggedCall::registers_of(&record)
    }

    /// Returns the registers before a call in whose place a thread is reading the clock; `None` if
    /// it is not. RIP, RCX and R11 in them are meaningless: [`Self::state_at_call`] takes them from
    /// the thread's slots.
    fn before_clock(&self, thread: &TranslatedThread, registers: &Registers) -> Option<Registers> {
        let rip = registers.rip;
        let in_vdso = self.vdso.is_some_and(|vdso| vdso.contains(Addr(rip)));
        let is_saved = in_vdso || rip >= self.clock_code(|c| c.start..c.end, rip)?.saved;
        let before = self.recorded_registers(thread)?;
        if !is_saved {
            return Some(Registers { rsp: before.rsp, ..*registers });
        }
        Some(with_system_registers(before, registers))
    }

    /// Returns the registers before an instruction in whose place a thread is reading a counter;
    /// `None` if it is not. RIP, RCX and R11 in them are meaningless, as in those of
    /// [`Self::before_clock`].
    fn before_counter(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Option<Registers> {
        let logs = self.translator.zones().iter().filter_map(|zone| zone.log);
        let mut codes = logs.flat_map(|log| log.counters);
        let rip = registers.rip;
        let code = codes.find(|code| (code.start..code.end).contains(&rip))?;
        if rip < code.recorded {
            return Some(*registers);
        }
        let before = with_system_registers(self.recorded_registers(thread)?, registers);
        // The code records the flags later than the others, and does not change them.
        Some(Registers { eflags: registers.eflags, ..before })
    }

    /// Returns the program's state before a call in whose place a thread has read the clock, if a
    /// fault keeps it from storing the time. The call itself fails there. `None` if the signal is
    /// no fault, or the thread is elsewhere.
    pub(super) fn state_before_failed_store(
        &self,
        thread: &TranslatedThread,
        info: &SiginfoBytes,
    ) -> Result<Option<ExactState>, Error> {
        if siginfo::fault_address(info).is_none() {
            return Ok(None);
        }
        let registers = thread.tracee.registers()?;
        let stores = self.clock_code(|c| c.end..c.stored, registers.rip).is_some();
        // All but RCX and R11 are the program's again.
        Ok(stores.then(|| self.state_at_call(thread, &registers)))
    }

    /// Returns the clock-reading code whose part, as `part` returns it, contains `rip`; `None` if
    /// there is none.
    fn clock_code(
        &self,
        part: impl Fn(&ClockCode) -> std::ops::Range<u64>,
        rip: u64,
    ) -> Option<ClockCode> {
        let logs = self.translator.zones().iter().filter_map(|zone| zone.log);
        logs.flat_map(|log| log.clocks).find(|code| part(code).contains(&rip))
    }

    /// Lets threads read the clock by functions of the vdso, `__vdso_clock_gettime` and
    /// `__vdso_gettimeofday`, where they would make system calls. The vdso and its data, in
    /// `range`, are no part of the program.
    pub fn use_vdso(&mut self, range: AddrRange, functions: [Addr; 2]) {
        self.window.ranges.push(range);
        self.hide_new_ranges();
        self.vdso = Some(range);
        self.call_facts.clocks = functions.map(|function| function.0);
        self.update_logged_calls();
    }

    /// Copies the bytes that a call wrote to the thread's record, in the place of a thread that is
    /// about to do so in the cache by REP MOVSB and would take a step for each byte. Moves the
    /// thread to after that instruction, and returns true. Returns false, and leaves the thread, if
    /// it is elsewhere or the memory is not there.
    pub(super) fn copy_call_output(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Result<bool, crate::tracee::Error> {
        if self.log_code_at(registers.rip).is_none_or(|log| log.copy != registers.rip) {
            return Ok(false);
        }
        let (rsi, rdi, rcx) = (registers.rsi, registers.rdi, registers.rcx);
        let mut glue = GlueRegisters { rcx, rsi, rdi, ..GlueRegisters::default() };
        if glue.copy(&self.memory).is_none() {
            return Ok(false);
        }
        let rip = registers.rip + LOG_INSN_BYTES;
        let (rsi, rdi, rcx) = (glue.rsi, glue.rdi, glue.rcx);
        thread.tracee.set_registers(&Registers { rcx, rsi, rdi, rip, ..*registers })?;
        Ok(true)
    }
}
