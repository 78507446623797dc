//! Where two runs of a program part, with the values that decided it, and where they meet again.
//!
//! Files that are the same in both recordings are compared by their instructions, others by
//! functions and lines. Threads are compared in the order of their beginnings. A path is compared
//! as a sequence of *stretches* ([`Stretch`]), which a walker sends: instructions in a straight
//! line up to a branch, or in other files, those of one line. Two stretches are the same if their
//! first instructions are at the same place in the code.
//!
//! For each two threads, the stretches that both have in common are skipped. Where the next ones
//! differ, the paths are read on to where they meet again (`meet`), the difference is passed on,
//! and the comparison goes on from there.

mod depths;
mod meet;
mod stream;
mod values;

use super::error::Error;
use super::opened::Asked;
use super::place::Place;
use crate::common::{Addr, Tid};
use crate::flow::Exit;
use crate::image::{Bytes, Section};
use meet::{Item, Items, Meeting, meet};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use stream::{Stream, Stretch, name_of, stretches};

/// The maximum number of chunks of a path that wait to be received from its walker.
const AHEAD: usize = 8;

/// Two recordings that are compared.
pub struct Pair<'a> {
    /// The first recording, the good one, and the bad one, which is compared with it.
    pub runs: [&'a mut Asked; 2],
    /// True if differences in libraries count.
    pub with_libraries: bool,
}

/// A difference between two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The thread in each run.
    pub threads: [Tid; 2],
    /// The last instruction that both runs executed, as a step of each; of no meaning for
    /// [`Cause::Beginning`]. If an event interrupted one run in a straight line of instructions,
    /// the step of the other run is the last one of this line.
    pub at: [Step; 2],
    /// The next instruction of each run. `None`: its thread ended.
    pub next: [Option<Step>; 2],
    /// The cause of the difference.
    pub cause: Cause,
    /// The values that decided a branch: their names, and their texts in both runs. Empty if they
    /// are unknown, or if the cause is no branch.
    pub values: Vec<(String, [String; 2])>,
    /// The first instruction of each run after the threads meet again. `None` if they do not.
    pub meeting: Option<[Step; 2]>,
}

/// The cause of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A conditional branch was taken in one of the runs only.
    Branch,
    /// A return, or an indirect jump or call, had different targets.
    Target,
    /// A signal in one of the runs, the end of a thread, or any other cause.
    Event,
    /// The threads did not begin at the same place.
    Beginning,
}

/// An instruction of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The position of the instruction.
    pub position: u64,
    /// The number of the instruction, counted per thread.
    pub index: u64,
    /// The address of the instruction.
    pub addr: Addr,
    /// The function and line of the instruction.
    pub place: Arc<Place>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The number of differences that were passed on to the sink.
    pub reported: u64,
    /// The number of differences that were left out, since they are in libraries.
    pub in_libraries: u64,
    /// The number of threads that only one of the runs has.
    pub lone_threads: u64,
    /// True if a comparison of two threads ended early: they did not meet again within the part of
    /// their paths that is searched.
    pub is_cut: bool,
}

/// Takes each difference when it is found. A `Break` ends the search.
type Sink<'a> = &'a mut dyn FnMut(Difference) -> Result<ControlFlow<()>, Error>;

