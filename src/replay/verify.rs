//! Compares a replay with the recorded run ([`Replay::verify`]). At each entry of the log, the run
//! itself compares registers and ticks, and fails if they differ. Where the recording has all
//! registers and memory, the differences become sentences of the [`Verdict`]:
//! 1. At each *keyframe*, a copy of the program's state, which is loaded into a second process
//!    ([`Replay::compare_keyframe`]). A sentence names what the keyframe has, and then what the
//!    replay has.
//! 2. At the end, of which the recording has a core file ([`Replay::compare_threads`],
//!    [`Replay::compare_memory`]). A sentence names what the replay has, and then what was
//!    recorded.
//!
//! *Foreign* memory, which processes outside the recording may have written, is not compared.

use super::epoch::Epoch;
use super::error::Error;
use super::goals::{Goals, MoveEnd};
use super::loading_keyframe::LoadingKeyframe;
use super::one_cpu::PinGuard;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, AddrRange, Tid};
use crate::image::core::Core;
use crate::image::{Bytes, Section};
use crate::insn::Registers;
use crate::insn::xsave::LAST_X87;
use crate::recording::log::{LogEvent, check_of};
use crate::sideband::{Mapping, Protection};
use crate::tracee::PageMap;
use std::collections::BTreeSet;

/// The result of a replay of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The number of log entries that were replayed.
    pub entries: u64,
    /// The number of ticks of all threads in the run.
    pub ticks: u64,
    /// The number of bytes of memory that were compared at the end.
    pub bytes: u64,
    /// The number of threads whose registers were compared at the end.
    pub threads: u64,
    /// The number of keyframes that were compared with the replay.
    pub keyframes: u64,
    /// The number of keyframes that could not be loaded.
    pub unusable: u64,
    /// True if the recording has the end of the run, with its memory, and the replay reached it.
    pub is_whole: bool,
    /// Differences at the keyframes and at the end, a sentence each.
    pub differences: Vec<String>,
}

const PAGE_BYTES: usize = 4096;
/// The number of bytes that are compared at a time.
const PIECE_BYTES: usize = 64 * PAGE_BYTES;
/// A mapping larger than this may be reserved rather than used.
const RESERVED_BYTES: u64 = 1 << 30;
/// The number of differences after which no more memory is compared.
const DIFFERENCES_LIMIT: usize = 20;

