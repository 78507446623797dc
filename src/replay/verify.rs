//! Compares a replay with the recorded run: at each entry of the log and, where the recording has
//! all registers and memory, at the end.

use super::error::Error;
use super::process::Replay;
use super::run::Found;
use crate::common::{Addr, Tid};
use crate::image::core::Core;
use crate::image::{Bytes, Section};
use crate::insn::Registers;
use crate::recording::log::{Happening, check_of};

/// The result of a replay of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The entries of the log.
    pub entries: u64,
    /// The ticks of all threads.
    pub ticks: u64,
    /// Bytes of memory that were compared at the end.
    pub bytes: u64,
    /// Threads whose registers were compared at the end.
    pub threads: u64,
    /// True if the recording has the end of the run.
    pub is_whole: bool,
    /// Differences at the end, a sentence each.
    pub differences: Vec<String>,
}

const PAGE_BYTES: usize = 4096;
/// The largest number of differences that are reported.
const MOST: usize = 20;

impl Replay {
    /// Replays the run to its end, and compares the state there with the recorded one.
    pub fn verify(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Verdict, Error> {
        let mut verdict = Verdict { ticks: self.total_ticks(), ..Verdict::default() };
        let found = self.go_to_end(interrupted)?;
        verdict.entries = self.position().entry;
        let last = self.cursor.peek()?.map(|entry| entry.happening.clone());
        verdict.is_whole =
            found == Found::End && matches!(last, Some(Happening::Finish { place: Some(_) }));
        if !verdict.is_whole {
            return Ok(verdict);
        }
        let Some(core) = self.reader.core()? else {
            // The program went on without its recorder.
            verdict.is_whole = false;
            return Ok(verdict);
        };
        if let Ok(core) = Core::parse(&Bytes::new(core)) {
            self.compare_threads(&core, &mut verdict)?;
            self.compare_memory(&core, &mut verdict);
        }
        Ok(verdict)
    }

    fn compare_threads(&self, core: &Core, verdict: &mut Verdict) -> Result<(), Error> {
        for thread in &core.contents.threads {
            let Some(own) = self.thread(thread.tid)? else {
                let tid = thread.tid;
                verdict.differences.push(format!("thread {tid} is not there"));
                continue;
            };
            verdict.threads += 1;
            if check_of(&own.registers) != check_of(&thread.registers) {
                verdict.differences.push(difference(thread.tid, &own.registers, &thread.registers));
            }
        }
        Ok(())
    }

    fn compare_memory(&self, core: &Core, verdict: &mut Verdict) {
        for section in core.memory().sections() {
            self.compare_section(section, core, verdict);
        }
    }

    fn compare_section(&self, section: &Section, core: &Core, verdict: &mut Verdict) {
        let mut at = section.range.start;
        while at < section.range.end && verdict.differences.len() < MOST {
            let (mut recorded, mut own) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
            let known = core.read(at, &mut recorded);
            let there = self.read(at, &mut own);
            if known == PAGE_BYTES {
                verdict.bytes += PAGE_BYTES as u64;
                if there < PAGE_BYTES {
                    verdict.differences.push(format!("there is no memory at {at}"));
                } else if let Some(first) = (0..PAGE_BYTES).find(|i| recorded[*i] != own[*i]) {
                    let addr = at.wrapping_add(first as u64);
                    verdict.differences.push(format!(
                        "the byte at {addr} is {:#04x}, and was {:#04x}",
                        own[first], recorded[first]
                    ));
                }
            }
            at = Addr(at.0.saturating_add(PAGE_BYTES as u64));
        }
    }
}

fn difference(tid: Tid, own: &Registers, recorded: &Registers) -> String {
    let pairs = own.to_words().into_iter().zip(recorded.to_words());
    let named = Registers::NAMES.into_iter().zip(pairs).filter(|(name, _)| *name != "orig_rax");
    let others: Vec<String> = named
        .filter(|(_, (own, recorded))| own != recorded)
        .map(|(name, (own, recorded))| format!("{name} {own:#x}, and was {recorded:#x}"))
        .collect();
    format!("thread {tid} has {}", others.join("; "))
}
