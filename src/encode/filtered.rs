//! Encodes the records of a filtered trace: passes each instruction of a path through the model of
//! the PT unit, which supports filters and `TraceStop`. Skips paths that the filter does not touch.
//!
//! A return or indirect branch is *owed* while its target is unknown: the next record shows it. The
//! *history* is the part of the trace that is known: a ring has lost the records before it.

use super::dictionary::Dictionary;
use super::encoder::BadRecord;
use super::path::Path;
use super::ranges::Ranges;
use crate::common::{Addr, Tsc};
use crate::insn::Insn;
use crate::pt::unit::BranchKind;
use crate::pt::{Packet, encode};
use crate::translate::{Edge, EdgeKind, Outcome, Step};

/// An encoder of the filtered trace of one thread.
#[derive(Debug)]
pub(super) struct Filtered {
    /// The thread's path through the model of the PT unit.
    path: Path,
    ranges: Ranges,
    psb_period_bytes: u32,
    /// The number of instructions in earlier histories, whose paths [`Self::begin_history`]
    /// replaced.
    earlier_instructions: u64,
    /// True if the history begins with the next record or event.
    is_at_beginning: bool,
    /// The edge of the last record, if it is a return or indirect branch whose target is not yet
    /// known.
    owed: Option<Edge>,
    /// True in the program; false in the kernel.
    in_program: bool,
    /// The current address; 0 if a record may begin anywhere.
    ip: u64,
    /// The last time that was set.
    time: u64,
    /// True if an overflow packet is due.
    is_overflow_due: bool,
}

impl Filtered {
    /// Creates the encoder of a thread that has not run yet.
    pub(super) fn new(psb_period_bytes: u32, ranges: &Ranges) -> Self {
        Self {
            path: new_path(psb_period_bytes, ranges),
            ranges: ranges.clone(),
            psb_period_bytes,
            earlier_instructions: 0,
            is_at_beginning: false,
            owed: None,
            in_program: false,
            ip: 0,
            time: 0,
            is_overflow_due: false,
        }
    }

    /// Traces these ranges from now on, with the limits of [`Path::set_ranges`].
    pub(super) fn set_ranges(&mut self, ranges: &Ranges) {
        self.path.set_ranges(ranges);
        self.ranges = ranges.clone();
    }

    /// Returns the number of instructions that the trace covers so far, in all histories.
    pub(super) fn instructions(&self) -> u64 {
        self.earlier_instructions + self.path.instructions()
    }

