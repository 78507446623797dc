//! The fast encoder, for complete traces. [`hot`] is the loop over records: it encodes the plain
//! ones itself ([`super::dictionary::Treatment`]), and calls `record` for all others. Events that
//! the tracer saw (a signal, an instruction that it executed) have methods of their own.
//!
//! An edge is *loud* if it adds a packet or a TNT bit to the trace, and *quiet* if it adds nothing.
//! A packet would bind to the first arrival at its address since the last packet or bit. If quiet
//! edges may have passed that address, the encoder *settles* first: it reports their rounds
//! ([`circles`]). A return or indirect branch is *owed* while its target is unknown: the next
//! record shows it.

mod batch;
mod chain;
mod chains;
mod circles;
mod hot;

pub use chains::Chains;

use super::dictionary::Dictionary;
use crate::common::Addr;
use crate::insn::{Class, ExecMode, Insn};
use crate::pt::{IpCompression, IpPayload, LastIp, Packet, encode};
use crate::translate::{Edge, EdgeKind, Outcome, Step};

/// The depth of the call stack for RET compression (SDM).
const STACK_DEPTH: usize = 64;
/// The number of branches in a full long TNT packet (SDM table "TNT Packet Definition").
const TNT_BITS: u32 = 47;
/// The first two bytes of a long TNT packet (SDM table "TNT Packet Definition").
const LONG_TNT: u64 = 0xa302;
/// The maximum number of edges without a packet. After more, a packet is written anyway.
const QUIET_LIMIT: usize = 256;
/// The maximum number of bits added at a time, so that the pending bits fit a word.
const STEP_BITS: u32 = 16;

/// The error of an invalid record: something, perhaps the program, damaged the trace buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

/// An encoder of the complete trace of one thread.
#[derive(Debug)]
pub(super) struct Encoder {
    out: Vec<u8>,
    /// Pending TNT bits, the oldest highest.
    tnt: u64,
    tnt_count: u32,
    last_ip: LastIp,
    stack: [u64; STACK_DEPTH],
    top: usize,
    depth: usize,
    /// Length of `out` at which a PSB is due.
    psb_at: usize,
    psb_period: usize,
    mode_reported: bool,
    tsc: u64,
    /// True if the history begins with the next record or event.
    begins: bool,
    /// The edge of the last record, if it is a return or indirect branch whose target is not yet
    /// known; else 0.
    owed: u32,
    /// True in the program; false in the kernel, where `PacketEn` is 0.
    running: bool,
    /// The current address; 0 if a record may begin anywhere.
    here: u64,
    /// The edge whose path contains the last packet or pending bit; 0 if `quiet` has all edges
    /// since.
    loud: u32,
    /// The edges after `loud`, which added no bit or packet to the trace.
    quiet: Vec<u32>,
    instructions: u64,
}

impl Encoder {
    pub(super) fn new(psb_period: usize) -> Self {
        Self {
            out: Vec::new(),
            tnt: 0,
            tnt_count: 0,
            last_ip: LastIp::new(),
            stack: [0; STACK_DEPTH],
            top: 0,
            depth: 0,
            psb_at: 0,
            psb_period,
            mode_reported: false,
            tsc: 0,
            begins: false,
            owed: 0,
            running: false,
            here: 0,
            loud: 0,
            quiet: Vec::new(),
            instructions: 0,
        }
    }

