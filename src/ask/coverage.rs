//! The lines, functions and branches that were executed, with the counts that a tracefile of lcov
//! has (geninfo(1)).

use super::error::Error;
use super::opened::Asked;
use crate::common::{Addr, AddrRange};
use crate::flow::Exit;
use crate::timeline::CountedBlocks;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The counts of one source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCoverage {
    /// The executions of each line that has code, by line number: the maximum over its
    /// instructions.
    pub lines: BTreeMap<u32, u64>,
    /// The line of each function, and the executions of its first instruction, by function name; of
    /// several with the same name, those of one.
    pub functions: BTreeMap<String, (u32, u64)>,
    /// For each executed conditional branch, by its line and address: how often it was taken, and
    /// how often it was not.
    pub branches: BTreeMap<(u32, Addr), (u64, u64)>,
}

impl Asked {
    /// Returns the coverage of each source file, by path, of the program and of its libraries.
    /// Leaves out those without debug information in the file that was mapped, so the result may be
    /// empty. Lines and functions that were not executed are included, with count 0; branches that
    /// were not executed are left out. `None`: `interrupted` returned true. At present there is no
    /// error.
    pub fn coverage(
        &self,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<BTreeMap<Arc<str>, FileCoverage>>, Error> {
        let Some(blocks) = self.counted_blocks(interrupted) else { return Ok(None) };
        let mut counts: BTreeMap<Addr, u64> = BTreeMap::new();
        for block in blocks.values() {
            for addr in &block.addrs {
                *counts.entry(*addr).or_insert(0) += block.count;
            }
        }
        let functions = self.functions();
        let mut files: BTreeMap<Arc<str>, FileCoverage> = BTreeMap::new();
        let mut lines: HashMap<Addr, (Arc<str>, u32)> = HashMap::new();
        for source in self.symbols.source_lines() {
            let file = files.entry(source.file.clone()).or_default();
            let most = counts.range(source.range.start..source.range.end);
            let most = most.map(|(_, count)| *count).max().unwrap_or(0);
            let line = file.lines.entry(source.line).or_default();
            *line = (*line).max(most);
            let start = source.range.start;
            if let Some(function) = functions.at(start).filter(|function| function.start == start) {
                let count = counts.get(&start).copied().unwrap_or(0);
                file.functions.insert(function.name.to_string(), (source.line, count));
            }
            add_lines(&mut lines, &source.range, &counts, &source.file, source.line);
        }
        for ((.., exit), block) in &blocks {
            let Some((at, (file, line))) =
                block.addrs.last().and_then(|at| Some((*at, lines.get(at)?)))
            else {
                continue;
            };
            let Some(file) = files.get_mut(file) else { continue };
            let (taken, not_taken) = match exit {
                Exit::Taken => (block.count, 0),
                Exit::NotTaken => (0, block.count),
                _ => continue,
            };
            let branch = file.branches.entry((*line, at)).or_default();
            branch.0 += taken;
            branch.1 += not_taken;
        }
        Ok(Some(files))
    }

    /// Counts the blocks of all threads. `None`: `interrupted` returned true.
    fn counted_blocks(&self, interrupted: &(dyn Fn() -> bool + Sync)) -> Option<CountedBlocks> {
        let mut all = CountedBlocks::default();
        let add = |one: CountedBlocks| {
            for (key, block) in one {
                let known = all.entry(key).or_default();
                known.count += block.count;
                if known.addrs.is_empty() {
                    known.addrs = block.addrs;
                }
            }
        };
        let count = |tid, _: &AtomicBool| self.timeline.count_blocks(tid, interrupted);
        self.for_each_thread(count, add, interrupted).then_some(all)
    }
}

/// Sets the entry in `lines` of each executed instruction in a range of code to `file` and `line`.
fn add_lines(
    lines: &mut HashMap<Addr, (Arc<str>, u32)>,
    range: &AddrRange,
    counts: &BTreeMap<Addr, u64>,
    file: &Arc<str>,
    line: u32,
) {
    for (addr, _) in counts.range(range.start..range.end) {
        lines.insert(*addr, (file.clone(), line));
    }
}
