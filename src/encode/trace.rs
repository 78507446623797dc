//! The encoder of a thread: the fast one for all code, or the one for filtered code.

use super::dictionary::Dictionary;
use super::encoder::{BadRecord, Chains, Encoder};
use super::filtered::Filtered;
use super::ranges::Ranges;
use crate::insn::Insn;
use crate::translate::Step;

/// The trace of one thread, as it is encoded.
#[derive(Debug)]
pub struct Trace(Kind);

#[derive(Debug)]
enum Kind {
    /// An encoder of all code.
    Whole(Box<Encoder>),
    /// An encoder of filtered code.
    Filtered(Box<Filtered>),
}

/// Calls a method of the encoder in use: the name is bound in both expressions.
macro_rules! either {
    ($self:ident, $encoder:ident => $whole:expr, $filtered:expr) => {
        match &mut $self.0 {
            Kind::Whole($encoder) => $whole,
            Kind::Filtered($encoder) => $filtered,
        }
    };
}

impl Trace {
    /// Returns the trace of a thread that has not run yet.
    pub fn new(psb_period_bytes: u32, ranges: &Ranges) -> Self {
        if ranges.trace_everything() {
            Self(Kind::Whole(Box::new(Encoder::new(psb_period_bytes as usize))))
        } else {
            Self(Kind::Filtered(Box::new(Filtered::new(psb_period_bytes, ranges))))
        }
    }

    /// Traces these ranges from now on, if the trace is filtered.
    pub fn set_ranges(&mut self, ranges: &Ranges) {
        if let Kind::Filtered(encoder) = &mut self.0 {
            encoder.set_ranges(ranges);
        }
    }

    /// Returns the number of instructions that the trace covers so far.
    pub fn instructions(&self) -> u64 {
        match &self.0 {
            Kind::Whole(encoder) => encoder.instructions(),
            Kind::Filtered(encoder) => encoder.instructions(),
        }
    }

    /// Returns the packets since the last call, without pending branches.
    pub fn drain(&mut self) -> Vec<u8> {
        either!(self, encoder => encoder.drain(), encoder.drain())
    }

    /// Writes packets for the pending branches (TNT bits).
    pub fn flush(&mut self) {
        either!(self, encoder => encoder.flush(), encoder.flush());
    }

    /// Encodes records. Returns the number of bytes of an incomplete record at the end, or an error
    /// at an invalid record.
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

    /// Encodes the last record, if it is a return or indirect branch whose target was unknown: it
    /// led to `ip`.
    pub fn arrive(&mut self, dictionary: &Dictionary, ip: u64) -> Result<(), BadRecord> {
        either!(self, encoder => encoder.arrive(dictionary, ip), encoder.arrive(dictionary, ip))
    }

    /// Sets the time at which the thread was created.
    pub fn born(&mut self, tsc: u64) {
        either!(self, encoder => encoder.born(tsc), encoder.born(tsc));
    }

    /// Returns true if a `TraceStop` range has ended the trace.
    pub fn has_stopped(&self) -> bool {
        matches!(&self.0, Kind::Filtered(encoder) if encoder.has_stopped())
    }

    /// Ends the known history, and marks everything until [`Self::begin`] as lost.
    pub fn lose(&mut self, dictionary: &Dictionary) {
        self.end(dictionary);
        self.flush();
        either!(self, encoder => encoder.lose(), encoder.lose());
    }

    /// Begins the history with the next record or event, at time `tsc`. Anything before is unknown.
    pub fn begin(&mut self, tsc: u64) {
        either!(self, encoder => encoder.begin(tsc), encoder.begin(tsc));
    }

    /// Encodes the steps that a thread executed of a path, up to the instruction at `ip`, where an
    /// event interrupted it. Does not encode the event: call [`Self::leave`] next.
    pub fn partial(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        either!(self, encoder => encoder.partial(dictionary, steps, ip), encoder.partial(steps, ip));
    }

    /// Encodes an instruction that the tracer executed, after which the thread is at `next`.
    pub fn native(&mut self, insn: &Insn, next: u64) {
        either!(self, encoder => encoder.native(insn, next), encoder.native(insn, next));
    }

    /// Encodes an entry into the kernel, by anything but a branch, before the instruction at `ip`.
    /// Encodes nothing if the thread is in the kernel.
    pub fn leave(&mut self, ip: u64) {
        either!(self, encoder => encoder.leave(ip), encoder.leave(ip));
    }

    /// Ends the history at the target of the last record, or if that is unknown, at the start of
    /// its path.
    pub fn end(&mut self, dictionary: &Dictionary) {
        either!(self, encoder => encoder.end(dictionary), encoder.end());
    }

    /// Encodes a return to the program, at `ip` and time `tsc`, if the thread is in the kernel.
    pub fn enter(&mut self, ip: u64, tsc: u64) {
        either!(self, encoder => encoder.enter(ip, tsc), encoder.enter(ip, tsc));
    }
}
