//! Runs of code that counts: up to a number of branches or instructions, a place to stop, or an
//! instruction that the tracer executes.

use super::error::Error;
use super::guard::Wanted;
use super::process::TranslatedProcess;
use super::stops::{Phase, SignalStop};
use super::thread::TranslatedThread;
use crate::insn::MAX_INSN_BYTES;
use crate::tracee::{SiginfoBytes, Stop, wait_for};
use crate::translate::{Bound, Hook, SPENT, is_counted, is_spent};

/// The limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Until a budget is spent, as [`TranslatedProcess::budget`] returns it.
    Budget(u64),
    /// Exactly this far, unless the superblock ends before.
    Bound(Bound),
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The thread is stopped in the program, with its own registers.
    Ran(Ran),
    /// The thread is stopped in the cache for a signal of the program.
    Signal(SiginfoBytes),
    /// Something else happened to the thread, which is where that left it.
    Other(Stop),
}

/// The distance that a thread ran.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Branches that it executed.
    pub branches: u64,
    /// Instructions after the last branch, or in all where there is no branch. None: not counted.
    pub instructions: Option<u64>,
    /// Why the run ended.
    pub end: RunEnd,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug)]
pub enum RunEnd {
    /// The thread ran as far as it may, or its superblock ended.
    Distance,
    /// It is at a place where threads are to stop.
    Stop,
    /// It is at an instruction that its tracer has to execute, and what that asks for if it does
    /// not follow from the program's state.
    Native(Option<Hook>),
}

impl TranslatedProcess {
    /// Returns the branches to run by a budget so that no more than `branches` are executed. None:
    /// it takes a bound.
    pub fn budget(&self, branches: u64) -> Option<u64> {
        self.translator.budget(branches)
    }

    /// Runs a thread, which is stopped in the program, in code that counts. A place to stop where it
    /// begins is passed. Returns the result, and the times that the thread left the cache.
    pub fn run_counted(
        &mut self,
        thread: &mut TranslatedThread,
        distance: Distance,
    ) -> Result<(Run, u64), Error> {
        let ip = thread.tracee.registers()?.rip;
        let (wanted, budget) = match distance {
            Distance::Budget(budget) => (Wanted::Passing(ip), budget),
            Distance::Bound(bound) => (Wanted::Bounded(ip, bound), SPENT),
        };
        let (superblock, address) = self.translate_whole(thread, wanted)?;
        thread.set_trace_pointer(&self.window.shared, budget);
        self.enter(thread, address)?;
        let mut requests = 0;
        loop {
            thread.tracee.resume(0)?;
            let signal = match wait_for(thread.tid())? {
                Stop::Signal(signal) => signal,
                stop => return Ok((Run::Other(stop), requests)),
            };
            requests += 1;
            let stop = self.signal_stop(thread, Phase::Runs, signal)?;
            if stop.is_tracers() {
                self.restore_signal_state(thread, signal)?;
            }
            let registers = thread.tracee.registers()?;
            let branches = budget.wrapping_sub(registers.r11);
            match stop {
                SignalStop::Request if is_spent(registers.r11) => {
                    let bounded = matches!(distance, Distance::Bound(_)).then_some(superblock);
                    let instructions = bounded.and_then(|s| self.tail_of(thread, s, registers.r11));
                    self.leave_cache(thread)?;
                    let ran = Ran { branches, instructions, end: RunEnd::Distance };
                    return Ok((Run::Ran(ran), requests));
                }
                SignalStop::Request => {
                    let Some(request) = self.request(thread) else { continue };
                    let (_, address) = self.translate_whole(thread, Wanted::Asked(request))?;
                    self.respond(thread, address);
                }
                SignalStop::Native(at) => {
                    let is_stop = self.translator.stops_at(at.superblock);
                    let hook = self.translator.superblock(at.superblock).and_then(|s| s.hook);
                    let (program, _) = self.convert(thread, &registers, &at);
                    self.enter_program(thread, &program, 0)?;
                    let end = if is_stop { RunEnd::Stop } else { RunEnd::Native(hook) };
                    return Ok((Run::Ran(Ran { branches, instructions: None, end }), requests));
                }
                SignalStop::Program(info) => return Ok((Run::Signal(info), requests)),
                _ => return Ok((Run::Other(Stop::Signal(signal)), requests)),
            }
        }
    }

    /// Translates code, and makes sure that it is as it was read.
    fn translate_whole(
        &mut self,
        thread: &TranslatedThread,
        wanted: Wanted,
    ) -> Result<(u32, u64), Error> {
        loop {
            let translation = self.translate(thread.tracee, wanted)?;
            if self.protect_all(thread.tracee, &translation.pages)? {
                return Ok((translation.superblock, translation.address));
            }
        }
    }

    /// Returns the instructions after the last branch of the path by which a thread left a bounded
    /// superblock.
    fn tail_of(&self, thread: &TranslatedThread, superblock: u32, counter: u64) -> Option<u64> {
        let request = self.request(thread)?;
        let edge = self.translator.way_out(superblock, request.number, counter)?;
        let path = self.translator.path_of(&edge);
        let tail = path.iter().rev().take_while(|step| !self.is_counted_at(step.ip));
        Some(tail.count() as u64)
    }

    fn is_counted_at(&self, ip: u64) -> bool {
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = self.memory.read(ip.into(), &mut bytes);
        is_counted(&bytes[..known])
    }

    fn leave_cache(&self, thread: &mut TranslatedThread) -> Result<(), Error> {
        let registers = thread.tracee.registers()?;
        match self.exact_at(thread, &registers) {
            Some(exact) => self.enter_program(thread, &exact.program, 0),
            None => Err(Error::Inexact { tid: thread.tid(), at: registers.rip.into() }),
        }
    }
}