impl Pair<'_> {
    /// Compares the runs, thread by thread, and passes each difference to `sink`, until `sink`
    /// breaks or `interrupted` returns true: then returns what was compared until there, as after a
    /// whole comparison; the caller knows which it was. The partner of a thread is that of the same
    /// rank in the order of beginnings. A thread without one is only counted, as is a difference in
    /// a library, unless `with_libraries`.
    pub fn compare(
        &mut self,
        sink: Sink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Compared, Error> {
        let mut compared = Compared::default();
        let [good, bad] = [self.runs[0].tids(), self.runs[1].tids()];
        compared.lone_threads = good.len().abs_diff(bad.len()) as u64;
        let same_files = same_files(self.runs[0], self.runs[1]);
        for threads in good.into_iter().zip(bad).map(|(good, bad)| [good, bad]) {
            let found =
                self.compare_threads(threads, &same_files, &mut compared, sink, interrupted)?;
            if found.is_break() || interrupted() {
                break;
            }
        }
        Ok(compared)
    }

    /// Compares a thread of each run, and adds to `compared`. Breaks if the sink broke or the user
    /// interrupted it. Takes the replays out of the runs, and puts them back before it returns.
    fn compare_threads(
        &mut self,
        threads: [Tid; 2],
        same_files: &BTreeSet<String>,
        compared: &mut Compared,
        sink: Sink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ControlFlow<()>, Error> {
        // The replays are needed to read values; all else is shared with the walkers.
        let mut replays = self.runs.each_mut().map(|run| run.replay.take());
        let runs = self.runs.each_ref().map(|run| &**run);
        let result = thread::scope(|scope| {
            let mut streams = [0, 1].map(|side| {
                let (sender, chunks) = sync_channel(AHEAD);
                let (run, tid) = (runs[side], threads[side]);
                scope.spawn(move || stretches(run, tid, same_files, sender));
                Stream::new(chunks)
            });
            let with_libraries = self.with_libraries;
            let comparison = Comparison { runs, threads, with_libraries };
            let mut find_values = |at: &[Stretch; 2], difference: &mut Difference| {
                if let [Some(good), Some(bad)] = &mut replays {
                    difference.values = comparison.values([good, bad], at)?;
                }
                Ok(())
            };
            comparison.walk(&mut streams, &mut find_values, compared, sink, interrupted)
        });
        for (run, replay) in self.runs.iter_mut().zip(replays) {
            run.replay = replay;
        }
        result
    }
}

/// A comparison of one thread of each run.
struct Comparison<'a> {
    runs: [&'a Asked; 2],
    threads: [Tid; 2],
    with_libraries: bool,
}

/// Adds the values that decided a branch to its difference.
type FindValues<'a> = &'a mut dyn FnMut(&[Stretch; 2], &mut Difference) -> Result<(), Error>;

impl Comparison<'_> {
    /// Skips common stretches. Where there are none, counts the difference in `compared`, and
    /// passes it to the sink; one in libraries is only counted, unless they were asked for.
    /// Continues until a path ends or the paths do not meet again. Breaks if the sink broke or the
    /// user interrupted it.
    fn walk(
        &self,
        streams: &mut [Stream; 2],
        find_values: FindValues<'_>,
        compared: &mut Compared,
        sink: Sink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ControlFlow<()>, Error> {
        let mut before: Option<[Stretch; 2]> = None;
        while !interrupted() {
            if let Some(common) = Stream::pass_common(streams) {
                before = Some(common);
                continue;
            }
            // Looks at the next stretches, and leaves them in the streams.
            let next = streams.each_mut().map(Items::next);
            if next == [None, None] {
                return Ok(ControlFlow::Continue(()));
            }
            for (stream, item) in streams.iter_mut().zip(next) {
                stream.put_back(item.as_slice());
            }
            let depths = before.map_or([0, 0], |items| items.map(|item| item.depth()));
            // Moves both streams to where they meet again. If they do not, as one ends
            // (`Meeting::Ended`) or the place is too far, what was read is gone: this is the end.
            let [good, bad] = streams;
            let meeting = meet([good, bad], depths);
            compared.is_cut |= meeting == Meeting::Far;
            let met = if meeting == Meeting::Met {
                // The first stretches after the meeting, which stay in the streams.
                let met = streams.each_mut().map(Items::next);
                for (stream, item) in streams.iter_mut().zip(met) {
                    stream.put_back(item.as_slice());
                }
                met
            } else {
                [None, None]
            };
            let at = before.unwrap_or_else(|| next.map(|item| item.unwrap_or(Stretch::NONE)));
            if !self.with_libraries && !self.is_own(&at) {
                compared.in_libraries += 1;
            } else {
                compared.reported += 1;
                let mut difference = self.difference(&at, next, met, before.is_some());
                if difference.cause == Cause::Branch {
                    find_values(&at, &mut difference)?;
                }
                if sink(difference)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if meeting != Meeting::Met {
                return Ok(ControlFlow::Continue(()));
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// Returns true if the last common instruction is in the program's own file in one of the runs,
    /// and not in a linkage table, whose entries the first call of a function fills in.
    fn is_own(&self, at: &[Stretch; 2]) -> bool {
        self.runs.iter().zip(at).any(|(run, at)| {
            let section = section_at(run, at.last);
            let is_linkage = || {
                let name = run.functions().name_at(at.last);
                name.is_some_and(|name| name.ends_with("@plt"))
            };
            section.is_some_and(|section| *section.name == *program_of(run)) && !is_linkage()
        })
    }

    /// Returns the difference between the stretches `at` and `next`, without its values; `met` are
    /// the stretches where the paths meet. Without `has_begun`, `at` are the first stretches, which
    /// differ.
    fn difference(
        &self,
        at: &[Stretch; 2],
        next: [Option<Stretch>; 2],
        met: [Option<Stretch>; 2],
        has_begun: bool,
    ) -> Difference {
        let step = |side: usize, position, index, addr| {
            let place = self.runs[side].functions().place(addr);
            Step { position, index, addr, place }
        };
        let first = |side, item: &Stretch| step(side, item.position, item.index, item.first);
        let last =
            |side, item: &Stretch| step(side, item.last_position, item.last_index, item.last);
        let [good, bad] = met;
        Difference {
            threads: self.threads,
            at: [0, 1].map(|side| last(side, &at[side])),
            next: [0, 1].map(|side| next[side].map(|item| first(side, &item))),
            cause: if has_begun { cause(at, &next) } else { Cause::Beginning },
            values: Vec::new(),
            meeting: good.zip(bad).map(|(good, bad)| [first(0, &good), first(1, &bad)]),
        }
    }
}

/// Returns the cause of a difference after a common instruction. If an event interrupted one of the
/// runs there, the event is the cause, unless the outcomes of a branch differ.
fn cause(at: &[Stretch; 2], next: &[Option<Stretch>; 2]) -> Cause {
    let ended = next.iter().any(Option::is_none);
    let is_interrupted = at.iter().any(|item| item.is_interrupted);
    match at.map(|item| item.exit) {
        [good @ (Exit::Taken | Exit::NotTaken), bad @ (Exit::Taken | Exit::NotTaken)]
            if !ended && (good != bad || !is_interrupted) =>
        {
            Cause::Branch
        }
        [good @ (Exit::Ret | Exit::JmpIndirect | Exit::Call), bad]
            if !ended && good == bad && !is_interrupted =>
        {
            Cause::Target
        }
        _ => Cause::Event,
    }
}

/// Returns the section of mapped code or data with an address, as it is mapped at the end of the
/// run; `None` if it is not mapped then.
fn section_at(run: &Asked, addr: Addr) -> Option<&Section> {
    run.timeline.images().last()?.section_at(addr)
}

/// Returns the file name of the program, with its directories.
fn program_of(run: &Asked) -> &str {
    &run.timeline.reader().manifest().program
}

/// Returns the names, without directories, of the files of which a section of code, as it is mapped
/// at the end, is the same in both runs.
fn same_files(good: &Asked, bad: &Asked) -> BTreeSet<String> {
    let code = |run: &Asked| -> Vec<(String, Bytes)> {
        let image = run.timeline.images().last();
        let sections = image.into_iter().flat_map(|image| image.sections());
        let code = sections.filter(|section| section.executable);
        code.filter_map(|s| Some((name_of(s)?.to_owned(), s.bytes.clone()))).collect()
    };
    let (good, bad) = (code(good), code(bad));
    let is_in = |(name, bytes): &&(String, Bytes)| {
        bad.iter().any(|(other, others)| name == other && **bytes == **others)
    };
    good.iter().filter(is_in).map(|(name, _)| name.clone()).collect()
}