impl Replay {
    /// Replays the run from the current position to its end, and compares the state there, and at
    /// keyframes on the way, with the recorded one. Forgets the keyframes: later moves do not use
    /// them. If it is interrupted, or the recording lacks the end of the run or its memory there,
    /// returns what it has, without `is_whole`. Fails at a divergence. Call this at the beginning:
    /// if a keyframe is before the position, none is compared.
    pub fn verify(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Verdict, Error> {
        let mut verdict = Verdict { ticks: self.total_ticks(), ..Verdict::default() };
        let found = self.run_past_keyframes(interrupted, &mut verdict)?;
        verdict.entries = self.position().entry.saturating_sub(self.outline.first_entry());
        let last = self.cursor.peek()?.map(|entry| entry.event.clone());
        verdict.is_whole = found == MoveEnd::NoMoreHistory
            && matches!(last, Some(LogEvent::Finish { place: Some(_) }));
        if !verdict.is_whole {
            return Ok(verdict);
        }
        let Some(core) = self.reader.core()? else {
            // The program went on without its recorder.
            verdict.is_whole = false;
            return Ok(verdict);
        };
        match Core::parse(&Bytes::new(core)) {
            Ok(core) => {
                self.compare_threads(&core, &mut verdict)?;
                self.compare_memory(&core, &mut verdict);
            }
            Err(error) => verdict
                .differences
                .push(format!("the core file with the recorded end cannot be read: {error}")),
        }
        Ok(verdict)
    }

    /// Replays the run to its end, and compares it with the keyframes on the way, which are
    /// forgotten. The replay must be before the first of them that is not where the log begins.
    /// Returns why the run ended.
    fn run_past_keyframes(
        &mut self,
        interrupted: &dyn Fn() -> bool,
        verdict: &mut Verdict,
    ) -> Result<MoveEnd, Error> {
        let _pinned = PinGuard::begin();
        let none = BTreeSet::new();
        let goals = Goals::at(&none, interrupted);
        // The keyframe with which the log begins is where the replay begins.
        let mut keyframes = self.outline.keyframes();
        keyframes.retain(|entry| *entry > self.outline.first_entry());
        // The whole run is to be repeated, so no move may load a keyframe.
        for entry in &keyframes {
            self.outline.forget_keyframe(*entry);
        }
        for entry in keyframes {
            match self.run_until(Some((entry, 0)), &goals, &mut Watching::default())? {
                MoveEnd::Target => self.compare_keyframe(entry, verdict)?,
                found => return Ok(found),
            }
        }
        self.run_until(None, &goals, &mut Watching::default())
    }

    /// Loads a keyframe into a second process, compares it with the replay, which is at the same
    /// position, and adds the differences to the verdict. Only counts a keyframe that cannot be
    /// loaded.
    fn compare_keyframe(&mut self, entry: u64, verdict: &mut Verdict) -> Result<(), Error> {
        let reserved = self.outline.ranges_of(self.number);
        let loaded = LoadingKeyframe::load(entry, &self.reader, self.code, reserved);
        let Ok(mut loaded) = loaded else {
            // No replay begins there either.
            verdict.unusable += 1;
            return Ok(());
        };
        verdict.keyframes += 1;
        self.epoch.contexts.save(self.epoch.thread.tracee)?;
        loaded.contexts.save(loaded.thread.tracee)?;
        let differences = loaded.differences_from(&self.epoch, &|page| self.is_foreign(page));
        let named =
            differences.into_iter().map(|what| format!("the keyframe after entry {entry}: {what}"));
        verdict.differences.extend(named);
        Ok(())
    }

    /// Compares the general registers of the threads in the core file with the replay's. A thread
    /// that the replay lacks is a difference; one that only the replay has is not noticed.
    fn compare_threads(&self, core: &Core, verdict: &mut Verdict) -> Result<(), Error> {
        for thread in &core.contents.threads {
            let Some(replayed) = self.thread(thread.tid)? else {
                let tid = thread.tid;
                verdict.differences.push(format!("thread {tid} is not there"));
                continue;
            };
            verdict.threads += 1;
            if check_of(&replayed.registers) != check_of(&thread.registers) {
                verdict.differences.push(difference_of_registers(
                    thread.tid,
                    &replayed.registers,
                    &thread.registers,
                ));
            }
        }
        Ok(())
    }

    /// Compares the memory in the core file with the replay's, until there are
    /// [`DIFFERENCES_LIMIT`] differences in all. Memory that only the replay has is not noticed.
    fn compare_memory(&self, core: &Core, verdict: &mut Verdict) {
        for section in core.memory().sections() {
            self.compare_section(section, core, verdict);
        }
    }

    /// Compares a section of the core file with memory, page by page. Leaves out foreign memory,
    /// and pages that the core file does not have whole.
    fn compare_section(&self, section: &Section, core: &Core, verdict: &mut Verdict) {
        let mut at = section.range.start;
        while at < section.range.end && verdict.differences.len() < DIFFERENCES_LIMIT {
            let (mut recorded, mut replayed) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
            let known = core.read(at, &mut recorded);
            let there = self.read(at, &mut replayed);
            if known == PAGE_BYTES && !self.is_foreign(at) {
                verdict.bytes += PAGE_BYTES as u64;
                if there < PAGE_BYTES {
                    verdict.differences.push(format!("there is no memory at {at}"));
                } else if recorded != replayed
                    && let Some(first) = (0..PAGE_BYTES).find(|i| recorded[*i] != replayed[*i])
                {
                    let addr = at.wrapping_add(first as u64);
                    verdict.differences.push(format!(
                        "the byte at {addr} is {:#04x}, and was {:#04x}",
                        replayed[first], recorded[first]
                    ));
                }
            }
            at = Addr(at.0.saturating_add(PAGE_BYTES as u64));
        }
    }

    /// Returns true for a page that processes outside the recording may have written before the
    /// current position.
    fn is_foreign(&self, page: Addr) -> bool {
        let range = AddrRange::sized(page, PAGE_BYTES as u64);
        self.outline.is_foreign(self.number, self.position().entry, range)
    }
}

/// Returns the offset of the first byte in which two XSAVE areas differ, if they differ.
/// `XSTATE_BV`, the components that are not in their initial configuration (SDM volume 1, "XSAVE
/// Header"), depends on the processor and is not compared, nor is the address of the last x87
/// instruction, which is one of the code cache. The bytes that a program stores of them are logged.
fn difference_of_extended(keyframe: &[u8], replay: &[u8]) -> Option<usize> {
    const XSTATE_BV: std::ops::Range<usize> = 512..520;
    if keyframe.len() != replay.len() {
        return Some(keyframe.len().min(replay.len()));
    }
    let is_compared = |at: &usize| !XSTATE_BV.contains(at) && !LAST_X87.contains(at);
    (0..keyframe.len()).find(|at| keyframe[*at] != replay[*at] && is_compared(at))
}

impl Epoch {
    /// Returns the differences of threads, mappings and memory between this process, which a
    /// keyframe was loaded into, and that of the replay, which is at the same position: a sentence
    /// each. Once there are [`DIFFERENCES_LIMIT`], compares no further [`PIECE_BYTES`] of memory.
    /// Leaves out pages for which `is_foreign` returns true. Both have saved their contexts.
    fn differences_from(&self, replay: &Self, is_foreign: &dyn Fn(Addr) -> bool) -> Vec<String> {
        let mut differences = Vec::new();
        let (own, others): (Vec<Tid>, Vec<Tid>) =
            (self.contexts.tids().collect(), replay.contexts.tids().collect());
        if own != others {
            differences.push(format!("its threads are {own:?}, and were {others:?}"));
        }
        for tid in own {
            let (Some(own), Some(other)) = (self.contexts.get(tid), replay.contexts.get(tid))
            else {
                continue;
            };
            if check_of(&own.registers) != check_of(&other.registers) {
                differences.push(difference_of_registers(tid, &own.registers, &other.registers));
            }
            if let Some(at) = difference_of_extended(&own.extended.0, &other.extended.0) {
                differences.push(format!(
                    "thread {tid} has another extended state (byte {at} of its XSAVE area)"
                ));
            }
            if own.call != other.call {
                differences.push(format!("thread {tid} is in another call"));
            }
        }
        let (own, others) = (self.joined_mappings(), replay.joined_mappings());
        let longest = 0..own.len().max(others.len());
        if let Some(first) = longest.into_iter().find(|at| own.get(*at) != others.get(*at)) {
            let named = |of: Option<&(AddrRange, Protection)>| {
                of.map_or("nothing".to_owned(), |(range, protection)| {
                    format!("{range} {protection}")
                })
            };
            let (own, other) = (named(own.get(first)), named(others.get(first)));
            differences.push(format!("it maps {own} where the replay maps {other}"));
        }
        let (mut here, mut there) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let page = AddrRange::sized(self.page, 1);
        let ranges = self.engine.space.mappings().map(|mapping| mapping.range);
        let ranges = ranges.filter(|range| !range.overlaps(page));
        for range in ranges.flat_map(|range| self.parts_to_compare(replay, range)) {
            let mut at = range.start;
            while at < range.end && differences.len() < DIFFERENCES_LIMIT {
                let size = (range.end.0 - at.0).min(PIECE_BYTES as u64);
                let bytes = usize::try_from(size).unwrap_or(PIECE_BYTES);
                let (here, there) = (&mut here[..bytes], &mut there[..bytes]);
                if self.engine.memory.read(at, here) != bytes
                    || replay.engine.memory.read(at, there) != bytes
                    || here != there
                {
                    let piece = AddrRange::sized(at, size);
                    differences.extend(self.differing_pages(replay, piece, is_foreign));
                }
                at = Addr(at.0.saturating_add(size));
            }
        }
        differences
    }

