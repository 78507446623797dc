//! The fast encoder, for complete traces. [`hot`] is the loop over records: it encodes the plain
//! ones itself ([`super::dictionary::Treatment`]), and calls `encode_record` for all others. Events
//! that the tracer saw (a signal, an instruction that it executed) have their own methods.
//!
//! An edge is *loud* if it adds a packet or a TNT bit to the trace, and *quiet* if it adds nothing.
//! A decoder would bind a packet to the first arrival at its address since the last packet or bit.
//! If quiet edges may have passed that address, the encoder first reports each round of their loop
//! ([`circles`]). A return or indirect branch is *owed* while its target is unknown: the next
//! record shows it. *Pending* bits are TNT bits that are in no packet yet. An edge's `since` is the
//! time since which its code is unchanged; its `peak`, the most calls of its path open at a time.

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
    /// The packets that are not drained yet.
    out: Vec<u8>,
    /// Pending TNT bits, the oldest highest.
    tnt: u64,
    tnt_count: u32,
    last_ip: LastIp,
    /// The return addresses of calls, for RET compression: `depth` of them, the newest at `top`.
    stack: [u64; STACK_DEPTH],
    top: usize,
    depth: usize,
    /// Length of `out` at which a PSB is due.
    psb_at: usize,
    /// The number of bytes of packets from one PSB to the next.
    psb_period_bytes: usize,
    /// True if there was a MODE.Exec since the last PSB.
    mode_reported: bool,
    /// The last reported time.
    tsc: u64,
    /// True if the history begins with the next record or event.
    is_at_beginning: bool,
    /// The number of the owed record's edge; 0 if none is owed.
    owed: u32,
    /// True in the program; false in the kernel, where `PacketEn` is 0.
    in_program: bool,
    /// The current address; 0 if a record may begin anywhere.
    ip: u64,
    /// The number of the edge whose path added the last packet or bit; 0 if that was at the end of
    /// its path, or no edge added it.
    loud: u32,
    /// The numbers of the edges after that packet or bit (and after `loud`), which added nothing to
    /// the trace.
    quiet: Vec<u32>,
    /// The number of instructions so far.
    instructions: u64,
}

impl Encoder {
    /// Creates the encoder of a thread that has not run yet. A PSB comes every `psb_period_bytes`.
    pub(super) fn new(psb_period_bytes: usize) -> Self {
        Self {
            out: Vec::new(),
            tnt: 0,
            tnt_count: 0,
            last_ip: LastIp::new(),
            stack: [0; STACK_DEPTH],
            top: 0,
            depth: 0,
            psb_at: 0,
            psb_period_bytes,
            mode_reported: false,
            tsc: 0,
            is_at_beginning: false,
            owed: 0,
            in_program: false,
            ip: 0,
            loud: 0,
            quiet: Vec::new(),
            instructions: 0,
        }
    }

