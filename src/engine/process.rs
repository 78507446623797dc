//! A process that runs translated: its code cache, its memory, its mappings. The doc of the
//! [room](super) explains zones, areas, requests, the gadget and the gate.
//!
//! A *superblock* is a translated piece of the program: one entry, one path, several exits. An exit
//! with the path to it is an *edge*. In code that records, each exit writes the number of its edge,
//! a *record*, to the thread's trace buffer, at the *trace pointer*. In code that counts, *ticks*
//! are counted instead: branches, such that each cycle of control flow has one; the *budget* is the
//! number that is left. A *hook* is an instruction whose result does not follow from registers and
//! memory, such as SYSCALL.
//!
//! Methods that take a `tracee` make that thread, which is stopped in the program, execute system
//! calls by the SYSCALL instruction at the gadget. None of them resumes a thread otherwise.

use super::actions::{Actions, actions_after_exec};
use super::address_space::AddressSpace;
use super::area::{Area, BusyBuffers};
use super::call_handling::call_handling;
use super::code::CodePages;
use super::error::Error;
use super::gate::Gate;
use super::sampling::Sampling;
use super::shared::Shared;
use super::thread::{Place, TranslatedThread};
use super::window::{Window, ZONE_BYTES};
use crate::common::{Addr, AddrRange, Pid};
use crate::tracee::{Memory, Tracee};
use crate::translate::{AddressMap, CacheMemory, CallFacts, Components, Limits, Translator, slots};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Offset of the table of system calls' classes in the shared memory: a byte for each call, by
/// which glue decides whether the thread stops before it.
pub(super) const CLASSES_OFFSET: u64 = (slots::SYSCALL_CLASSES - slots::PRIVATE_BYTES) as u64;
/// System calls are classed by the low 16 bits of their numbers.
const CLASS_COUNT: usize = 1 << 16;

/// The work that translated code does in addition to the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeKind {
    /// Writes a record for each exit of a superblock. R11 is the trace pointer.
    Recording,
    /// Counts ticks and leaves instructions with a hook to its tracer, except for system calls that
    /// have answers ([`TranslatedProcess::offer_answers`]). R11 is a budget.
    Counting,
    /// Counts ticks, and makes and logs system calls ([`TranslatedProcess::update_logged_calls`]).
    /// R11 is a budget.
    Logging,
    /// Writes records, and leaves instructions with a hook to its tracer. R11 is the trace pointer.
    Rerecording,
}

/// A process whose code runs translated. A method that fails undoes nothing.
#[derive(Debug)]
pub struct TranslatedProcess {
    pub(super) pid: Pid,
    /// The process's memory.
    pub memory: Memory,
    /// The process's mappings, as last read.
    pub space: AddressSpace,
    pub(super) window: Window,
    pub(super) translator: Translator<Arc<Shared>>,
    pub(super) pages: CodePages,
    /// The program's actions for the signals that the code cache uses.
    pub(super) actions: Actions,
    /// True once threads stop before calls that may write memory, as there are write-protected
    /// pages.
    pub(super) watches_kernel_writes: bool,
    /// True once threads stop before all calls, for good.
    pub(super) stops_at_calls: bool,
    /// True while threads stop before all calls, since a debugger watches them.
    pub(super) watches_calls: bool,
    /// The devices, mapped files and clocks by which glue decides about calls, beside their
    /// classes.
    pub(super) call_facts: CallFacts,
    /// The vdso, if calls in the cache use it.
    pub(super) vdso: Option<AddrRange>,
    /// The XSAVE components with which XSAVECs are completed; `None` if they are not.
    pub(super) saves: Option<Components>,
    /// When the next exit is sampled.
    pub(super) sampling: Sampling,
}

impl TranslatedProcess {
    /// Makes the code cache of a process: maps the shared memory, and a first zone. `tracee`, one
    /// of its threads, is stopped in the program, and no other runs. Each thread gets trace buffers
    /// of `buffer_bytes`. Threads stop before system calls with the numbers `seen`. The mappings
    /// are still to be read ([`AddressSpace::refresh`]), and areas to be prepared.
    pub fn open(
        tracee: Tracee,
        pid: Pid,
        code: CodeKind,
        buffer_bytes: u64,
        seen: impl IntoIterator<Item = u64>,
    ) -> Result<Self, Error> {
        Self::open_at_gate(tracee, pid, code, buffer_bytes, seen, None, None)
    }

