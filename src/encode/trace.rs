//! The encoder of a thread: the fast one for all code, or the one for a filter or for ranges that
//! end the trace.

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
    /// An encoder for a filter, or for ranges that end the trace.
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
    /// Returns the trace of a thread that has not run yet. The ranges decide for good: with a
    /// filter, or a range that ends a trace, it uses the slower encoder, and its ranges can change;
    /// with neither, they cannot.
    pub fn new(psb_period_bytes: u32, ranges: &Ranges) -> Self {
        if ranges.trace_everything() {
            Self(Kind::Whole(Box::new(Encoder::new(psb_period_bytes as usize))))
        } else {
            Self(Kind::Filtered(Box::new(Filtered::new(psb_period_bytes, ranges))))
        }
    }

    /// Traces these ranges from now on. Does nothing if the trace was created with neither a filter
    /// nor a range that ends a trace: neither can be added then.
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

    /// Removes and returns the packets written since the last call. Pending branches (TNT bits that
    /// are in no packet yet) stay pending: [`Self::flush`] writes them.
    pub fn drain(&mut self) -> Vec<u8> {
        either!(self, encoder => encoder.drain(), encoder.drain())
    }

    /// Writes packets for the pending branches (TNT bits).
    pub fn flush(&mut self) {
        either!(self, encoder => encoder.flush(), encoder.flush());
    }

    /// Encodes records. Returns the number of bytes of an incomplete record at the end, which the
    /// next call must be given again, or an error at an invalid record: the packets of records
    /// before it may be missing then, too. Keeps a last record whose target only the next one
    /// shows: it is *owed*. Once a `TraceStop` range has ended the trace, later calls ignore all
    /// bytes; the same call still fails at an invalid record.
    pub fn encode_records(
        &mut self,
        dictionary: &Dictionary,
        chains: &mut Chains,
        bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        either!(
            self,
            encoder => encoder.encode_records(dictionary, chains, bytes),
            encoder.encode_records(dictionary, bytes)
        )
    }

    /// Encodes the owed record, if there is one: a return or indirect branch, which led to `ip`.
    /// Call this before an event at `ip` that is not in a record. Fails if that record cannot
    /// follow the last one; it is then dropped.
    pub fn finish_owed_record(
        &mut self,
        dictionary: &Dictionary,
        ip: u64,
    ) -> Result<(), BadRecord> {
        either!(
            self,
            encoder => encoder.finish_owed_record(dictionary, ip),
            encoder.finish_owed_record(dictionary, ip)
        )
    }

    /// Sets the time at which the thread was created. Call this before anything is encoded: later,
    /// it would overwrite the last reported time.
    pub fn set_creation_time(&mut self, tsc: u64) {
        either!(self, encoder => encoder.set_creation_time(tsc), encoder.set_creation_time(tsc));
    }

    /// Returns true if a `TraceStop` range has ended the trace; [`Self::begin_history`] would
    /// resume it.
    pub fn has_stopped(&self) -> bool {
        matches!(&self.0, Kind::Filtered(encoder) if encoder.has_stopped())
    }

    /// Ends the known history, and writes an overflow packet: everything until
    /// [`Self::begin_history`] is lost. Call [`Self::drain`] between the two.
    pub fn lose_history(&mut self, dictionary: &Dictionary) {
        self.end_history(dictionary);
        self.flush();
        either!(self, encoder => encoder.lose_history(), encoder.lose_history());
    }

    /// Begins the history at time `tsc`, with the next record or event. Anything before is unknown;
    /// an owed record is dropped. Packets that are not drained yet may be discarded.
    pub fn begin_history(&mut self, tsc: u64) {
        either!(self, encoder => encoder.begin_history(tsc), encoder.begin_history(tsc));
    }

    /// Encodes the `steps` (instructions) that a thread executed of a path before an event
    /// interrupted it at `ip`; there may be none. Does not encode the event: call
    /// [`Self::enter_kernel`] next. Call [`Self::finish_owed_record`] before.
    pub fn partial_path(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        either!(
            self,
            encoder => encoder.partial_path(dictionary, steps, ip),
            encoder.partial_path(steps, ip)
        );
    }

    /// Encodes one instruction that the tracer executed for the thread, outside of the code cache.
    /// The thread must be in the program (not checked), or at the beginning of a history. It is at
    /// `next` after the instruction, or in the kernel after a far branch. A loop without packets
    /// through it may be missed, unless the caller enters the kernel after it
    /// ([`Self::enter_kernel`]). Call [`Self::finish_owed_record`] before.
    pub fn stepped_insn(&mut self, insn: &Insn, next: u64) {
        either!(
            self,
            encoder => encoder.stepped_insn(insn, next),
            encoder.stepped_insn(insn, next)
        );
    }

    /// Encodes an entry into the kernel before the instruction at `ip`, by anything but a far
    /// branch, such as a signal. Writes pending branches first. Encodes nothing if the thread is in
    /// the kernel, or if a history was begun and has no record or event yet.
    pub fn enter_kernel(&mut self, ip: u64) {
        either!(self, encoder => encoder.enter_kernel(ip), encoder.enter_kernel(ip));
    }

    /// Ends the history where the last record led, or if it is owed, at the start of its path: the
    /// owed record is dropped. Encodes an entry into the kernel there, after the pending branches;
    /// nothing if the thread is in the kernel already.
    pub fn end_history(&mut self, dictionary: &Dictionary) {
        either!(self, encoder => encoder.end_history(dictionary), encoder.end_history());
    }

    /// Encodes a return from the kernel to the program, at `ip` and time `tsc`. Does nothing if the
    /// thread is in the program.
    pub fn return_from_kernel(&mut self, ip: u64, tsc: u64) {
        either!(
            self,
            encoder => encoder.return_from_kernel(ip, tsc),
            encoder.return_from_kernel(ip, tsc)
        );
    }
}
