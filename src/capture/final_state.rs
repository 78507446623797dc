//! Writes the final state: a core file of a process all of whose threads are stopped. Includes only
//! memory that no stored file contains.

use super::error::Error;
use super::recorder::Recorder;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::visible;
use crate::image::core::{
    self, CoreContents, CoreMemory, CoreSegment, FileMapping, ProcessInfo, Thread,
};
use crate::insn::Registers;
use crate::insn::xsave::forget_last_x87;
use crate::sideband::Mapping;
use crate::tracee::{
    Memory, PageMap, PageState, SiginfoBytes, Tracee, auxv, mappings, real_group_id, real_user_id,
    undumped_mappings,
};
use std::io::BufWriter;

/// A mapping larger than this is likely reserved rather than used (sanitizers, garbage collectors):
/// the core has segments only for its ranges of touched pages.
const SEGMENT_LIMIT_BYTES: u64 = 16 << 30;
/// The maximum number of such ranges in one mapping.
const MOST_PARTS: usize = 1000;
/// Touched ranges with a smaller gap than this become one segment.
const PART_GAP_BYTES: u64 = 64 << 10;
/// Shared mappings larger than this are omitted, since they are as large as their file.
const SHARED_LIMIT_BYTES: u64 = 64 << 20;
const NT_PRFPREG: u32 = 2;
const NT_X86_XSTATE: u32 = 0x202;

/// Reads all registers of a stopped thread; `None` if it is gone.
pub(super) fn read_thread(tracee: Tracee, siginfo: Option<SiginfoBytes>) -> Option<Thread> {
    Some(read_thread_with(tracee, &tracee.registers().ok()?, siginfo))
}