    /// Makes the code cache of a process, as [`Self::open`] does, with its first zone in reach of
    /// `near`, or of where `tracee` is stopped if that is `None`. `gate` is the process's gate, if
    /// it has one: all calls are then made there.
    pub fn open_at_gate(
        tracee: Tracee,
        pid: Pid,
        code: CodeKind,
        buffer_bytes: u64,
        seen: impl IntoIterator<Item = u64>,
        gate: Option<Gate>,
        near: Option<u64>,
    ) -> Result<Self, Error> {
        let memory = Memory::open(pid)?;
        let window = Window::open(tracee, pid, &memory, buffer_bytes, Vec::new(), gate)?;
        Self::with_window(tracee, memory, code, seen, window, near)
    }

    /// Makes the code cache of a process, as [`Self::open`] does, away from the ranges `reserved`,
    /// where the process will have its own mappings. The first zone is in reach of `near`, or of
    /// where `tracee` is stopped if that is `None`.
    pub fn open_beside(
        tracee: Tracee,
        pid: Pid,
        code: CodeKind,
        buffer_bytes: u64,
        seen: impl IntoIterator<Item = u64>,
        reserved: Vec<AddrRange>,
        near: Option<u64>,
    ) -> Result<Self, Error> {
        let memory = Memory::open(pid)?;
        let window = Window::open(tracee, pid, &memory, buffer_bytes, reserved, None)?;
        Self::with_window(tracee, memory, code, seen, window, near)
    }

    /// Makes the code cache in a window that is mapped, with its first zone and, in code that
    /// counts ticks, the memory of budgets.
    fn with_window(
        tracee: Tracee,
        memory: Memory,
        code: CodeKind,
        seen: impl IntoIterator<Item = u64>,
        mut window: Window,
        near: Option<u64>,
    ) -> Result<Self, Error> {
        let table_offset = u64::from(slots::TARGETS - slots::SYSCALL_CLASSES);
        let shared = window.shared.clone();
        let mut translator = match code {
            CodeKind::Recording => Translator::new(shared, table_offset, Limits::default()),
            CodeKind::Counting | CodeKind::Logging => {
                let answers = code == CodeKind::Counting;
                Translator::logging(
                    shared,
                    table_offset,
                    Limits::counting(),
                    call_handling(answers),
                )
            }
            CodeKind::Rerecording => {
                Translator::rerecording(shared, table_offset, Limits::default())
            }
        };
        let (base, offset) = window.first_zone(tracee, &memory, near)?;
        translator.add_zone(base, ZONE_BYTES, offset);
        let mut process = Self {
            pid: window.pid,
            memory,
            space: AddressSpace::default(),
            window,
            translator,
            pages: CodePages::default(),
            actions: actions_after_exec(tracee.0),
            watches_kernel_writes: false,
            stops_at_calls: false,
            watches_calls: false,
            call_facts: CallFacts::default(),
            vdso: None,
            saves: None,
            sampling: Sampling::default(),
        };
        process.stop_before_calls(seen);
        if code == CodeKind::Counting {
            // Each call may have an answer. Without one, the thread stops.
            process.stop_before_all_calls();
        }
        if matches!(code, CodeKind::Counting | CodeKind::Logging) {
            let gadget = process.gadget();
            process.window.make_budgets(tracee, gadget)?;
        }
        process.hide_new_ranges();
        Ok(process)
    }