    /// Returns the number of instructions so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Returns the packets since the last call, without pending branches.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        self.psb_at = self.psb_at.saturating_sub(self.out.len());
        std::mem::take(&mut self.out)
    }

    /// Writes packets for the pending branches (TNT bits).
    pub(super) fn flush(&mut self) {
        self.flush_tnt();
    }

    /// Encodes the record of an edge that is not plain, or for which a PSB is due. `value` is the
    /// target of a return or indirect branch, or the time of a return from the kernel.
    fn record(
        &mut self,
        dictionary: &Dictionary,
        number: u32,
        value: u64,
    ) -> Result<(), BadRecord> {
        let edge = dictionary.edge(number).ok_or(BadRecord)?;
        if edge.kind != EdgeKind::SyscallReturn {
            self.begin_at(edge.start);
        } else if self.running {
            // Only a thread in the kernel returns from there.
            return Err(BadRecord);
        }
        if self.out.len() >= self.psb_at {
            self.settle_for(dictionary, edge.start);
            self.psb(edge.start);
        }
        if edge.kind == EdgeKind::SyscallReturn {
            self.enter(edge.target, value);
            return Ok(());
        }
        self.path(edge, number, dictionary)?;
        match edge.kind {
            EdgeKind::Direct => self.direct(edge, number, dictionary),
            EdgeKind::Syscall => {
                self.leave_by_branch();
                self.here = edge.target;
            }
            EdgeKind::Return => self.near_return(value),
            _ => self.tip(value),
        }
        Ok(())
    }

    /// Encodes the owed record, if there is one: its branch led to `ip`.
    pub(super) fn arrive(&mut self, dictionary: &Dictionary, ip: u64) -> Result<(), BadRecord> {
        match std::mem::take(&mut self.owed) {
            0 => Ok(()),
            number => self.record(dictionary, number, ip),
        }
    }

    /// Sets the time at which the thread was created. Its first PSB+ reports that time: it precedes
    /// the return from the system call that created the thread.
    pub(super) fn born(&mut self, tsc: u64) {
        self.tsc = tsc;
    }

    /// Begins the history with the next record or event. Anything before is unknown.
    pub(super) fn begin(&mut self, tsc: u64) {
        self.begins = true;
        self.tsc = tsc;
        self.owed = 0;
        self.running = false;
        self.here = 0;
        self.psb_at = self.out.len();
    }

    /// Writes an overflow: everything until the next beginning is lost (SDM, "Overflow (OVF)
    /// Packet").
    pub(super) fn lose(&mut self) {
        encode(&Packet::Ovf, &mut self.out);
        self.mark_loud();
    }

    /// Starts the history at `ip`, if it begins with the current record or event.
    fn begin_at(&mut self, ip: u64) {
        if std::mem::take(&mut self.begins) {
            self.psb(ip);
            self.put_enable(ip);
            self.running = true;
            self.here = ip;
        }
    }

    /// Encodes the TNT bits and calls of an edge's path. Fails if the path does not start where the
    /// thread is.
    fn path(&mut self, edge: &Edge, number: u32, dictionary: &Dictionary) -> Result<(), BadRecord> {
        if (self.here != edge.start && self.here != 0) || !self.running {
            return Err(BadRecord);
        }
        if edge.since > self.tsc {
            self.catch_up(dictionary, edge);
        }
        self.instructions += u64::from(edge.instructions);
        if edge.bit_count > 0 {
            self.bits(edge.bits, edge.bit_count.into());
            self.loud = number;
            self.quiet.clear();
        }
        if edge.peak > 0 {
            // A full stack lost its oldest entries to the path's calls, also to those that
            // returned.
            self.depth = self.depth.min(STACK_DEPTH - usize::from(edge.peak));
            for &address in dictionary.pushes_of(edge) {
                self.push(address);
            }
        }
        Ok(())
    }

    /// Reports `edge.since`, the time since which the edge's code is unchanged, by an entry into
    /// the kernel and a return: a decoder needs it to find the code. Reports first what is pending.
    /// The caller has checked that the time is newer than the last reported one.
    #[cold]
    fn catch_up(&mut self, dictionary: &Dictionary, edge: &Edge) {
        self.settle_for(dictionary, edge.start);
        self.leave(edge.start);
        self.enter(edge.start, edge.since);
    }

    /// Ends a path at the edge's target, which was known at translation.
    fn direct(&mut self, edge: &Edge, number: u32, dictionary: &Dictionary) {
        self.here = edge.target;
        if edge.bit_count == 0 {
            self.quiet.push(number);
        }
        let passed = edge.branch && self.has_passed(dictionary, edge.target);
        if passed || self.quiet.len() > QUIET_LIMIT {
            self.settle(dictionary, &[]);
        }
    }

    /// Encodes the steps that a thread executed of a path, up to the instruction at `ip`, where an
    /// event interrupted it. Does not encode the event: call [`Self::leave`] next.
    pub(super) fn partial(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        if let Some(first) = steps.first() {
            self.begin_at(first.ip);
        }
        self.instructions += steps.len() as u64;
        // The number of steps up to the last one that added a bit: those after it are quiet.
        let mut following = 0;
        for (number, step) in steps.iter().enumerate() {
            match step.outcome {
                Outcome::Plain | Outcome::Jump => continue,
                Outcome::Call => {
                    self.push(step.ip.wrapping_add(step.len.into()));
                    continue;
                }
                Outcome::NotTaken => self.bits(0, 1),
                Outcome::Taken => self.bits(1, 1),
                Outcome::Return => {
                    self.depth = self.depth.saturating_sub(1);
                    self.top = self.top.wrapping_sub(1);
                    self.bits(1, 1);
                }
            }
            following = number + 1;
        }
        if following > 0 {
            self.mark_loud();
        }
        self.here = ip;
        self.settle_partial(dictionary, &steps[following..]);
    }

    /// Encodes an instruction that the tracer executed, after which the thread is at `next`.
    pub(super) fn native(&mut self, insn: &Insn, next: u64) {
        self.begin_at(insn.ip.0);
        self.instructions += 1;
        self.here = next;
        match insn.class {
            Class::Jcc { target } => self.bits(u64::from(target.0 == next), 1),
            Class::JmpIndirect => self.tip(next),
            Class::CallIndirect => {
                self.push(insn.next().0);
                self.tip(next);
            }
            Class::Call { target } if target != insn.next() => self.push(insn.next().0),
            Class::Ret => self.near_return(next),
            class if class.is_far() => self.leave_by_branch(),
            _ => {}
        }
    }

    /// Encodes an entry into the kernel, by anything but a branch, before the instruction at `ip`.
    pub(super) fn leave(&mut self, ip: u64) {
        self.begins = false;
        if self.running {
            self.flush_tnt();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
            self.leave_by_branch();
        }
    }

    /// Ends the history at the target of the last record, or if that is unknown, at the start of
    /// its path.
    pub(super) fn end(&mut self, dictionary: &Dictionary) {
        self.owed = 0;
        let ip = self.here;
        if self.running && ip != 0 {
            self.settle_for(dictionary, ip);
            self.leave(ip);
        }
    }

    /// Encodes a far branch into the kernel.
    fn leave_by_branch(&mut self) {
        self.flush_tnt();
        let suppressed = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        encode(&Packet::TipPgd(suppressed), &mut self.out);
        self.running = false;
        self.mark_loud();
    }

    /// Encodes a return to the program, at `ip`.
    pub(super) fn enter(&mut self, ip: u64, tsc: u64) {
        if self.running {
            return;
        }
        self.begins = false;
        self.tsc = tsc;
        if self.out.len() >= self.psb_at {
            self.psb(ip);
        }
        encode(&Packet::Tsc(tsc), &mut self.out);
        self.put_enable(ip);
        self.running = true;
        self.here = ip;
    }

    /// Writes a TIP.PGE to `ip`, after the mode if that was not written since the last PSB.
    fn put_enable(&mut self, ip: u64) {
        if !self.mode_reported {
            self.put_mode();
        }
        let ip = self.last_ip.compress(Addr(ip));
        encode(&Packet::TipPge(ip), &mut self.out);
    }

    fn put_mode(&mut self) {
        encode(&Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false }, &mut self.out);
        self.mode_reported = true;
    }

    /// Writes a PSB+ (SDM section "PSB+"), at which decoding can begin. `ip` is the current address
    /// if the thread is in the program.
    #[cold]
    fn psb(&mut self, ip: u64) {
        self.flush_tnt();
        encode(&Packet::Psb, &mut self.out);
        self.last_ip.reset();
        self.depth = 0;
        self.mode_reported = false;
        encode(&Packet::Tsc(self.tsc), &mut self.out);
        if self.running {
            self.put_mode();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
        }
        encode(&Packet::PsbEnd, &mut self.out);
        self.psb_at = self.out.len() + self.psb_period;
        self.mark_loud();
    }

    #[inline]
    fn push(&mut self, address: u64) {
        self.top = self.top.wrapping_add(1);
        self.stack[self.top % STACK_DEPTH] = address;
        self.depth = (self.depth + 1).min(STACK_DEPTH);
    }

    /// Returns true if a return matches the top of the CPU's return stack: it is encoded as a taken
    /// branch then. Empties the stack on a mismatch: some decoders drop its top then, and some keep
    /// it.
    #[inline]
    fn matches(&mut self, target: u64) -> bool {
        let matches = self.depth > 0 && self.stack[self.top % STACK_DEPTH] == target;
        if matches {
            self.depth -= 1;
            self.top = self.top.wrapping_sub(1);
        } else {
            self.depth = 0;
        }
        matches
    }

    /// Encodes a return to `target`, as a TNT bit if the return stack has that address.
    fn near_return(&mut self, target: u64) {
        if self.matches(target) {
            self.here = target;
            self.bits(1, 1);
            self.mark_loud();
        } else {
            self.tip(target);
        }
    }

    /// Writes a TIP packet: does the same as [`encode`], but faster.
    fn tip(&mut self, target: u64) {
        self.flush_tnt();
        let payload = self.last_ip.compress(Addr(target));
        let (code, size) = match payload.compression {
            IpCompression::Suppressed => (0, 0),
            IpCompression::Update16 => (1, 2),
            IpCompression::Update32 => (2, 4),
            IpCompression::SignExtend48 => (3, 6),
            IpCompression::Update48 => (4, 6),
            IpCompression::Full => (6, 8),
        };
        self.out.push(code << 5 | 0x0d);
        self.out.extend_from_slice(&payload.value.to_le_bytes());
        self.out.truncate(self.out.len() - (8 - size));
        self.here = target;
        self.mark_loud();
    }

    /// Adds `count` branch outcomes, the oldest highest in `bits`.
    #[inline]
    fn bits(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > STEP_BITS {
            left -= STEP_BITS;
            self.few_bits(bits >> left & 0xffff, STEP_BITS);
        }
        self.few_bits(bits & ((1 << left) - 1), left);
    }

    /// Adds up to [`STEP_BITS`] branch outcomes.
    #[inline]
    fn few_bits(&mut self, bits: u64, count: u32) {
        self.tnt = self.tnt << count | bits;
        self.tnt_count += count;
        if self.tnt_count >= TNT_BITS {
            let rest = self.tnt_count - TNT_BITS;
            self.long_tnt(self.tnt >> rest, TNT_BITS);
            self.tnt &= (1 << rest) - 1;
            self.tnt_count = rest;
        }
    }

    #[inline]
    /// Writes a long TNT packet. A 1 before the oldest bit marks where they begin.
    fn long_tnt(&mut self, bits: u64, count: u32) {
        let word = (bits | 1 << count) << 16 | LONG_TNT;
        self.out.extend_from_slice(&word.to_le_bytes());
    }

    /// Writes packets for the pending bits.
    #[inline]
    fn flush_tnt(&mut self) {
        let count = self.tnt_count;
        if count > 12 {
            self.long_tnt(self.tnt, count);
        } else if count > 0 {
            // Up to two short packets, of up to 6 bits each.
            let second = count.saturating_sub(6);
            let first = (self.tnt >> second | 1 << (count - second)) << 1;
            self.out.push(first.to_le_bytes()[0]);
            if second > 0 {
                let bits = (self.tnt & ((1 << second) - 1) | 1 << second) << 1;
                self.out.push(bits.to_le_bytes()[0]);
            }
        }
        (self.tnt, self.tnt_count) = (0, 0);
    }
}