    /// Returns the parts of a mapping that may differ from the replay's process: all of it, unless
    /// it is reserved rather than used. Then pages that neither process has touched are zeros, and
    /// left out. Memory that was mapped from the core file has contents without being touched, so
    /// it is always a part. If the touched pages are unknown, returns all of the mapping, too.
    fn parts_to_compare(&self, replay: &Self, range: AddrRange) -> Vec<AddrRange> {
        let is_zero_until_touched = |epoch: &Self| {
            let mut mappings = epoch.engine.space.mappings().filter(|m| m.range.overlaps(range));
            let is_file = |m: &Mapping| m.is_file() && !epoch.is_mapped_from_core(m.range);
            mappings.all(|mapping| !is_file(mapping) && !mapping.protection.shared)
        };
        let touched = |epoch: &Self| PageMap::open(epoch.pid())?.touched(range);
        let mapped = [self, replay].into_iter().flat_map(|epoch| &epoch.mapped_from_core);
        let mapped = mapped.filter(|mapped| mapped.overlaps(range));
        let from_core =
            mapped.map(|m| AddrRange::new(m.start.max(range.start), m.end.min(range.end)));
        let is_reserved = range.size_bytes() > RESERVED_BYTES
            && is_zero_until_touched(self)
            && is_zero_until_touched(replay);
        let both = is_reserved.then(|| touched(self).zip(touched(replay))).flatten();
        let Some((mut pages, others)) = both else { return vec![range] };
        pages.extend(others);
        let pages = pages.into_iter().map(|(range, _)| range);
        let mut parts: Vec<AddrRange> = pages.chain(from_core).collect();
        parts.sort_unstable_by_key(|part| part.start);
        parts.dedup_by(|next, last| {
            let continues = next.start <= last.end;
            last.end = if continues { last.end.max(next.end) } else { last.end };
            continues
        });
        parts
    }

