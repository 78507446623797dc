//! Writes the final state: the core of a process all of whose threads are at their exit stops.
//! Includes only memory that no stored file contains.

use super::error::Error;
use super::recorder::Recorder;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::visible;
use crate::image::core::{
    self, CoreContents, CoreMemory, CoreSegment, FileMapping, ProcessInfo, Thread,
};
use crate::insn::Registers;
use crate::sideband::Mapping;
use crate::tracee::{
    Memory, PageState, SiginfoBytes, Tracee, auxv, mappings, private_pages, undumped,
};
use std::io::BufWriter;

const PAGE_BYTES: u64 = 4096;
/// A mapping larger than this is reserved rather than used (sanitizers, garbage collectors): its
/// bytes are omitted, and are unknown afterwards.
const SEGMENT_LIMIT_BYTES: u64 = 16 << 30;
/// Shared memory of a file is as large as its file; above this size it is omitted.
const SHARED_LIMIT_BYTES: u64 = 64 << 20;
const NT_PRFPREG: u32 = 2;
const NT_X86_XSTATE: u32 = 0x202;

/// Reads a stopped thread's registers; `None` if it is gone.
pub(super) fn thread(tracee: Tracee, siginfo: Option<SiginfoBytes>) -> Option<Thread> {
    Some(thread_with(tracee, &tracee.registers().ok()?, siginfo))
}

/// Reads a stopped thread's state, with general registers that are already known.
pub(super) fn thread_with(
    tracee: Tracee,
    registers: &Registers,
    siginfo: Option<SiginfoBytes>,
) -> Thread {
    Thread {
        tid: tracee.0,
        registers: *registers,
        fpregs: tracee.register_set(NT_PRFPREG).ok(),
        xstate: tracee.register_set(NT_X86_XSTATE).ok(),
        siginfo: siginfo.map(|info| info.to_vec()),
        ..Thread::default()
    }
}

/// Sets a thread's extended state, in XSAVE layout.
pub(super) fn set_extended_state(tracee: Tracee, area: &[u8]) -> Result<(), Error> {
    Ok(tracee.set_register_set(NT_X86_XSTATE, area)?)
}

/// Writes the core. `threads` are in gdb's order: the one that ended the process is first. `hidden`
/// is the recorder's memory. Returns the mappings whose memory it has.
pub(super) fn write(
    recorder: &Recorder,
    memory: &Memory,
    threads: Vec<Thread>,
    signal: i32,
    hidden: &[AddrRange],
) -> Result<Vec<AddrRange>, Error> {
    let pid = recorder.pid();
    let maps = visible(mappings(pid)?, hidden);
    let mut pages = Pages { pid, range: AddrRange::default(), states: None };
    let undumped = undumped(pid);
    let segment = |mapping: &Mapping| {
        let whole = segment(mapping, &mut pages);
        let is_dumped = whole.dumped && !undumped.contains(&mapping.range.start.0);
        CoreSegment { dumped: is_dumped, ..whole }
    };
    let contents = CoreContents {
        threads,
        signal,
        process: process_info(pid),
        auxv: auxv(pid),
        mappings: maps.iter().filter(|m| m.is_file()).map(file_mapping).collect(),
        segments: maps.iter().filter(|m| is_memory(m)).map(segment).collect(),
    };
    let mut out = BufWriter::new(recorder.writer().core_file()?);
    core::write(&mut out, &contents, &mut FinalMemory { memory, maps: &maps, pages })?;
    let dumped = contents.segments.iter().filter(|segment| segment.dumped);
    Ok(dumped.map(|segment| segment.range).collect())
}

fn process_info(pid: Pid) -> ProcessInfo {
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let arguments: Vec<u8> = read("cmdline").into_iter().map(|b| b.max(b' ')).collect();
    ProcessInfo {
        pid,
        name: read("comm").trim_ascii_end().to_vec(),
        arguments: arguments.trim_ascii_end().to_vec(),
        user_id: nix::unistd::getuid().as_raw(),
        group_id: nix::unistd::getgid().as_raw(),
        ..ProcessInfo::default()
    }
}

fn file_mapping(mapping: &Mapping) -> FileMapping {
    FileMapping {
        range: mapping.range,
        offset: mapping.offset,
        path: mapping.name.as_bytes().to_vec(),
    }
}

/// Returns true for memory that may be read: device memory may react to it, and the vsyscall page
/// is the kernel's.
fn is_memory(mapping: &Mapping) -> bool {
    let device = mapping.name.starts_with("/dev/")
        && !mapping.name.starts_with("/dev/shm/")
        && !mapping.name.starts_with("/dev/zero");
    !device && mapping.name != "[vsyscall]" && !mapping.name.starts_with("[vvar")
}

fn segment(mapping: &Mapping, pages: &mut Pages) -> CoreSegment {
    let protection = mapping.protection;
    let size = mapping.range.size_bytes();
    let accessible = protection.read || protection.write || protection.execute;
    let fits = size <= if protection.shared { SHARED_LIMIT_BYTES } else { SEGMENT_LIMIT_BYTES };
    let clean_file = mapping.is_file() && !protection.shared && pages.are_of_file(mapping.range);
    CoreSegment {
        range: mapping.range,
        readable: protection.read,
        writable: protection.write,
        executable: protection.execute,
        dumped: accessible && fits && !clean_file,
    }
}

/// The states of the pages of a mapping, so that absent pages are not created by reading them.
struct Pages {
    pid: Pid,
    range: AddrRange,
    states: Option<Vec<PageState>>,
}

impl Pages {
    fn load(&mut self, range: AddrRange) {
        if self.range != range {
            let fits = range.size_bytes() <= SEGMENT_LIMIT_BYTES;
            self.states = if fits { private_pages(self.pid, range) } else { None };
            self.range = range;
        }
    }

    fn are_of_file(&mut self, range: AddrRange) -> bool {
        self.load(range);
        self.states.as_ref().is_some_and(|states| !states.contains(&PageState::Private))
    }

    /// Returns the first pages of `range`, in the loaded mapping, that were never touched.
    fn first_absent(&self, range: AddrRange) -> Option<AddrRange> {
        let page_of = |addr: Addr| usize::try_from((addr.0 - self.range.start.0) / PAGE_BYTES).ok();
        let states = self.states.as_ref()?.get(page_of(range.start)?..page_of(range.end)?)?;
        let is_absent = |state: &PageState| *state == PageState::Absent;
        let first = states.iter().position(is_absent)?;
        let count = states[first..].iter().take_while(|state| is_absent(state)).count();
        let start = range.start.wrapping_add(first as u64 * PAGE_BYTES);
        Some(AddrRange::sized(start, count as u64 * PAGE_BYTES))
    }
}

/// The memory of the process, as the core's writer reads it.
struct FinalMemory<'a> {
    memory: &'a Memory,
    maps: &'a [Mapping],
    pages: Pages,
}

impl CoreMemory for FinalMemory<'_> {
    fn read(&mut self, addr: Addr, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    /// Finds untouched pages: those without a file are zeros.
    fn untouched(&mut self, range: AddrRange) -> Option<AddrRange> {
        let at = self.maps.partition_point(|mapping| mapping.range.end <= range.start);
        let mapping = self.maps.get(at).filter(|mapping| !mapping.is_file())?;
        self.pages.load(mapping.range);
        self.pages.first_absent(range)
    }
}

/// Sorts the threads of a core: the one that ended the process comes first, the others by number.
pub(super) fn in_order(mut threads: Vec<Thread>, first: Tid) -> Vec<Thread> {
    threads.sort_by_key(|thread| (thread.tid != first, thread.tid));
    threads
}
