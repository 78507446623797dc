//! Encodes the records of a filtered trace: passes each instruction of a path through the model of
//! the PT unit, which supports filters and `TraceStop`. Skips paths that the filter does not touch.

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
    path: Path,
    ranges: Ranges,
    psb_period_bytes: u32,
    /// The number of instructions on earlier paths, which [`Self::begin`] replaced.
    before: u64,
    /// True if the history begins with the next record or event.
    begins: bool,
    /// The edge of the last record, if it is a return or indirect branch whose target is not yet
    /// known.
    owed: Option<Edge>,
    /// True in the program; false in the kernel.
    running: bool,
    /// The current address; 0 if a record may begin anywhere.
    here: u64,
    time: u64,
    /// True if an overflow packet is due.
    lost: bool,
}

impl Filtered {
    pub(super) fn new(psb_period_bytes: u32, ranges: &Ranges) -> Self {
        Self {
            path: path(psb_period_bytes, ranges),
            ranges: ranges.clone(),
            psb_period_bytes,
            before: 0,
            begins: false,
            owed: None,
            running: false,
            here: 0,
            time: 0,
            lost: false,
        }
    }

    pub(super) fn set_ranges(&mut self, ranges: &Ranges) {
        self.path.set_ranges(ranges);
        self.ranges = ranges.clone();
    }

    pub(super) fn instructions(&self) -> u64 {
        self.before + self.path.instructions()
    }

    pub(super) fn drain(&mut self) -> Vec<u8> {
        let mut packets = self.path.drain();
        if std::mem::take(&mut self.lost) {
            encode(&Packet::Ovf, &mut packets);
        }
        packets
    }

    pub(super) fn flush(&mut self) {
        self.path.flush();
    }

    pub(super) fn born(&mut self, tsc: u64) {
        self.set_time(tsc);
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.path.has_stopped()
    }

    /// Requests an overflow packet after the packets of the next [`Self::drain`]: everything until
    /// the next beginning is lost.
    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Begins the history. Discards packets that are not drained yet.
    pub(super) fn begin(&mut self, tsc: u64) {
        self.before += self.path.instructions();
        self.path = path(self.psb_period_bytes, &self.ranges);
        self.begins = true;
        self.owed = None;
        self.running = false;
        self.here = 0;
        self.set_time(tsc);
    }

    fn set_time(&mut self, tsc: u64) {
        self.time = tsc;
        self.path.set_time(Tsc(tsc));
    }

    /// Starts the history at `ip`, if it begins with the current record or event.
    fn begin_at(&mut self, ip: u64) {
        if std::mem::take(&mut self.begins) {
            self.path.enter_user(Addr(ip));
            self.running = true;
            self.here = ip;
        }
    }

    /// Encodes records, as [`super::Trace::records`] describes. Ignores them after a `TraceStop`.
    pub(super) fn records(
        &mut self,
        dictionary: &Dictionary,
        mut bytes: &[u8],
    ) -> Result<usize, BadRecord> {
        if self.path.has_stopped() {
            return Ok(0);
        }
        while let Some((number, rest)) = bytes.split_first_chunk::<4>() {
            let edge = dictionary.edge(u32::from_le_bytes(*number)).ok_or(BadRecord)?;
            let mut value = 0;
            let mut following = rest;
            if edge.kind.record_bytes() > 4 {
                let Some((word, rest)) = rest.split_first_chunk::<8>() else { break };
                value = u64::from_le_bytes(*word);
                following = rest;
            }
            bytes = following;
            self.arrive(dictionary, edge.start)?;
            if edge.kind.is_indirect() {
                self.owed = Some(*edge);
            } else {
                self.record(dictionary, edge, value)?;
            }
        }
        Ok(bytes.len())
    }

    /// Encodes the owed record, if there is one: its branch led to `ip`.
    pub(super) fn arrive(&mut self, dictionary: &Dictionary, ip: u64) -> Result<(), BadRecord> {
        self.owed.take().map_or(Ok(()), |edge| self.record(dictionary, &edge, ip))
    }