    /// Returns a sentence for each page of a range that differs from the replay's process, or that
    /// one of the two lacks. Leaves out pages for which `is_foreign` returns true.
    fn differing_pages(
        &self,
        replay: &Self,
        range: AddrRange,
        is_foreign: &dyn Fn(Addr) -> bool,
    ) -> Vec<String> {
        let pages = (range.start.0..range.end.0).step_by(PAGE_BYTES).map(Addr);
        let differs = |at: &Addr| {
            let (mut own, mut others) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
            let known = self.engine.memory.read(*at, &mut own);
            let there = replay.engine.memory.read(*at, &mut others);
            (known != there || own != others) && !is_foreign(*at)
        };
        pages.filter(differs).map(|at| format!("the page at {at} is another one")).collect()
    }

    /// Returns the ranges of the program's memory, without the replay's own page, with their
    /// protections. Neighbours with the same protection are one: the kernel joined them in the
    /// recorded process, but not in a replay that maps copies of the files.
    fn joined_mappings(&self) -> Vec<(AddrRange, Protection)> {
        let page = AddrRange::sized(self.page, 1);
        let mut parts: Vec<(AddrRange, Protection)> = Vec::new();
        for mapping in self.engine.space.mappings() {
            let (range, protection) = (mapping.range, mapping.protection);
            match parts.last_mut() {
                _ if range.overlaps(page) => {}
                Some((last, of)) if last.end == range.start && *of == protection => {
                    last.end = range.end;
                }
                _ => parts.push((range, protection)),
            }
        }
        parts
    }
}

/// Returns a sentence that names the registers of a thread that differ: it has those of `now`, and
/// had those of `was`.
fn difference_of_registers(tid: Tid, now: &Registers, was: &Registers) -> String {
    let pairs = now.to_words().into_iter().zip(was.to_words());
    let named = Registers::NAMES.into_iter().zip(pairs).filter(|(name, _)| *name != "orig_rax");
    let others: Vec<String> = named
        .filter(|(_, (now, was))| now != was)
        .map(|(name, (now, was))| format!("{name} {now:#x}, and was {was:#x}"))
        .collect();
    format!("thread {tid} has {}", others.join("; "))
}