/// Returns the state of a stopped thread with these general registers. Reads its other registers.
pub(super) fn read_thread_with(
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

/// Returns the state of a thread that ran translated, with the address of the last x87 instruction
/// marked as unknown: it is an address in the code cache.
pub(super) fn forget_cache_address(mut thread: Thread) -> Thread {
    for area in thread.fpregs.iter_mut().chain(&mut thread.xstate) {
        forget_last_x87(area);
    }
    thread
}

/// Sets the extended registers of a stopped thread (x87, SSE, AVX...), in XSAVE layout.
pub(super) fn set_extended_state(tracee: Tracee, area: &[u8]) -> Result<(), Error> {
    Ok(tracee.set_register_set(NT_X86_XSTATE, area)?)
}

/// Writes the core file of the recorded process. `threads` are in gdb's order: the one that ended
/// the process is first ([`sort_threads`]). `signal` is the signal that did, or 0. The ranges
/// `hidden`, memory that the recorder mapped in the process, are omitted. Memory that the program
/// excluded from cores has no contents. Returns the mappings of which the core has contents, each
/// as a whole, even if only parts of it do.
pub(super) fn write_core(
    recorder: &Recorder,
    memory: &Memory,
    threads: Vec<Thread>,
    signal: i32,
    hidden: &[AddrRange],
) -> Result<Vec<AddrRange>, Error> {
    let pid = recorder.pid();
    let maps = visible(mappings(pid)?, hidden);
    let mut pages =
        TouchedPages { map: PageMap::open(pid), range: AddrRange::default(), touched: None };
    let undumped = undumped_mappings(pid);
    let (mut segments, mut dumped_mappings) = (Vec::new(), Vec::new());
    for mapping in maps.iter().filter(|mapping| is_memory(mapping)) {
        let whole = segment(mapping, &mut pages);
        let is_dumped = whole.dumped && !undumped.contains(&mapping.range.start.0);
        let whole = CoreSegment { dumped: is_dumped, ..whole };
        let is_in_parts = is_dumped && !mapping.protection.shared && is_large(mapping.range);
        let parts = if is_in_parts { pages.touched_segments(&whole) } else { vec![whole] };
        dumped_mappings.extend(parts.iter().any(|part| part.dumped).then_some(mapping.range));
        segments.extend(parts);
    }
    let contents = CoreContents {
        threads,
        signal,
        process: process_info(pid),
        auxv: auxv(pid),
        mappings: maps.iter().filter(|m| m.is_file()).map(file_mapping).collect(),
        segments,
    };
    let mut out = BufWriter::new(recorder.writer().core_file()?);
    core::write(&mut out, &contents, &mut FinalMemory { memory, maps: &maps, pages })?;
    Ok(dumped_mappings)
}

/// Returns the facts of a process for its core file, with its real user and group. Those that
/// cannot be read are empty or 0.
fn process_info(pid: Pid) -> ProcessInfo {
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let arguments: Vec<u8> = read("cmdline").into_iter().map(|b| b.max(b' ')).collect();
    ProcessInfo {
        pid,
        name: read("comm").trim_ascii_end().to_vec(),
        arguments: arguments.trim_ascii_end().to_vec(),
        user_id: real_user_id(pid).unwrap_or_default(),
        group_id: real_group_id(pid).unwrap_or_default(),
        ..ProcessInfo::default()
    }
}

/// Returns a mapping of a file, as the core file lists it.
fn file_mapping(mapping: &Mapping) -> FileMapping {
    FileMapping {
        range: mapping.range,
        offset: mapping.offset,
        path: mapping.name.as_bytes().to_vec(),
    }
}

/// Returns true for memory that may be read. Device memory may react to reads, and the vsyscall
/// page is the kernel's.
fn is_memory(mapping: &Mapping) -> bool {
    let device = mapping.name.starts_with("/dev/")
        && !mapping.name.starts_with("/dev/shm/")
        && !mapping.name.starts_with("/dev/zero");
    !device && mapping.name != "[vsyscall]" && !mapping.name.starts_with("[vvar")
}

/// Returns the segment of a mapping. It has no contents if the memory is inaccessible, is too
/// large, or is private and that of an unchanged file. Private memory is never too large if its
/// touched pages are known: the caller then divides it ([`TouchedPages::touched_segments`]).
fn segment(mapping: &Mapping, pages: &mut TouchedPages) -> CoreSegment {
    let protection = mapping.protection;
    let accessible = protection.read || protection.write || protection.execute;
    let fits = if protection.shared {
        mapping.range.size_bytes() <= SHARED_LIMIT_BYTES
    } else {
        !is_large(mapping.range) || pages.are_known_in(mapping.range)
    };
    let clean_file =
        mapping.is_file() && !protection.shared && pages.has_no_private_pages(mapping.range);
    CoreSegment {
        range: mapping.range,
        readable: protection.read,
        writable: protection.write,
        executable: protection.execute,
        dumped: accessible && fits && !clean_file,
    }
}

/// Returns true if a mapping is so large that it is likely reserved rather than used.
fn is_large(range: AddrRange) -> bool {
    range.size_bytes() > SEGMENT_LIMIT_BYTES
}

/// The touched pages of one mapping, which is loaded when it is needed. Other pages are not read,
/// since reading would create them.
struct TouchedPages {
    map: Option<PageMap>,
    range: AddrRange,
    touched: Option<Vec<(AddrRange, PageState)>>,
}

impl TouchedPages {
    /// Loads the touched pages of the mapping at `range`, unless they are those that are loaded.
    fn load_for(&mut self, range: AddrRange) {
        if self.range != range {
            self.touched = self.map.as_ref().and_then(|map| map.touched(range));
            self.range = range;
        }
    }

    /// Returns true if the touched pages of a mapping are known.
    fn are_known_in(&mut self, range: AddrRange) -> bool {
        self.load_for(range);
        self.touched.is_some()
    }

    /// Returns true if the process is known to have no private copies of a mapped file's pages, so
    /// that its memory there is the file's content.
    fn has_no_private_pages(&mut self, range: AddrRange) -> bool {
        self.load_for(range);
        let is_own = |(_, state): &(AddrRange, PageState)| *state == PageState::Private;
        self.touched.as_ref().is_some_and(|touched| !touched.iter().any(is_own))
    }

    /// Returns segments for the touched ranges of a mapping, and segments without contents between
    /// them. Joins near ranges, over untouched pages, until there are at most [`MOST_PARTS`]. If a
    /// joined range is too large ([`is_large`]), or the touched pages are unknown, returns one
    /// segment without contents.
    fn touched_segments(&mut self, whole: &CoreSegment) -> Vec<CoreSegment> {
        self.load_for(whole.range);
        let touched = self.touched.iter().flatten();
        let mut parts: Vec<AddrRange> = touched.map(|(range, _)| *range).collect();
        let mut gap = PART_GAP_BYTES;
        loop {
            parts.dedup_by(|next, last| {
                let is_near = next.start.0 - last.end.0 < gap;
                last.end = if is_near { next.end } else { last.end };
                is_near
            });
            if parts.len() <= MOST_PARTS {
                break;
            }
            gap = gap.saturating_mul(4);
        }
        if parts.iter().any(|part| is_large(*part)) {
            return vec![CoreSegment { dumped: false, ..*whole }];
        }
        let mut at = whole.range.start;
        let mut segments = Vec::new();
        let between =
            |start, end| CoreSegment { range: AddrRange::new(start, end), dumped: false, ..*whole };
        for range in parts {
            segments.extend((at < range.start).then(|| between(at, range.start)));
            segments.push(CoreSegment { range, ..*whole });
            at = range.end;
        }
        segments.extend((at < whole.range.end).then(|| between(at, whole.range.end)));
        segments
    }

    /// Returns the first range of pages in `range`, within the loaded mapping, that were never
    /// touched; `None` if there is none, or if unknown.
    fn first_untouched(&self, range: AddrRange) -> Option<AddrRange> {
        let touched = self.touched.as_ref()?;
        let mut at = range.start;
        let first = touched.partition_point(|(touched, _)| touched.end <= at);
        for (touched, _) in touched.get(first..)? {
            if at < touched.start {
                break;
            }
            at = touched.end;
        }
        let next =
            touched.get(touched.partition_point(|(touched, _)| touched.start < at)..)?.first();
        let end = next.map_or(range.end, |(touched, _)| touched.start.min(range.end));
        (at < end).then(|| AddrRange::new(at, end))
    }
}

/// The memory of the process, as the core's writer reads it.
struct FinalMemory<'a> {
    memory: &'a Memory,
    maps: &'a [Mapping],
    pages: TouchedPages,
}

impl CoreMemory for FinalMemory<'_> {
    fn read(&mut self, addr: Addr, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    /// Returns the first untouched pages in `range`, which contain zeros; `None` if there are none,
    /// or for a mapped file.
    fn untouched(&mut self, range: AddrRange) -> Option<AddrRange> {
        let at = self.maps.partition_point(|mapping| mapping.range.end <= range.start);
        let mapping = self.maps.get(at).filter(|mapping| !mapping.is_file())?;
        self.pages.load_for(mapping.range);
        self.pages.first_untouched(range)
    }
}

/// Sorts the threads of a core file: `first`, which ended the process, comes first, the others by
/// number.
pub(super) fn sort_threads(mut threads: Vec<Thread>, first: Tid) -> Vec<Thread> {
    threads.sort_by_key(|thread| (thread.tid != first, thread.tid));
    threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_process_has_its_own_user_and_group() {
        const NOBODY: u32 = 65_534;
        let mut command = Command::new("sleep");
        let Ok(mut child) = command.arg("60").uid(NOBODY).gid(NOBODY - 1).spawn() else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: only root can become another user");
            return;
        };
        let info = process_info(Pid(child.id().cast_signed()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((info.user_id, info.group_id), (NOBODY, NOBODY - 1));
    }
}
