//! Records of the code cache to PT packets, one encoder a thread. Records are the fast way in;
//! what the tracer saw (a signal, an instruction that it executed) comes by methods of its own.

use crate::common::Addr;
use crate::flow::{Class, Insn};
use crate::pt::{ExecMode, IpCompression, IpPayload, LastIp, Packet, encode};
use crate::translate::{Edge, EdgeKind, Outcome, Step};

/// The SDM's depth of RET compression.
const STACK_DEPTH: usize = 64;
/// Branches in a long TNT packet (SDM table "TNT Packet Definition").
const TNT_BITS: u32 = 47;
/// Edges without a packet after which one is written in any case.
const QUIET_LIMIT: usize = 256;
/// Bits that are added at a time, so that what is pending fits a word.
const STEP_BITS: u32 = 16;

/// What all encoders of a process share.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pub(super) edges: Vec<Edge>,
    pub(super) pushes: Vec<u64>,
    pub(super) quiet_targets: Vec<u64>,
}

/// A record that cannot be: the trace buffer was damaged, by the program perhaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRecord;

/// Writes the trace of one thread.
#[derive(Debug)]
pub(super) struct Encoder {
    out: Vec<u8>,
    /// TNT bits that wait for more, the oldest highest.
    tnt: u64,
    tnt_count: u32,
    last_ip: LastIp,
    stack: [u64; STACK_DEPTH],
    top: usize,
    depth: usize,
    /// Length of `out` at which a PSB is due.
    psb_at: usize,
    psb_period: usize,
    mode_told: bool,
    tsc: u64,
    /// In the program; else in the kernel, and `PacketEn` is 0.
    running: bool,
    /// Where the path stands; 0 where a record may begin anywhere.
    here: u64,
    /// The range of the addresses that were passed since the last packet or pending bit.
    quiet_low: u64,
    quiet_high: u64,
    /// The edges by which they were.
    quiet: Vec<Edge>,
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
            mode_told: false,
            tsc: 0,
            running: false,
            here: 0,
            quiet_low: u64::MAX,
            quiet_high: 0,
            quiet: Vec::new(),
            instructions: 0,
        }
    }

    /// Instructions of the path so far.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The packets since the last call. Branches that wait for more stay.
    pub(super) fn drain(&mut self) -> Vec<u8> {
        self.psb_at = self.psb_at.saturating_sub(self.out.len());
        std::mem::take(&mut self.out)
    }

    /// Writes the branches that wait for more.
    pub(super) fn flush(&mut self) {
        self.flush_tnt();
    }

    /// Encodes records. Stops at one that cannot be.
    pub(super) fn records(
        &mut self,
        dictionary: &Dictionary,
        mut bytes: &[u8],
    ) -> Result<(), BadRecord> {
        while let Some((number, rest)) = bytes.split_first_chunk::<4>() {
            let number = u32::from_le_bytes(*number);
            let edge = dictionary.edges.get(number as usize).ok_or(BadRecord)?;
            if self.out.len() >= self.psb_at {
                self.settle_for(dictionary, edge.start);
                self.psb(edge.start);
            }
            if edge.kind == EdgeKind::Direct {
                bytes = rest;
                self.path(edge, dictionary)?;
                self.direct(edge, dictionary);
                continue;
            }
            if edge.kind == EdgeKind::Syscall {
                bytes = rest;
                self.path(edge, dictionary)?;
                self.leave_by_branch();
                self.here = edge.target;
                continue;
            }
            let (value, rest) = rest.split_first_chunk::<8>().ok_or(BadRecord)?;
            let value = u64::from_le_bytes(*value);
            bytes = rest;
            match edge.kind {
                EdgeKind::SyscallReturn => self.enter(edge.target, value),
                EdgeKind::Return => {
                    self.path(edge, dictionary)?;
                    self.near_return(value);
                }
                _ => {
                    self.path(edge, dictionary)?;
                    self.tip(value);
                }
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(BadRecord) }
    }

    /// What a path did up to its last branch.
    #[inline]
    fn path(&mut self, edge: &Edge, dictionary: &Dictionary) -> Result<(), BadRecord> {
        if self.here != edge.start && self.here != 0 || !self.running {
            return Err(BadRecord);
        }
        if edge.since > self.tsc {
            self.catch_up(dictionary, edge);
        }
        self.instructions += u64::from(edge.instructions);
        if edge.bit_count > 0 {
            self.bits(edge.bits, edge.bit_count.into());
            self.is_loud();
        }
        if edge.peak > 0 {
            self.depth = self.depth.min(STACK_DEPTH - usize::from(edge.peak));
            let first = edge.first_push as usize;
            for &address in
                dictionary.pushes.get(first..first + usize::from(edge.pushes)).ok_or(BadRecord)?
            {
                self.push(address);
            }
        }
        Ok(())
    }

    /// The path's code is younger than the time that the trace last told: another thread, maybe,
    /// made it. A decoder must know the time to know the code.
    #[cold]
    fn catch_up(&mut self, dictionary: &Dictionary, edge: &Edge) {
        self.settle_for(dictionary, edge.start);
        self.leave(edge.start);
        self.enter(edge.start, edge.since);
    }

    #[inline]
    fn direct(&mut self, edge: &Edge, dictionary: &Dictionary) {
        self.here = edge.target;
        if edge.quiet_low <= edge.quiet_high {
            self.quiet_low = self.quiet_low.min(edge.quiet_low);
            self.quiet_high = self.quiet_high.max(edge.quiet_high);
            self.quiet.push(*edge);
            let passed = self.quiet_low <= edge.target && edge.target <= self.quiet_high;
            if edge.branch && passed || self.quiet.len() > QUIET_LIMIT {
                self.settle(dictionary);
            }
        }
    }

    /// Something was written that pins the path: a packet, or a bit that waits for more.
    #[inline]
    fn is_loud(&mut self) {
        (self.quiet_low, self.quiet_high) = (u64::MAX, 0);
        self.quiet.clear();
    }

    /// A packet is about to name `ip`, and a decoder would take the first arrival there.
    fn settle_for(&mut self, dictionary: &Dictionary, ip: u64) {
        if self.quiet_low <= ip && ip <= self.quiet_high {
            self.settle(dictionary);
        }
    }

    /// A circle of direct branches may have closed without a packet. What comes later may bind to
    /// an arrival there, and a decoder would take the first: each is told. A TIP.PGD with an IP
    /// binds to the first branch that leads there (SDM section "TIP.PGD"), so one is written for
    /// each such branch up to the last.
    #[cold]
    fn settle(&mut self, dictionary: &Dictionary) {
        let Some(last) = self.quiet.iter().rposition(|edge| edge.branch) else { return };
        let target = self.quiet[last].target;
        let arrivals = |edge: &Edge| {
            let first = edge.first_quiet as usize;
            let targets = first..first + usize::from(edge.quiet_branches);
            let targets = dictionary.quiet_targets.get(targets).unwrap_or_default();
            targets.iter().filter(|&&to| to == target).count()
        };
        let count: usize = self.quiet[..=last].iter().map(arrivals).sum();
        self.flush_tnt();
        for _ in 0..count {
            let ip = self.last_ip.compress(Addr(target));
            encode(&Packet::TipPgd(ip), &mut self.out);
            self.put_enable(target);
        }
        self.quiet.drain(..=last);
        self.quiet_low = self.quiet.iter().map(|edge| edge.quiet_low).min().unwrap_or(u64::MAX);
        self.quiet_high = self.quiet.iter().map(|edge| edge.quiet_high).max().unwrap_or(0);
    }

    /// The first `count` instructions of a path were executed, and an event took the thread into
    /// the kernel before the next.
    pub(super) fn partial(&mut self, dictionary: &Dictionary, steps: &[Step], ip: u64) {
        let has_bits = steps.iter().any(|s| !matches!(s.outcome, Outcome::Plain | Outcome::Call));
        if !has_bits {
            self.settle_for(dictionary, ip);
        }
        self.instructions += steps.len() as u64;
        for step in steps {
            match step.outcome {
                Outcome::Plain => {}
                Outcome::NotTaken => self.bits(0, 1),
                Outcome::Taken => self.bits(1, 1),
                Outcome::Call => self.push(step.ip.wrapping_add(step.len.into())),
                Outcome::Return => {
                    self.depth = self.depth.saturating_sub(1);
                    self.top = self.top.wrapping_sub(1);
                    self.bits(1, 1);
                }
            }
        }
        if has_bits {
            self.is_loud();
        }
        self.here = ip;
    }

    /// The tracer executed an instruction, and the thread stands at `next`.
    pub(super) fn native(&mut self, insn: &Insn, next: u64) {
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

    /// Something that is no branch takes the thread into the kernel before the instruction at
    /// `ip`.
    pub(super) fn leave(&mut self, ip: u64) {
        if self.running {
            self.flush_tnt();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
            self.leave_by_branch();
        }
    }

    /// A far branch takes the thread into the kernel.
    fn leave_by_branch(&mut self) {
        self.flush_tnt();
        let suppressed = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        encode(&Packet::TipPgd(suppressed), &mut self.out);
        self.running = false;
        self.is_loud();
    }

    /// The thread goes on in the program, at `ip`.
    pub(super) fn enter(&mut self, ip: u64, tsc: u64) {
        if self.running {
            return;
        }
        self.tsc = tsc;
        if self.out.len() >= self.psb_at {
            self.psb(ip);
        }
        encode(&Packet::Tsc(tsc), &mut self.out);
        self.put_enable(ip);
        self.running = true;
        self.here = ip;
    }

    fn put_enable(&mut self, ip: u64) {
        if !self.mode_told {
            self.put_mode();
        }
        let ip = self.last_ip.compress(Addr(ip));
        encode(&Packet::TipPge(ip), &mut self.out);
    }

    fn put_mode(&mut self) {
        encode(&Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false }, &mut self.out);
        self.mode_told = true;
    }

    /// PSB+ (SDM section "PSB+"): decoding can begin here.
    #[cold]
    fn psb(&mut self, ip: u64) {
        self.flush_tnt();
        encode(&Packet::Psb, &mut self.out);
        self.last_ip.reset();
        self.depth = 0;
        self.mode_told = false;
        encode(&Packet::Tsc(self.tsc), &mut self.out);
        if self.running {
            self.put_mode();
            let ip = self.last_ip.compress(Addr(ip));
            encode(&Packet::Fup(ip), &mut self.out);
        }
        encode(&Packet::PsbEnd, &mut self.out);
        self.psb_at = self.out.len() + self.psb_period;
        self.is_loud();
    }

    fn push(&mut self, address: u64) {
        self.top = self.top.wrapping_add(1);
        self.stack[self.top % STACK_DEPTH] = address;
        self.depth = (self.depth + 1).min(STACK_DEPTH);
    }

    /// A return is a taken branch where the CPU's own stack of return addresses says the same. On
    /// a mismatch the stack is emptied: some decoders drop its top then, and some keep it.
    #[inline]
    fn near_return(&mut self, target: u64) {
        if self.depth > 0 && self.stack[self.top % STACK_DEPTH] == target {
            self.depth -= 1;
            self.top = self.top.wrapping_sub(1);
            self.here = target;
            self.bits(1, 1);
            self.is_loud();
        } else {
            self.depth = 0;
            self.tip(target);
        }
    }

    #[inline]
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
        self.is_loud();
    }

    /// Adds branch outcomes.
    #[inline]
    fn bits(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > STEP_BITS {
            left -= STEP_BITS;
            self.few_bits(bits >> left & 0xffff, STEP_BITS);
        }
        self.few_bits(bits & ((1 << left) - 1), left);
    }

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
    fn long_tnt(&mut self, bits: u64, count: u32) {
        let word = (bits | 1 << count) << 16 | 0xa302;
        self.out.extend_from_slice(&word.to_le_bytes());
    }

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
