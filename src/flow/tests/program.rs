//! Random programs: x86-64 code whose control flow the test knows without decoding it.

use crate::common::Addr;
use crate::image::CodeSource;
use crate::insn::ExecMode;

/// A small generator of reproducible random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next()).expect("64-bit") % limit
    }

    pub(super) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// The end of a run. Targets are numbers of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Jcc(usize),
    Loop(usize),
    Jmp(usize),
    Call(usize),
    CallNext,
    JmpIndirect,
    CallIndirect,
    Ret,
    Syscall,
    Ptwrite,
    /// No branch: the next run follows.
    None,
}

/// A straight run of instructions and its tail.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) addrs: Vec<Addr>,
    /// The tail's address, or that of the next run if there is no tail.
    pub(super) tail_ip: Addr,
    pub(super) tail: Tail,
    /// The address after the tail.
    pub(super) next: Addr,
}

/// A program and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) runs: Vec<Run>,
    base: Addr,
    mode: ExecMode,
    bytes: Vec<u8>,
}

const PLAIN: [&[u8]; 9] = [
    &[0x90],
    &[0x48, 0x89, 0xc3],
    &[0xb8, 1, 0, 0, 0],
    &[0x48, 0xb8, 0xc3, 0xe8, 0xff, 0xff, 0xff, 0xff, 0xeb, 0xfe],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0xf3, 0x48, 0xa4],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0xc5, 0xfc, 0x58, 0xc1],
    &[0x66, 0x0f, 0x38, 0x00, 0xc1],
];

const PLAIN_32: [&[u8]; 9] = [
    &[0x90],
    // A REX prefix in 64-bit code.
    &[0x40],
    &[0x89, 0xc3],
    &[0xb8, 0xc3, 0xe8, 0xff, 0xff],
    &[0x66, 0xb8, 0xeb, 0xfe],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0xf3, 0xa4],
    &[0xc5, 0xfc, 0x58, 0xc1],
    &[0x66, 0x0f, 0x38, 0x00, 0xc1],
];

const PLAIN_16: [&[u8]; 9] = [
    &[0x90],
    &[0x40],
    &[0x89, 0xc3],
    &[0xb8, 0xeb, 0xfe],
    &[0x66, 0xb8, 0xc3, 0xe8, 0xff, 0xff],
    &[0x0f, 0x1f, 0x80, 0, 0],
    &[0x67, 0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0xf3, 0xa4],
    &[0x66, 0x0f, 0x38, 0x00, 0xc1],
];

impl Program {
    /// Creates a random program of `runs` runs, in 64-bit code at 401000H, or of another width.
    /// Every loop contains a conditional or indirect branch, so that a walk reaches each address
    /// once.
    pub(super) fn random(random: &mut Random, runs: usize) -> Self {
        let tails = (0..runs).map(|at| Self::tail(random, at, runs)).collect();
        Self::of_tails(random, tails)
    }

    /// Creates a random program in which direct jumps and calls lead anywhere, also in loops.
    pub(super) fn circling(random: &mut Random, runs: usize) -> Self {
        let tail = |random: &mut Random, at| match random.below(3) {
            _ if at + 1 == runs => Tail::Ret,
            0 => Tail::Jmp(random.below(runs)),
            1 if random.one_in(2) => Tail::Call(random.below(runs)),
            _ => Self::tail(random, at, runs),
        };
        let tails = (0..runs).map(|at| tail(random, at)).collect();
        Self::of_tails(random, tails)
    }

    fn of_tails(random: &mut Random, tails: Vec<Tail>) -> Self {
        let runs = tails.len();
        // 16-bit code cannot branch beyond 64 KiB.
        let (mode, plain, base) = match random.below(4) {
            0 => (ExecMode::Bits32, PLAIN_32, Addr(0x40_1000)),
            1 => (ExecMode::Bits16, PLAIN_16, Addr(0x1000)),
            _ => (ExecMode::Bits64, PLAIN, Addr(0x40_1000)),
        };
        let bodies: Vec<Vec<&[u8]>> = (0..runs)
            .map(|_| (0..random.below(6)).map(|_| plain[random.below(plain.len())]).collect())
            .collect();
        let mut starts = vec![base];
        for (body, tail) in bodies.iter().zip(&tails) {
            let size: usize = body.iter().map(|insn| insn.len()).sum::<usize>() + tail.size(mode);
            starts.push(starts[starts.len() - 1].wrapping_add(size as u64));
        }
        let mut program = Self { runs: Vec::new(), base, mode, bytes: Vec::new() };
        for (body, tail) in bodies.iter().zip(tails) {
            program.push(body, tail, &starts);
        }
        program
    }