    /// Encodes the record of an edge. `value` is the target of a return or indirect branch, or the
    /// time of a return from the kernel.
    fn record(
        &mut self,
        dictionary: &Dictionary,
        edge: &Edge,
        value: u64,
    ) -> Result<(), BadRecord> {
        if edge.kind == EdgeKind::SyscallReturn {
            if self.running {
                return Err(BadRecord);
            }
            self.enter(edge.target, value);
            return Ok(());
        }
        self.begin_at(edge.start);
        if self.here != edge.start && self.here != 0 || !self.running {
            return Err(BadRecord);
        }
        if edge.since > self.time {
            self.catch_up(edge);
        }
        let path = dictionary.path_of(edge).ok_or(BadRecord)?;
        let steps = path.steps.get(..usize::from(edge.instructions)).ok_or(BadRecord)?;
        // `far`: the edge ends in the kernel.
        let (target, far) = match edge.kind {
            EdgeKind::Direct => (edge.target, false),
            EdgeKind::Syscall => (edge.target, true),
            _ => (value, false),
        };
        self.here = target;
        // A path adds nothing to the trace if neither it nor its target meets a range. A far branch
        // is never skipped, so that `running` stays right.
        let outside = !self.path.is_reported() && self.ranges.skip(path.low, path.high);
        if outside && !far && self.ranges.skip(target, target) {
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
                self.path.count(Addr(last.ip));
                self.path.leave(Addr(last.ip), Addr(last.ip.wrapping_add(last.len.into())));
                self.running = false;
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

    /// Encodes an instruction with this outcome, after which the path continues at `next`.
    fn step(&mut self, step: &Step, outcome: Outcome, next: u64) {
        let kind = match outcome {
            Outcome::Plain => return self.path.count(Addr(step.ip)),
            Outcome::Jump => BranchKind::Jmp,
            Outcome::NotTaken => BranchKind::Jcc { taken: false },
            Outcome::Taken => BranchKind::Jcc { taken: true },
            Outcome::Call => BranchKind::Call,
            Outcome::Return => BranchKind::Ret,
        };
        self.branch(step, kind, next);
    }

    fn branch(&mut self, step: &Step, kind: BranchKind, target: u64) {
        let following = Addr(step.ip.wrapping_add(step.len.into()));
        self.path.count(Addr(step.ip));
        self.path.branch(kind, Addr(step.ip), following, Addr(target));
    }

    /// Reports `edge.since`, the time since which the edge's code is unchanged: encodes an entry
    /// into the kernel, and a return from it at that time. The caller has checked that it is newer
    /// than the last reported time.
    #[cold]
    fn catch_up(&mut self, edge: &Edge) {
        self.leave(edge.start);
        self.enter(edge.start, edge.since);
    }

    pub(super) fn partial(&mut self, steps: &[Step], ip: u64) {
        if let Some(first) = steps.first() {
            self.begin_at(first.ip);
        }
        let next = steps.iter().skip(1).map(|step| step.ip).chain([ip]);
        for (step, next) in steps.iter().zip(next) {
            self.step(step, step.outcome, next);
        }
        self.here = ip;
    }

    pub(super) fn native(&mut self, insn: &Insn, next: u64) {
        self.begin_at(insn.ip.0);
        self.path.retire(insn, Addr(next));
        self.running = !insn.class.is_far();
        self.here = next;
    }

    pub(super) fn leave(&mut self, ip: u64) {
        self.begins = false;
        if std::mem::take(&mut self.running) {
            self.path.interrupt(Addr(ip));
        }
    }

    pub(super) fn end(&mut self) {
        self.owed = None;
        if self.here != 0 {
            self.leave(self.here);
        }
    }

    pub(super) fn enter(&mut self, ip: u64, tsc: u64) {
        if !self.running {
            self.begins = false;
            self.set_time(tsc);
            self.path.enter_user(Addr(ip));
            self.running = true;
            self.here = ip;
        }
    }
}

/// Returns the path of a thread. Each entry into the program sets its time, so the clock is unused.
fn path(psb_period_bytes: u32, ranges: &Ranges) -> Path {
    Path::new(psb_period_bytes, ranges, || Tsc(0), None)
}