    /// Returns the memory that process and tracer share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.window.shared
    }

    /// Returns the translator, which knows what records mean.
    pub fn translator(&self) -> &Translator<Arc<Shared>> {
        &self.translator
    }

    /// Sets the maximum size in bytes of the zones within reach of any one address. When they are
    /// full, translations fail.
    pub fn limit_cache(&mut self, bytes: u64) {
        self.translator.limit_size(bytes);
    }

    /// Notes the order in which code is first executed, from now on ([`Self::unexpected_code`]).
    /// Then only code that threads ask for, and expected code, is translated.
    pub fn learn_code_order(&mut self) {
        self.translator.learn_order();
    }

    /// Lets code at these addresses be translated early, in this order, once some of it is
    /// executed. Translates nothing yet: the bytes there may change.
    pub fn expect_code(&mut self, addresses: impl IntoIterator<Item = u64>) {
        self.translator.expect(addresses);
    }

    /// Returns the addresses of code of files that was executed and not expected, in the order of
    /// its first execution. Empty without [`Self::learn_code_order`].
    pub fn unexpected_code(&self) -> &[u64] {
        self.translator.unexpected()
    }

    /// Drops the superblocks that a sample of records shows to be hot and that are worth
    /// translating anew, which happens when a thread next reaches them. The sample has the number
    /// of records of each edge.
    pub fn drop_hot_code(&mut self, sample: &AddressMap<u32, u64>) {
        self.translator.learn_from_records(sample);
    }

    /// Sets the program's addresses at which threads leave the cache, before they execute the
    /// instruction there, in place of those set before. No thread may be in the cache.
    pub fn set_stops(&mut self, stops: &BTreeSet<u64>) {
        self.translator.set_stops(stops);
    }

    /// Makes threads stop before these system calls, from now on, also those that are in the cache.
    /// Only the low 16 bits of the numbers count. Only for recording code, which stops at each call
    /// with a class other than 0. (In logging code, 1 is a call that writes nothing.)
    pub fn stop_before_calls(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.window.shared.write(CLASSES_OFFSET + number % CLASS_COUNT as u64, &[1]);
        }
    }

    /// Sets the class of all system calls to 1. Recording code then stops before each of them.
    /// Counting code stops before those that have no answer. Not for logging code.
    pub fn stop_before_all_calls(&self) {
        self.window.shared.write(CLASSES_OFFSET, &vec![1; CLASS_COUNT]);
    }

    /// Hides the tracer's new mappings from the address space.
    pub(super) fn hide_new_ranges(&mut self) {
        let known = self.space.hidden().len();
        for range in self.window.ranges.iter().skip(known) {
            self.space.hide(*range);
        }
    }

    /// Returns the address of the SYSCALL instruction by which a thread is made to execute system
    /// calls: the gate's, or that of the first zone if there is no gate.
    pub fn gadget(&self) -> Addr {
        let of_zone = || self.translator.zones().first().map_or(Addr(0), |zone| Addr(zone.gadget));
        self.window.gate.map_or_else(of_zone, Gate::entry)
    }

    /// Returns the gate, if the process has one.
    pub fn gate(&self) -> Option<Gate> {
        self.window.gate
    }

    /// Makes the gate, unless the process has one, and returns it. The system calls that the tracer
    /// makes the process execute come from there afterwards. Extends no filter.
    pub fn make_gate(&mut self, tracee: Tracee) -> Result<Gate, Error> {
        if let Some(gate) = self.window.gate {
            return Ok(gate);
        }
        let gate = self.window.make_gate(tracee, self.gadget())?;
        self.hide_new_ranges();
        Ok(gate)
    }

    /// Unmaps the gate in a child, which has a copy of it. Does nothing if there is no gate.
    pub fn remove_gate_from(&self, child: Tracee) -> Result<(), Error> {
        self.window.gate.map_or(Ok(()), |gate| gate.unmap(child))
    }

    /// Keeps further ranges free of later mappings of the tracer: the process will have its own
    /// there.
    pub fn reserve(&mut self, ranges: Vec<AddrRange>) {
        self.window.reserve(ranges);
    }

    /// Returns true if an address is in one of the tracer's mappings in the process.
    pub fn is_tracers(&self, addr: Addr) -> bool {
        self.window.ranges.iter().any(|range| range.contains(addr))
    }

    /// Makes sure that there is a spare area for one more thread, which is about to be created and
    /// then takes it ([`Self::take_area`]). Call [`Self::settle_prepared_area`] when the thread
    /// exists, or when there will be none.
    pub fn prepare_area(&mut self, tracee: Tracee) -> Result<(), Error> {
        let gadget = self.gadget();
        self.window.prepare_area(tracee, gadget)?;
        self.hide_new_ranges();
        Ok(())
    }

    /// Removes a spare area, empties its buffers and its log, and returns it; `None` if there is
    /// none.
    pub fn take_area(&mut self) -> Option<(Area, Arc<BusyBuffers>)> {
        let (area, busy) = self.window.take_area()?;
        self.window.shared.store(area.slot(slots::TRACE_POINTER), area.buffer(0));
        self.clear_log(&area);
        Some((area, busy))
    }

    /// Notes that the thread whose area was prepared exists, or that there will be none.
    pub fn settle_prepared_area(&mut self) {
        self.window.settle_prepared_area();
    }

    /// Keeps the area of an ended thread for a later one.
    pub fn recycle_area(&mut self, area: Area, busy: Arc<BusyBuffers>) {
        self.window.recycle_area(area, busy);
    }

    /// Returns how many of the `size_bytes` bytes at `addr` come before the first one that is the
    /// tracer's own; all if there is none, whether they are mapped or not.
    pub fn visible_bytes(&self, addr: Addr, size_bytes: usize) -> usize {
        let wanted = AddrRange::sized(addr, size_bytes as u64);
        let hidden = self.space.hidden().iter().filter(|range| range.overlaps(wanted));
        let first = hidden.map(|range| range.start.0.saturating_sub(addr.0)).min();
        let visible = first.and_then(|first| usize::try_from(first).ok());
        visible.map_or(size_bytes, |visible| visible.min(size_bytes))
    }

    /// Reads the program's memory at `addr`, up to the tracer's or the first byte that cannot be
    /// read. Returns the number of bytes that were read.
    pub fn read_visible(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let visible = self.visible_bytes(addr, buf.len());
        self.memory.read(addr, &mut buf[..visible])
    }

    /// Returns the program's actions for SIGTRAP and SIGSEGV.
    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    /// Sets the program's actions for SIGTRAP and SIGSEGV: a child's are its parent's. Only notes
    /// them; the kernel has them already.
    pub fn set_actions(&mut self, actions: Actions) {
        self.actions = actions;
    }

    /// Reads the 8-byte word of the process at an address; `None` if it cannot be read.
    pub(super) fn word_at(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.memory.read(Addr(at), &mut bytes) == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }

    /// Unmaps all of the tracer's memory but the gate in a child of the process, which has a copy
    /// of it and is stopped in the program. The child makes the calls by the SYSCALL instruction at
    /// `gadget`, which must be outside that memory or in the gate.
    pub fn unmap_from_child(&self, child: Tracee, gadget: Addr) -> Result<(), Error> {
        self.window.unmap_all_but_gate(child, gadget)
    }

    /// Restores the permissions of the program's pages, and unmaps all of the tracer's memory, so
    /// that the process can go on natively. All threads are stopped in the program; `tracee` is
    /// one. No thread may enter the cache afterwards.
    pub fn restore_native(&mut self, tracee: Tracee) -> Result<(), Error> {
        self.unprotect_all(tracee)?;
        self.window.unmap_all(tracee, &self.memory)
    }

    /// Unmaps all of the tracer's memory in a process of which no code was translated yet.
    pub fn unmap_unused(&self, tracee: Tracee) -> Result<(), Error> {
        self.window.unmap_all(tracee, &self.memory)
    }

    /// Moves a thread, which is stopped in the program, to an address of the cache, where it goes
    /// on when the caller resumes it. Keeps the program's R11 and GS base, since both registers are
    /// the tracer's there. R11 gets the thread's [`TranslatedThread::trace_pointer`].
    pub fn enter_cache(&self, thread: &mut TranslatedThread, address: u64) -> Result<(), Error> {
        let mut registers = thread.tracee.registers()?;
        let shared = &self.window.shared;
        shared.store(thread.area.slot(slots::R11), registers.r11);
        thread.gs_base = registers.gs_base;
        registers.r11 = thread.trace_pointer(shared);
        registers.gs_base = thread.area.base;
        registers.rip = address;
        thread.tracee.set_registers(&registers)?;
        thread.place = Place::Cache;
        Ok(())
    }

    /// Returns a thread's request for code that has no superblock yet; `None` if it has made none.
    /// The program can write the request, so its numbers are unchecked.
    pub fn request(&self, thread: &TranslatedThread) -> Option<Request> {
        let shared = &self.window.shared;
        let number = shared.load(thread.area.slot(slots::REQUEST));
        let target = shared.load(thread.area.slot(slots::TARGET));
        (number != 0).then_some(Request { number, target })
    }

    /// Returns the program's address whose code a request asks for.
    pub fn requested_address(&self, request: Request) -> u64 {
        request.address(&self.translator)
    }

    /// Answers a thread's request, which is then no longer one: the thread continues at this
    /// address of the cache when the caller resumes it.
    pub fn answer_request(&self, thread: &TranslatedThread, address: u64) {
        let shared = &self.window.shared;
        shared.store(thread.area.slot(slots::RESPONSE), address);
        shared.store(thread.area.slot(slots::REQUEST), 0);
    }
}

/// A thread's request for code that has no superblock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the edge at which the thread left its superblock, or [`slots::INDIRECT`].
    pub(super) number: u64,
    /// The target, if the request is for that of an indirect branch.
    pub(super) target: u64,
}

impl Request {
    /// Returns the program's address whose code the request asks for.
    pub(super) fn address(self, translator: &Translator<Arc<Shared>>) -> u64 {
        translator.requested_address(self.number, self.target)
    }

    /// Returns true if the request is for the target of an indirect branch.
    pub(super) fn is_indirect(self) -> bool {
        self.number == slots::INDIRECT
    }
}