    /// Returns the number of instructions so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Removes and returns the packets written since the last call, without pending bits.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        self.psb_at = self.psb_at.saturating_sub(self.out.len());
        std::mem::take(&mut self.out)
    }

    /// Encodes the record of any edge, as `hot` does for plain ones, after a PSB if that is due.
    /// `value` is the target of a return or indirect branch, or the time of a return from the
    /// kernel. Fails if the record cannot follow the last one.
    fn encode_record(
        &mut self,
        dictionary: &Dictionary,
        number: u32,
        value: u64,
    ) -> Result<(), BadRecord> {
        let edge = dictionary.edge(number).ok_or(BadRecord)?;
        if edge.kind != EdgeKind::SyscallReturn {
            self.begin_at(edge.start);
        } else if self.in_program {
            // Only a thread in the kernel returns from there.
            return Err(BadRecord);
        }
        if self.out.len() >= self.psb_at {
            self.report_rounds_before(dictionary, edge.start);
            self.put_psb_plus(edge.start);
        }
        if edge.kind == EdgeKind::SyscallReturn {
            self.return_from_kernel(edge.target, value);
            return Ok(());
        }
        self.encode_path(edge, number, dictionary)?;
        match edge.kind {
            EdgeKind::Direct => self.end_direct_path(edge, number, dictionary),
            EdgeKind::Syscall => {
                self.branch_to_kernel();
                self.ip = edge.target;
            }
            EdgeKind::Return => self.encode_return(value),
            _ => self.put_tip(value),
        }
        Ok(())
    }

    /// Encodes the owed record, if there is one: its branch led to `ip`. Fails if that record
    /// cannot follow the last one; it is then dropped.
    pub(super) fn finish_owed_record(
        &mut self,
        dictionary: &Dictionary,
        ip: u64,
    ) -> Result<(), BadRecord> {
        match std::mem::take(&mut self.owed) {
            0 => Ok(()),
            number => self.encode_record(dictionary, number, ip),
        }
    }

    /// Sets the time at which the thread was created, for its first PSB+, before the return from
    /// the system call that created it. Call this first: it overwrites the last reported time.
    pub(super) fn set_creation_time(&mut self, tsc: u64) {
        self.tsc = tsc;
    }

    /// Begins the history at time `tsc`, with the next record or event: all before is unknown.
    pub(super) fn begin_history(&mut self, tsc: u64) {
        self.is_at_beginning = true;
        self.tsc = tsc;
        self.owed = 0;
        self.in_program = false;
        self.ip = 0;
        self.psb_at = self.out.len();
    }

    /// Writes an overflow: everything until [`Self::begin_history`] is lost (SDM, "Overflow (OVF)
    /// Packet"). The caller has ended the history before.
    pub(super) fn lose_history(&mut self) {
        encode(&Packet::Ovf, &mut self.out);
        self.forget_edges();
    }

    /// Writes a PSB+ and an enable at `ip`, if the history begins with the current record or event.
    fn begin_at(&mut self, ip: u64) {
        if std::mem::take(&mut self.is_at_beginning) {
            self.put_psb_plus(ip);
            self.put_enable(ip);
            self.in_program = true;
            self.ip = ip;
        }
    }

    /// Encodes the TNT bits and calls of an edge's path, but not its exit. Fails if the path does
    /// not start where the thread is. Reports first since when the code is unchanged, if that is
    /// new.
    fn encode_path(
        &mut self,
        edge: &Edge,
        number: u32,
        dictionary: &Dictionary,
    ) -> Result<(), BadRecord> {
        if (self.ip != edge.start && self.ip != 0) || !self.in_program {
            return Err(BadRecord);
        }
        if edge.since > self.tsc {
            self.report_code_time(dictionary, edge);
        }
        self.instructions += u64::from(edge.instructions);
        if edge.bit_count > 0 {
            self.add_bits(edge.bits, edge.bit_count.into());
            self.loud = number;
            self.quiet.clear();
        }
        if edge.peak > 0 {
            // A full stack lost its oldest entries to the path's calls, also to those that
            // returned.
            self.depth = self.depth.min(STACK_DEPTH - usize::from(edge.peak));
            for &address in dictionary.pushes_of(edge) {
                self.push_return_address(address);
            }
        }
        Ok(())
    }

    /// Reports `edge.since`, the time since which the edge's code is unchanged, by an entry into
    /// the kernel and a return at that time: a decoder needs it to find the code.
    /// The caller has checked that the time is newer than the last reported one.
    #[cold]
    fn report_code_time(&mut self, dictionary: &Dictionary, edge: &Edge) {
        self.report_rounds_before(dictionary, edge.start);
        self.enter_kernel(edge.start);
        self.return_from_kernel(edge.start, edge.since);
    }

    /// Moves to the target of a direct edge, whose path was just encoded. Reports the rounds of
    /// quiet edges if they passed the target, or are too many.
    fn end_direct_path(&mut self, edge: &Edge, number: u32, dictionary: &Dictionary) {
        self.ip = edge.target;
        if edge.bit_count == 0 {
            self.quiet.push(number);
        }
        let passed = edge.branch && self.has_passed(dictionary, edge.target);
        if passed || self.quiet.len() > QUIET_LIMIT {
            self.report_rounds(dictionary, &[]);
        }
    }

    /// Encodes the `steps` (instructions) that a thread executed of a path before an event
    /// interrupted it at `ip`. Does not encode the event: call [`Self::enter_kernel`] next.
    pub(super) fn partial_path(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        if let Some(first) = steps.first() {
            self.begin_at(first.ip);
        }
        self.instructions += steps.len() as u64;
        // The index of the step after the last one that added a bit: from there on, steps are
        // quiet.
        let mut first_quiet = 0;
        for (number, step) in steps.iter().enumerate() {
            match step.outcome {
                Outcome::Plain | Outcome::Jump => continue,
                Outcome::Call => {
                    self.push_return_address(step.ip.wrapping_add(step.len.into()));
                    continue;
                }
                Outcome::NotTaken => self.add_bits(0, 1),
                Outcome::Taken => self.add_bits(1, 1),
                Outcome::Return => {
                    self.depth = self.depth.saturating_sub(1);
                    self.top = self.top.wrapping_sub(1);
                    self.add_bits(1, 1);
                }
            }
            first_quiet = number + 1;
        }
        if first_quiet > 0 {
            self.forget_edges();
        }
        self.ip = ip;
        self.report_rounds_of_partial(dictionary, &steps[first_quiet..]);
    }

    /// Encodes one instruction, as [`super::Trace::stepped_insn`] describes. If the thread is in
    /// the kernel, encodes no return from there.
    pub(super) fn stepped_insn(&mut self, insn: &Insn, next: u64) {
        self.begin_at(insn.ip.0);
        self.instructions += 1;
        self.ip = next;
        match insn.class {
            Class::Jcc { target } => self.add_bits(u64::from(target.0 == next), 1),
            Class::JmpIndirect => self.put_tip(next),
            Class::CallIndirect => {
                self.push_return_address(insn.next().0);
                self.put_tip(next);
            }
            Class::Call { target } if target != insn.next() => {
                self.push_return_address(insn.next().0);
            }
            Class::Ret => self.encode_return(next),
            class if class.is_far() => self.branch_to_kernel(),
            _ => {}
        }
    }

    /// Encodes an entry into the kernel before the instruction at `ip`, by anything but a far
    /// branch. Writes the pending bits first. Encodes nothing if the thread is in the kernel.
    pub(super) fn enter_kernel(&mut self, ip: u64) {
        self.is_at_beginning = false;
        if self.in_program {
            self.flush();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
            self.branch_to_kernel();
        }
    }

    /// Ends the history where the last record led, or if it is owed (it is dropped), where its path
    /// starts: encodes an entry into the kernel there, unless the thread is in the kernel.
    pub(super) fn end_history(&mut self, dictionary: &Dictionary) {
        self.owed = 0;
        let ip = self.ip;
        if self.in_program && ip != 0 {
            self.report_rounds_before(dictionary, ip);
            self.enter_kernel(ip);
        }
    }

    /// Encodes the entry into the kernel itself: by a far branch, or after the FUP of an event.
    fn branch_to_kernel(&mut self) {
        self.flush();
        let suppressed = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        encode(&Packet::TipPgd(suppressed), &mut self.out);
        self.in_program = false;
        self.forget_edges();
    }

    /// Encodes a return from the kernel to the program, at `ip` and time `tsc`, after a PSB+ if one
    /// is due. Does nothing if the thread is in the program.
    pub(super) fn return_from_kernel(&mut self, ip: u64, tsc: u64) {
        if self.in_program {
            return;
        }
        self.is_at_beginning = false;
        self.tsc = tsc;
        if self.out.len() >= self.psb_at {
            self.put_psb_plus(ip);
        }
        encode(&Packet::Tsc(tsc), &mut self.out);
        self.put_enable(ip);
        self.in_program = true;
        self.ip = ip;
    }

    /// Writes a TIP.PGE to `ip`, after the mode if that was not written since the last PSB.
    fn put_enable(&mut self, ip: u64) {
        if !self.mode_reported {
            self.put_mode();
        }
        let ip = self.last_ip.compress(Addr(ip));
        encode(&Packet::TipPge(ip), &mut self.out);
    }

    /// Writes a MODE.Exec for 64-bit code.
    fn put_mode(&mut self) {
        encode(&Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false }, &mut self.out);
        self.mode_reported = true;
    }

    /// Writes a PSB+ (SDM section "PSB+"), at which decoding can begin. `ip` is the current
    /// address; it is written if the thread is in the program. Empties the return stack.
    #[cold]
    fn put_psb_plus(&mut self, ip: u64) {
        self.flush();
        encode(&Packet::Psb, &mut self.out);
        self.last_ip.reset();
        self.depth = 0;
        self.mode_reported = false;
        encode(&Packet::Tsc(self.tsc), &mut self.out);
        if self.in_program {
            self.put_mode();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
        }
        encode(&Packet::PsbEnd, &mut self.out);
        self.psb_at = self.out.len() + self.psb_period_bytes;
        self.forget_edges();
    }

    /// Pushes the return address of a call. A full stack loses its oldest one.
    #[inline]
    fn push_return_address(&mut self, address: u64) {
        self.top = self.top.wrapping_add(1);
        self.stack[self.top % STACK_DEPTH] = address;
        self.depth = (self.depth + 1).min(STACK_DEPTH);
    }

    /// Pops the top of the return stack and returns true, if it is `target`: the return is then
    /// encoded as a taken branch. Otherwise empties the stack, because some decoders drop its top
    /// at such a return, and some keep it.
    #[inline]
    fn pop_if_match(&mut self, target: u64) -> bool {
        let matches = self.depth > 0 && self.stack[self.top % STACK_DEPTH] == target;
        if matches {
            self.depth -= 1;
            self.top = self.top.wrapping_sub(1);
        } else {
            self.depth = 0;
        }
        matches
    }

    /// Encodes a near return to `target`: as a TNT bit if the return stack has that address on top,
    /// else as a TIP.
    fn encode_return(&mut self, target: u64) {
        if self.pop_if_match(target) {
            self.ip = target;
            self.add_bits(1, 1);
            self.forget_edges();
        } else {
            self.put_tip(target);
        }
    }

    /// Writes the pending bits and a TIP to `target`, moves there, and forgets the edges before it
    /// ([`Self::forget_edges`]). [`encode`] would be slower.
    fn put_tip(&mut self, target: u64) {
        self.flush();
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
        self.ip = target;
        self.forget_edges();
    }

    /// Adds `count` branch outcomes, 64 at most, the oldest highest in `bits`, to the pending bits.
    /// Writes a long TNT whenever these fill one. Ignores the other bits.
    #[inline]
    fn add_bits(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > STEP_BITS {
            left -= STEP_BITS;
            self.add_few_bits(bits >> left & 0xffff, STEP_BITS);
        }
        self.add_few_bits(bits & ((1 << left) - 1), left);
    }

    /// Does the same as [`Self::add_bits`] for up to [`STEP_BITS`] outcomes.
    #[inline]
    fn add_few_bits(&mut self, bits: u64, count: u32) {
        self.tnt = self.tnt << count | bits;
        self.tnt_count += count;
        if self.tnt_count >= TNT_BITS {
            let rest = self.tnt_count - TNT_BITS;
            self.put_long_tnt(self.tnt >> rest, TNT_BITS);
            self.tnt &= (1 << rest) - 1;
            self.tnt_count = rest;
        }
    }

    /// Writes a long TNT packet of `count` bits. A stop bit above the oldest one marks where they
    /// begin.
    #[inline]
    fn put_long_tnt(&mut self, bits: u64, count: u32) {
        let word = (bits | 1 << count) << 16 | LONG_TNT;
        self.out.extend_from_slice(&word.to_le_bytes());
    }

    /// Writes packets for the pending bits.
    #[inline]
    pub(super) fn flush(&mut self) {
        let count = self.tnt_count;
        if count > 12 {
            self.put_long_tnt(self.tnt, count);
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
