//! The encoder of a thread: the fast one, or where not all code is traced the exact one.

use super::dictionary::Dictionary;
use super::encoder::{BadRecord, Chains, Encoder};
use super::filtered::Filtered;
use super::ranges::Ranges;
use crate::insn::Insn;
use crate::translate::Step;

/// Writes the trace of one thread.
#[derive(Debug)]
pub struct Trace(Kind);

#[derive(Debug)]
enum Kind {
    /// Of all code.
    Whole(Box<Encoder>),
    /// Of some.
    Filtered(Box<Filtered>),
}

/// Calls the method of the encoder that there is.
macro_rules! either {
    ($self:ident, $encoder:ident => $whole:expr, $filtered:expr) => {
        match &mut $self.0 {
            Kind::Whole($encoder) => $whole,
            Kind::Filtered($encoder) => $filtered,
        }
    };
}

impl Trace {
    /// The trace of a thread that has not run yet.
    pub fn new(psb_period_bytes: u32, ranges: &Ranges) -> Self {
        if ranges.are_none() {
            Self(Kind::Whole(Box::new(Encoder::new(psb_period_bytes as usize))))
        } else {
            Self(Kind::Filtered(Box::new(Filtered::new(psb_period_bytes, ranges))))
        }
    }

    /// From now on the trace is of these ranges, where it is filtered.
    pub fn set_ranges(&mut self, ranges: &Ranges) {
        if let Kind::Filtered(encoder) = &mut self.0 {
            encoder.set_ranges(ranges);
        }
    }

    /// Instructions that the trace tells of so far.
    pub fn instructions(&self) -> u64 {
        match &self.0 {
            Kind::Whole(encoder) => encoder.instructions(),
            Kind::Filtered(encoder) => encoder.instructions(),
        }
    }

    /// The packets since the last call. Branches that wait for more stay.
    pub fn drain(&mut self) -> Vec<u8> {
        either!(self, encoder => encoder.drain(), encoder.drain())
    }

    /// Writes the branches that wait for more.
    pub fn flush(&mut self) {
        either!(self, encoder => encoder.flush(), encoder.flush());
    }

    /// Encodes records. Stops at one that cannot be. Gives how many bytes are left of one that is
    /// not whole.
    pub fn records(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        either!(
            self,
            encoder => encoder.records(dictionary, chains, bytes),
            encoder.records(dictionary, bytes)
        )
    }

    /// The thread stands at `ip`: there its last record led.
    pub fn arrive(&mut self, dictionary: &Dictionary, ip: u64) -> Result<(), BadRecord> {
        either!(self, encoder => encoder.arrive(dictionary, ip), encoder.arrive(dictionary, ip))
    }

    /// The thread is born at this time.
    pub fn born(&mut self, tsc: u64) {
        either!(self, encoder => encoder.born(tsc), encoder.born(tsc));
    }

    /// Whether the trace has ended, by a `TraceStop` range.
    pub fn has_stopped(&self) -> bool {
        matches!(&self.0, Kind::Filtered(encoder) if encoder.has_stopped())
    }

    /// What comes next is lost: ends what is known.
    pub fn lose(&mut self, dictionary: &Dictionary) {
        self.end(dictionary);
        self.flush();
        either!(self, encoder => encoder.lose(), encoder.lose());
    }

    /// The history begins here: what was before is not known.
    pub fn begin(&mut self, tsc: u64) {
        either!(self, encoder => encoder.begin(tsc), encoder.begin(tsc));
    }

    /// The first instructions of a path were executed, and an event took the thread into the
    /// kernel before the next, which is at `ip`.
    pub fn partial(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        either!(self, encoder => encoder.partial(dictionary, steps, ip), encoder.partial(steps, ip));
    }

    /// The tracer executed an instruction, and the thread stands at `next`.
    pub fn native(&mut self, insn: &Insn, next: u64) {
        either!(self, encoder => encoder.native(insn, next), encoder.native(insn, next));
    }

    /// Something that is no branch takes the thread into the kernel before the instruction at `ip`.
    pub fn leave(&mut self, ip: u64) {
        either!(self, encoder => encoder.leave(ip), encoder.leave(ip));
    }

    /// The history ends where the last record leads.
    pub fn end(&mut self, dictionary: &Dictionary) {
        either!(self, encoder => encoder.end(dictionary), encoder.end());
    }

    /// The thread goes on in the program, at `ip`.
    pub fn enter(&mut self, ip: u64, tsc: u64) {
        either!(self, encoder => encoder.enter(ip, tsc), encoder.enter(ip, tsc));
    }
}
