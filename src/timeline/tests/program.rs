//! Random code whose control flow the interpreter knows without decoding it.

use crate::common::Addr;

/// A small generator of reproducible random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8;
        usize::try_from(mixed).expect("64-bit") % limit
    }

    pub(super) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// The kind of an instruction. Targets are numbers of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Plain(&'static [u8]),
    Jcc(usize),
    Jmp(usize),
    Call(usize),
    CallNext,
    JmpIndirect,
    CallIndirect,
    Ret,
    Syscall,
    /// The system call after `mov $15,%eax`.
    Sigreturn,
}

/// A sequence of instructions.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// The instructions' addresses, and the address after the last.
    pub(super) addrs: Vec<Addr>,
}

const PLAIN: [&[u8]; 4] = [
    &[0x90],
    &[0x48, 0x89, 0xc3],
    &[0x48, 0xb8, 0xc3, 0xe8, 0xff, 0xff, 0xff, 0xff, 0xeb, 0xfe],
    &[0xf3, 0x48, 0xa4],
];
const MOV_15_EAX: &[u8] = &[0xb8, 15, 0, 0, 0];

impl Program {
    /// Returns a program of about `count` instructions at `base`. Direct jumps and calls, which
    /// give no packets, go forward only.
    pub(super) fn random(random: &mut Random, count: usize, base: Addr) -> Self {
        let mut ops = Vec::new();
        while ops.len() < count {
            let at = ops.len();
            let later = at + 1 + random.below(count.saturating_sub(at).max(1));
            let any = random.below(count);
            match random.below(24) {
                0..3 => ops.push(Op::Jcc(any)),
                3 => ops.push(Op::Jmp(later)),
                4..6 => ops.push(Op::Call(later)),
                6 => ops.push(if random.one_in(2) { Op::CallIndirect } else { Op::JmpIndirect }),
                7..9 => ops.push(Op::Ret),
                9 if random.one_in(3) => ops.push(Op::Syscall),
                10 if random.one_in(3) => ops.extend([Op::Plain(MOV_15_EAX), Op::Sigreturn]),
                11 if random.one_in(3) => ops.push(Op::CallNext),
                _ => ops.push(Op::Plain(PLAIN[random.below(PLAIN.len())])),
            }
        }
        ops.push(Op::Ret);
        // Targets may lie after the end.
        let last = ops.len() - 1;
        for op in &mut ops {
            if let Op::Jcc(to) | Op::Jmp(to) | Op::Call(to) = op {
                *to = (*to).min(last);
            }
        }
        let mut addrs = vec![base];
        for op in &ops {
            addrs.push(addrs[addrs.len() - 1].wrapping_add(op.size() as u64));
        }
        Self { ops, addrs }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let code = |(number, op): (usize, &Op)| op.bytes(self.addrs[number + 1], &self.addrs);
        self.ops.iter().enumerate().flat_map(code).collect()
    }

    /// Returns the number of the instruction at `addr`.
    pub(super) fn at(&self, addr: Addr) -> usize {
        self.addrs.binary_search(&addr).expect("an instruction's address")
    }
}

impl Op {
    fn size(self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Ret => 1,
            Self::JmpIndirect | Self::CallIndirect | Self::Syscall | Self::Sigreturn => 2,
            Self::Jmp(_) | Self::Call(_) | Self::CallNext => 5,
            Self::Jcc(_) => 6,
        }
    }

    fn bytes(self, next: Addr, addrs: &[Addr]) -> Vec<u8> {
        let near = |opcode: &[u8], to: usize| {
            let distance = addrs[to].wrapping_sub(next.0).0;
            [opcode, &distance.to_le_bytes()[..4]].concat()
        };
        match self {
            Self::Plain(bytes) => bytes.to_vec(),
            Self::Jcc(to) => near(&[0x0f, 0x84], to),
            Self::Jmp(to) => near(&[0xe9], to),
            Self::Call(to) => near(&[0xe8], to),
            Self::CallNext => vec![0xe8, 0, 0, 0, 0],
            Self::JmpIndirect => vec![0xff, 0xe0],
            Self::CallIndirect => vec![0xff, 0xd0],
            Self::Ret => vec![0xc3],
            Self::Syscall | Self::Sigreturn => vec![0x0f, 0x05],
        }
    }
}
