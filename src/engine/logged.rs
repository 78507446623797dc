//! System calls that threads make and log in the code cache, without a stop.

use super::area::Area;
use super::exact::Exact;
use super::process::{CLASSES, TranslatedProcess};
use super::thread::TranslatedThread;
use crate::common::Addr;
use crate::insn::Registers;
use crate::syscalls::is_refused;
use crate::translate::{
    CacheMemory, GlueRegisters, HEADER_BYTES, LARGEST_RECORD_BYTES, LOG_INSN_BYTES, LogCode,
    LoggedCall, LoggedClass, classes, slots,
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

/// Calls that do not wait without limit, change no mappings, signals or threads, and write nothing but
/// what their class says.
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

fn writes_memory(class: LoggedClass) -> bool {
    !matches!(class, Nothing | Command | Writes | Closes | Copies | Wakes | Opens)
}

impl TranslatedProcess {
    /// Lets threads make and log calls in the cache, from now on, where its code is
    /// [`super::CodeKind::Logging`].
    pub fn log_calls(&self) {
        if self.answers_calls() {
            return;
        }
        let is_logged = |(_, class): &(u64, LoggedClass)| {
            !self.stops_at_calls && !(self.watches_kernel_writes && writes_memory(*class))
        };
        let calls = LOGGED.iter().copied().filter(is_logged);
        self.window.shared.write(CLASSES, &classes(calls, is_refused, &self.files));
    }

    /// Lets threads stop before each call, from now on: somebody watches them.
    pub fn stop_at_calls(&mut self) {
        self.stops_at_calls = true;
        self.log_calls();
    }

    /// Prepares a thread's log.
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

    /// Removes the calls from a thread's log, and returns them. Their segments and GS are those of
    /// `now`, the registers that the thread has.
    pub fn take_logged_calls(
        &self,
        thread: &TranslatedThread,
        now: impl FnOnce() -> Option<Registers>,
    ) -> Vec<LoggedCall> {
        let (shared, area) = (&self.window.shared, &thread.area);
        let size = shared.load(area.slot(slots::LOG)).wrapping_sub(area.buffer(0));
        if size == 0 {
            return Vec::new();
        }
        // The program can write there. Where it did, its calls are lost.
        let size = if size > area.buffer_bytes { 0 } else { size };
        let mut log = vec![0; usize::try_from(size).unwrap_or(0)];
        shared.read(area.offset_of(area.buffer(0)), &mut log);
        self.clear_log(area);
        let Some(now) = now() else { return Vec::new() };
        let has_fs_base = self.translator.call_log().is_some_and(|log| log.has_fs_base);
        let (mut rest, mut calls) = (&log[..], Vec::new());
        while let Some((mut call, after)) = LoggedCall::first_of(rest) {
            let fs_base = if has_fs_base { call.registers.fs_base } else { now.fs_base };
            let Registers { cs, ss, ds, es, fs, gs, .. } = now;
            let rip = self.start_of_edge(call.edge);
            let gs_base = thread.gs_base();
            call.registers =
                Registers { rip, cs, ss, fs_base, gs_base, ds, es, fs, gs, ..call.registers };
            let visible = self.visible_bytes(Addr(call.written.0), call.written.1.len());
            call.written.1.truncate(visible);
            calls.push(call);
            rest = after;
        }
        calls
    }

    fn start_of_edge(&self, number: u64) -> u64 {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.translator.edges_from(number).first().map_or(0, |edge| edge.start)
    }

    fn log_code_at(&self, rip: u64) -> Option<LogCode> {
        let zone = self.translator.zones().iter().find(|zone| zone.contains(rip))?;
        zone.log.filter(|log| (log.start..=log.stop).contains(&rip))
    }

    /// Returns true if a thread has stopped after a call that it logged.
    pub(super) fn has_stopped_after_call(&self, rip: u64) -> bool {
        let at = rip.wrapping_sub(1);
        self.log_code_at(at).is_some_and(|log| log.stop == at)
    }

    /// Returns the program's state before a call that a thread is about to make and log, or that a
    /// signal interrupted which the kernel would make again.
    pub(super) fn before_logged_call(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Option<Exact> {
        let log = self.log_code_at(registers.rip)?;
        let is_begun = registers.rip > log.syscall;
        if is_begun {
            let is_in_call = registers.rip == log.syscall + LOG_INSN_BYTES
                && registers.orig_rax.cast_signed() >= 0;
            let restarts = ERESTART_RESTARTBLOCK..=ERESTARTSYS;
            if !is_in_call || !restarts.contains(&registers.rax.cast_signed()) {
                return None;
            }
        }
        let load = |slot| self.window.shared.load(thread.area.slot(slot));
        let looks = (log.looks.0..log.looks.1).contains(&registers.rip);
        let registers = &if looks { self.recorded_before(thread, registers)? } else { *registers };
        let program = Registers {
            rip: self.start_of_edge(load(slots::EDGE) & u64::from(u32::MAX)),
            rax: if is_begun { registers.orig_rax } else { registers.rax },
            rcx: load(slots::RCX),
            r11: load(slots::R11),
            orig_rax: u64::MAX,
            gs_base: thread.gs_base(),
            ..*registers
        };
        Some(Exact { program, pointer: load(slots::TRACE_POINTER), partial: None })
    }

    /// Returns registers with those that a look at a file uses as the record of its call has them.
    fn recorded_before(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> Option<Registers> {
        let (shared, area) = (&self.window.shared, thread.area);
        let at = shared.load(area.slot(slots::LOG));
        let mut record = [0; HEADER_BYTES as usize];
        // The program can write to the slot.
        let room = area.buffer_bytes.saturating_sub(HEADER_BYTES.into());
        if at.wrapping_sub(area.buffer(0)) > room {
            return None;
        }
        shared.read(area.offset_of(at), &mut record);
        let (call, _) = LoggedCall::first_of(&record)?;
        let Registers { rax, rdx, r10, .. } = call.registers;
        Some(Registers { rax, rdx, r10, ..*registers })
    }

    /// Copies what a call wrote in the place of a thread that is about to do so, and that would take
    /// a step for each byte. Returns true if it was.
    pub(super) fn copy_for(
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