    /// Removes and returns the packets written since the last call, and then an overflow packet if
    /// that is due.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        let mut packets = self.path.drain();
        if std::mem::take(&mut self.is_overflow_due) {
            encode(&Packet::Ovf, &mut packets);
        }
        packets
    }

    /// Writes packets for the pending branch outcomes.
    pub(super) fn flush(&mut self) {
        self.path.flush();
    }

    /// Sets the time at which the thread was created, as [`super::Trace::set_creation_time`]
    /// describes.
    pub(super) fn set_creation_time(&mut self, tsc: u64) {
        self.set_time(tsc);
    }

    /// Returns true if a `TraceStop` range has ended the trace, in this history.
    pub(super) fn has_stopped(&self) -> bool {
        self.path.has_stopped()
    }

    /// Makes the next [`Self::drain`] end with an overflow packet: everything until
    /// [`Self::begin_history`] is lost. Drain before [`Self::begin_history`], which discards the
    /// packets but not the overflow: that would come after those of the new history.
    pub(super) fn lose_history(&mut self) {
        self.is_overflow_due = true;
    }

    /// Begins the history at time `tsc`, with the next record or event. Discards packets that are
    /// not drained yet.
    pub(super) fn begin_history(&mut self, tsc: u64) {
        self.earlier_instructions += self.path.instructions();
        self.path = new_path(self.psb_period_bytes, &self.ranges);
        self.is_at_beginning = true;
        self.owed = None;
        self.in_program = false;
        self.ip = 0;
        self.set_time(tsc);
    }

    /// Sets the time of the next packets.
    fn set_time(&mut self, tsc: u64) {
        self.time = tsc;
        self.path.set_time(Tsc(tsc));
    }

    /// Enters the program at `ip`, if the history begins with the current record or event.
    fn begin_at(&mut self, ip: u64) {
        if std::mem::take(&mut self.is_at_beginning) {
            self.path.enter_user(Addr(ip));
            self.in_program = true;
            self.ip = ip;
        }
    }

    /// Encodes records, as [`super::Trace::encode_records`] describes. Ignores all bytes of later
    /// calls once a `TraceStop` has ended the trace; invalid records in the same call still fail.
    pub(super) fn encode_records(
        &mut self,
        dictionary: &Dictionary,
        mut bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        while let Some((number, rest)) = bytes.split_first_chunk::<4>() {
            if self.path.has_stopped() {
                return Ok(0);
            }
            let edge = dictionary.edge(u32::from_le_bytes(*number)).ok_or(BadRecord)?;
            let mut value = 0;
            let mut following = rest;
            if edge.kind.record_bytes() > 4 {
                let Some((word, rest)) = rest.split_first_chunk::<8>() else { break };
                value = u64::from_le_bytes(*word);
                following = rest;
            }
            bytes = following;
            self.finish_owed_record(dictionary, edge.start)?;
            if edge.kind.is_indirect() {
                self.owed = Some(*edge);
            } else {
                self.encode_record(dictionary, edge, value)?;
            }
        }
        Ok(bytes.len())
    }

    /// Encodes the owed record, if there is one: its branch led to `ip`. Fails if that record
    /// cannot follow the last one; it is then dropped.
    pub(super) fn finish_owed_record(
        &mut self,
        dictionary: &Dictionary,
        ip: u64,
    ) -> Result<(), BadRecord> {
        self.owed.take().map_or(Ok(()), |edge| self.encode_record(dictionary, &edge, ip))
    }

    /// Encodes the record of an edge: each instruction of its path, unless the path and its target
    /// are outside the ranges. `value` is the target of a return or indirect branch, or the time of
    /// a return from the kernel. Fails if the record cannot follow the last one.
    fn encode_record(
        &mut self,
        dictionary: &Dictionary,
        edge: &Edge,
        value: u64,
    ) -> Result<(), BadRecord> {
        if edge.kind == EdgeKind::SyscallReturn {
            if self.in_program {
                return Err(BadRecord);
            }
            self.return_from_kernel(edge.target, value);
            return Ok(());
        }
        self.begin_at(edge.start);
        if self.ip != edge.start && self.ip != 0 || !self.in_program {
            return Err(BadRecord);
        }
        if edge.since > self.time {
            self.report_code_time(edge);
        }
        let path = dictionary.path_of(edge).ok_or(BadRecord)?;
        let steps = path.steps.get(..usize::from(edge.instructions)).ok_or(BadRecord)?;
        let (target, ends_in_kernel) = match edge.kind {
            EdgeKind::Direct => (edge.target, false),
            EdgeKind::Syscall => (edge.target, true),
            _ => (value, false),
        };
        self.ip = target;
        // A path adds nothing to the trace if neither it nor its target meets a range. A far branch
        // is never skipped, so that `path` enters the kernel.
        let outside =
            !self.path.covers_next_insn() && self.ranges.is_all_outside(path.low, path.high);
        if outside && !ends_in_kernel && self.ranges.is_all_outside(target, target) {
            return Ok(());
        }
        // Each step but the last continues at the address of the step after it.
        let Some((last, steps)) = steps.split_last() else { return Ok(()) };
        let mut next = steps.iter().skip(1).chain([last]).map(|step| step.ip);
        for step in steps {
            self.step(step, step.outcome, next.next().unwrap_or(0));
        }
        // A direct edge may leave at its last step with another outcome than the path's: the edge's
        // last TNT bit has it.
        let outcome = match (edge.kind, last.outcome) {
            (EdgeKind::Direct, Outcome::Taken | Outcome::NotTaken) if edge.bits & 1 == 0 => {
                Outcome::NotTaken
            }
            (EdgeKind::Direct, Outcome::Taken | Outcome::NotTaken) => Outcome::Taken,
            (_, outcome) => outcome,
        };
        match edge.kind {
            EdgeKind::Syscall => {
                self.path.count_insn(Addr(last.ip));
                self.path.far_branch(Addr(last.ip), Addr(last.ip.wrapping_add(last.len.into())));
                self.in_program = false;
            }
            EdgeKind::Return => self.branch(last, BranchKind::Ret, target),
            EdgeKind::Indirect if outcome == Outcome::Call => {
                self.branch(last, BranchKind::CallIndirect, target);
            }
            EdgeKind::Indirect => self.branch(last, BranchKind::JmpIndirect, target),
            _ => self.step(last, outcome, target),
        }
        Ok(())
    }

    /// Counts and encodes an instruction with this outcome, after which the path continues at
    /// `next`. A step that is no branch is only counted.
    fn step(&mut self, step: &Step, outcome: Outcome, next: u64) {
        let kind = match outcome {
            Outcome::Plain => return self.path.count_insn(Addr(step.ip)),
            Outcome::Jump => BranchKind::Jmp,
            Outcome::NotTaken => BranchKind::Jcc { taken: false },
            Outcome::Taken => BranchKind::Jcc { taken: true },
            Outcome::Call => BranchKind::Call,
            Outcome::Return => BranchKind::Ret,
        };
        self.branch(step, kind, next);
    }

    /// Counts and encodes a near branch to `target`.
    fn branch(&mut self, step: &Step, kind: BranchKind, target: u64) {
        let following = Addr(step.ip.wrapping_add(step.len.into()));
        self.path.count_insn(Addr(step.ip));
        self.path.branch(kind, Addr(step.ip), following, Addr(target));
    }

    /// Reports `edge.since`, the time since which the edge's code is unchanged: encodes an entry
    /// into the kernel, and a return from it at that time. The caller has checked that it is newer
    /// than the last reported time.
    #[cold]
    fn report_code_time(&mut self, edge: &Edge) {
        self.enter_kernel(edge.start);
        self.return_from_kernel(edge.start, edge.since);
    }

    /// Encodes `steps` of an interrupted path, as [`super::Trace::partial_path`] describes.
    pub(super) fn partial_path(&mut self, steps: &[Step], ip: u64) {
        if let Some(first) = steps.first() {
            self.begin_at(first.ip);
        }
        let next = steps.iter().skip(1).map(|step| step.ip).chain([ip]);
        for (step, next) in steps.iter().zip(next) {
            self.step(step, step.outcome, next);
        }
        self.ip = ip;
    }

    /// Encodes one instruction, as [`super::Trace::stepped_insn`] describes. If the thread is in
    /// the kernel, encodes its return from there first, without a new time.
    pub(super) fn stepped_insn(&mut self, insn: &Insn, next: u64) {
        self.begin_at(insn.ip.0);
        self.path.retire(insn, Addr(next));
        self.in_program = !insn.class.is_far();
        self.ip = next;
    }

    /// Encodes an entry into the kernel before the instruction at `ip`. Does nothing if the thread
    /// is in the kernel.
    pub(super) fn enter_kernel(&mut self, ip: u64) {
        self.is_at_beginning = false;
        if std::mem::take(&mut self.in_program) {
            self.path.interrupt(Addr(ip));
        }
    }

    /// Ends the history at the current address: encodes an entry into the kernel there, unless the
    /// thread is in the kernel. Drops an owed record.
    pub(super) fn end_history(&mut self) {
        self.owed = None;
        if self.ip != 0 {
            self.enter_kernel(self.ip);
        }
    }

    /// Encodes a return from the kernel to `ip` at time `tsc`. Does nothing if the thread is in the
    /// program.
    pub(super) fn return_from_kernel(&mut self, ip: u64, tsc: u64) {
        if !self.in_program {
            self.is_at_beginning = false;
            self.set_time(tsc);
            self.path.enter_user(Addr(ip));
            self.in_program = true;
            self.ip = ip;
        }
    }
}