    fn tail(random: &mut Random, at: usize, runs: usize) -> Tail {
        if at + 1 == runs {
            return Tail::Ret;
        }
        let any = random.below(runs);
        let later = at + 1 + random.below(runs - at - 1);
        match random.below(20) {
            0..6 => Tail::Jcc(any),
            6 => Tail::Loop(at),
            7..9 => Tail::Jmp(later),
            9..12 => Tail::Call(later),
            12 => Tail::CallNext,
            13 => Tail::JmpIndirect,
            14 => Tail::CallIndirect,
            15..18 => Tail::Ret,
            18 if random.one_in(2) => Tail::Ptwrite,
            18 => Tail::Syscall,
            _ => Tail::None,
        }
    }

    fn push(&mut self, body: &[&[u8]], tail: Tail, starts: &[Addr]) {
        let mut addrs = Vec::new();
        for insn in body {
            addrs.push(self.end());
            self.bytes.extend_from_slice(insn);
        }
        let tail_ip = self.end();
        let next = tail_ip.wrapping_add(tail.size(self.mode) as u64);
        if tail != Tail::None {
            addrs.push(tail_ip);
        }
        self.bytes.extend(tail.bytes(self.mode, next, starts));
        self.runs.push(Run { addrs, tail_ip, tail, next });
    }

    /// Returns true if the target of a direct jump or call is its own address.
    pub(super) fn has_branch_to_itself(&self) -> bool {
        self.runs.iter().any(|run| match run.tail {
            Tail::Jmp(target) | Tail::Call(target) => self.start(target) == run.tail_ip,
            _ => false,
        })
    }

    fn end(&self) -> Addr {
        self.base.wrapping_add(self.bytes.len() as u64)
    }

    /// Returns the address of run `number`, or the program's end for the number after the last.
    pub(super) fn start(&self, number: usize) -> Addr {
        match self.runs.get(number) {
            Some(run) => run.addrs.first().copied().unwrap_or(run.tail_ip),
            None => self.end(),
        }
    }

    /// Returns the run that starts at `addr`; if empty runs share it, the first of them.
    pub(super) fn run_at(&self, addr: Addr) -> Option<usize> {
        (0..self.runs.len()).find(|number| self.start(*number) == addr)
    }

    /// Returns the width of the program's code.
    pub(super) const fn mode(&self) -> ExecMode {
        self.mode
    }

    /// Returns the code bytes, for another decoder.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Tail {
    fn size(self, mode: ExecMode) -> usize {
        // Displacements have 16 bits in 16-bit code.
        let distance = if mode == ExecMode::Bits16 { 2 } else { 4 };
        match self {
            Self::None => 0,
            Self::Ret => 1,
            Self::Loop(_) | Self::JmpIndirect | Self::CallIndirect | Self::Syscall => 2,
            Self::Jmp(_) | Self::Call(_) | Self::CallNext => 1 + distance,
            Self::Ptwrite if mode == ExecMode::Bits64 => 5,
            Self::Ptwrite => 4,
            Self::Jcc(_) => 2 + distance,
        }
    }

    fn bytes(self, mode: ExecMode, next: Addr, starts: &[Addr]) -> Vec<u8> {
        let relative = |target: Addr| {
            let size = if mode == ExecMode::Bits16 { 2 } else { 4 };
            target.wrapping_sub(next.0).0.to_le_bytes()[..size].to_vec()
        };
        let distance = |target: usize| relative(starts[target]);
        match self {
            Self::None => vec![],
            Self::Jcc(target) => [vec![0x0f, 0x84], distance(target)].concat(),
            // To itself: the run's last instruction repeats.
            Self::Loop(_) => vec![0xe2, 0xfe],
            Self::Jmp(target) => [vec![0xe9], distance(target)].concat(),
            Self::Call(target) => [vec![0xe8], distance(target)].concat(),
            Self::CallNext => [vec![0xe8], relative(next)].concat(),
            Self::JmpIndirect => vec![0xff, 0xe0],
            Self::CallIndirect => vec![0xff, 0xd0],
            Self::Ret => vec![0xc3],
            Self::Syscall if mode == ExecMode::Bits64 => vec![0x0f, 0x05],
            Self::Syscall => vec![0xcd, 0x80],
            Self::Ptwrite if mode == ExecMode::Bits64 => vec![0xf3, 0x48, 0x0f, 0xae, 0xe0],
            Self::Ptwrite => vec![0xf3, 0x0f, 0xae, 0xe0],
        }
    }
}

impl CodeSource for Program {
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let Some(at) = addr.0.checked_sub(self.base.0) else { return 0 };
        let rest = self.bytes.get(usize::try_from(at).expect("64-bit")..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    }
}