/// Creates the path of a thread. Each entry into the program sets its time, so the clock is unused.
fn new_path(psb_period_bytes: u32, ranges: &Ranges) -> Path {
    Path::new(psb_period_bytes, ranges, || Tsc(0), None)
}

#[cfg(test)]
mod tests {
    use super::super::dictionary::{NewEdges, Paths};
    use super::*;
    use crate::common::AddrRange;

    #[test]
    fn records_after_a_trace_stop_are_ignored_also_invalid_ones() {
        const START: u64 = 0x40_1000;
        const STOP: u64 = 0x40_2000;
        let edge = Edge {
            bits: 0,
            bit_count: 0,
            ticks: 0,
            kind: EdgeKind::Direct,
            pushes: 0,
            peak: 0,
            first_push: 0,
            instructions: 1,
            superblock: 0,
            start: START,
            target: STOP,
            quiet_low: START,
            quiet_high: START,
            since: 0,
            branch: true,
            quiet_start: START,
            quiet_jumps: 1,
            first_quiet: 0,
        };
        let step = Step { ip: START, len: 5, outcome: Outcome::Jump, ticks: false };
        let paths = vec![Paths::new(&[step])];
        let mut dictionary = Dictionary::default();
        dictionary.learn(NewEdges { edges: vec![edge, edge], paths, ..NewEdges::default() });
        let range = AddrRange::sized(Addr(STOP), 16);
        let mut encoder = Filtered::new(4096, &Ranges::new(false, Vec::new(), vec![range]));
        encoder.begin_history(0);
        let invalid = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(encoder.encode_records(&dictionary, &invalid), Ok(0));
        assert!(encoder.has_stopped());
        assert_eq!(encoder.encode_records(&dictionary, &invalid[4..]), Ok(0));
    }
}
