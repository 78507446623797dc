//! A decoded segment: its instructions, ready to be looked up by number, and what happened
//! between them. Addresses of a block are stored once, however often it was executed.

use super::walk::Walker;
use crate::common::{Addr, Tsc};
use crate::flow::{EventKind, Exit, FlowItem, Gap, Span};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Instructions executed in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The number of the first, counted from the segment's start.
    pub(super) first: u64,
    /// Its block, in [`Segment::blocks`].
    pub(super) block: u32,
}

/// A stretch of code that was executed, once or often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) ip: Addr,
    pub(super) last: Addr,
    /// Behind the last instruction, where that is a call of any kind; nobody asks elsewhere.
    pub(super) end: Addr,
    pub(super) insns: u32,
    pub(super) exit: Exit,
    /// The last instruction is the system call that ends a signal handler.
    pub(super) sigreturn: bool,
    /// One of the instructions loads the stack pointer.
    pub(super) loads_sp: bool,
    /// Where the offsets of its instructions from `ip` start in [`Segment::offsets`].
    offsets: u32,
}

/// What stands between two instructions: before the one with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: u64,
    /// The number of the run before which it stands.
    pub(super) run: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Event(EventKind),
    Gap(Gap),
}

/// Where a thread stands at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Before this instruction.
    At(Addr),
    /// It is not told.
    Unknown,
    /// Where it stood at the segment's beginning: it did nothing.
    Before,
}

/// The instructions of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) insns: u64,
    pub(super) runs: Vec<Run>,
    pub(super) blocks: Vec<Block>,
    pub(super) marks: Vec<Mark>,
    offsets: Vec<u16>,
}

impl Segment {
    /// Decodes all that the walker gives.
    pub(super) fn decode(walker: &mut Walker<'_>) -> Self {
        let mut segment = Self::default();
        let mut builder = Builder::default();
        loop {
            let epoch = walker.epoch();
            let item = walker.list(&mut |spans| {
                for span in spans {
                    segment.push(span, epoch, &mut builder);
                }
            });
            for (number, span) in builder.fresh.drain(..) {
                segment.complete(number, &span, walker);
            }
            let Some(item) = item else { return segment };
            walker.note(&item);
            match item {
                FlowItem::Block(_) => {}
                FlowItem::Event(event) => segment.mark(What::Event(event.kind)),
                FlowItem::Gap(gap) => segment.mark(What::Gap(gap)),
            }
        }
    }

    /// A segment of which nothing is known.
    pub(super) fn hole(gap: Gap) -> Self {
        let mut segment = Self::default();
        segment.mark(What::Gap(gap));
        segment
    }

    fn push(&mut self, span: &Span, epoch: usize, builder: &mut Builder) {
        let block = builder.guess(&self.blocks, span, epoch).unwrap_or_else(|| {
            let key = (span.ip.0, span.insns, span.exit, epoch);
            let Builder { known, fresh, .. } = builder;
            let block = *known.entry(key).or_insert_with(|| {
                let number = self.add_block(span);
                fresh.push((number, *span));
                number
            });
            builder.learn(block, epoch);
            block
        });
        builder.last = block;
        self.runs.push(Run { first: self.insns, block });
        self.insns += u64::from(span.insns);
    }

    /// Adds a block, which is to be completed.
    fn add_block(&mut self, span: &Span) -> u32 {
        let number = narrow(self.blocks.len());
        self.blocks.push(Block {
            ip: span.ip,
            last: span.last,
            end: span.last,
            insns: span.insns,
            exit: span.exit,
            sigreturn: false,
            loads_sp: false,
            offsets: 0,
        });
        number
    }

    /// Adds to a block what the code tells that stands there.
    fn complete(&mut self, number: u32, span: &Span, walker: &mut Walker<'_>) {
        let Some(block) = self.blocks.get_mut(number as usize) else { return };
        block.offsets = narrow(self.offsets.len());
        // A block is at most 1024 instructions of 15 bytes.
        let offset = |addr: Addr| u16::try_from(addr.0.wrapping_sub(span.ip.0)).unwrap_or(u16::MAX);
        self.offsets.extend(walker.addrs(span).map(offset));
        if matches!(span.exit, Exit::Call | Exit::FarCall) {
            block.end = walker.last(span).map_or(span.last, |last| last.end);
        }
        block.loads_sp = walker.loads_sp(span);
        block.sigreturn = span.exit == Exit::FarCall
            && is_sigreturn(&|addr, buf| walker.read(addr, buf), span.last);
    }

    fn mark(&mut self, what: What) {
        self.marks.push(Mark { at: self.insns, run: narrow(self.runs.len()), what });
    }

    /// The block of a run.
    pub(super) fn block(&self, run: &Run) -> Option<&Block> {
        self.blocks.get(run.block as usize)
    }

    /// The address of instruction `number`, counted from the segment's start.
    pub(super) fn addr(&self, number: u64) -> Option<Addr> {
        let run = self.runs.get(self.run_of(number)?)?;
        let inside = usize::try_from(number - run.first).ok()?;
        let block = self.block(run)?;
        self.block_addrs(block).nth(inside)
    }

    /// The number of the run that holds instruction `number`.
    pub(super) fn run_of(&self, number: u64) -> Option<usize> {
        if number >= self.insns {
            return None;
        }
        self.runs.partition_point(|run| run.first <= number).checked_sub(1)
    }

    /// Whether instruction `number` leads to the next one within one activation of a function: it
    /// neither calls nor returns, and nothing happens behind it. False where that is not told here.
    pub(super) fn stays(&self, number: u64) -> bool {
        let Some(at) = self.run_of(number) else { return false };
        let Some((run, block)) = self.runs.get(at).and_then(|run| Some((run, self.block(run)?)))
        else {
            return false;
        };
        if number + 1 < run.first + u64::from(block.insns) {
            return true;
        }
        let next = self.marks.partition_point(|mark| mark.run as usize <= at);
        let is_marked = self.marks.get(next).is_some_and(|mark| mark.run as usize == at + 1);
        let branches = matches!(block.exit, Exit::Next | Exit::Taken | Exit::NotTaken | Exit::Jmp);
        branches && !is_marked && at + 1 < self.runs.len()
    }

    /// The addresses of a block's instructions.
    pub(super) fn block_addrs(&self, block: &Block) -> impl ExactSizeIterator<Item = Addr> {
        let start = block.offsets as usize;
        let offsets = self.offsets.get(start..start + block.insns as usize).unwrap_or_default();
        let ip = block.ip;
        offsets.iter().map(move |offset| ip.wrapping_add((*offset).into()))
    }

    /// The time at each place where the trace told a new one.
    pub(super) fn times(&self) -> impl Iterator<Item = (u64, Tsc)> {
        self.marks.iter().filter_map(|mark| match mark.what {
            What::Event(EventKind::Tsc(tsc)) => Some((mark.at, tsc)),
            _ => None,
        })
    }

    /// What it tells of the instruction that comes next at its end.
    pub(super) fn end(&self) -> End {
        let behind =
            self.marks.iter().rev().take_while(|mark| mark.run as usize == self.runs.len());
        let last = self.runs.last().and_then(|run| self.block(run));
        let of_event = |kind: EventKind| match kind {
            EventKind::Enabled { ip } | EventKind::AsyncBranch { to: ip, .. } => Some(End::At(ip)),
            EventKind::AsyncDisabled { at, .. } => Some(End::At(at)),
            // Behind the system call, if it is one.
            EventKind::Disabled { ip, .. } => {
                let call = last.filter(|block| block.exit == Exit::FarCall);
                Some(ip.or(call.map(|block| block.end)).map_or(End::Unknown, End::At))
            }
            EventKind::Overflow { ip } => Some(ip.map_or(End::Unknown, End::At)),
            _ => None,
        };
        let mut told = behind.filter_map(|mark| match mark.what {
            What::Gap(_) => Some(End::Unknown),
            What::Event(event) => of_event(event),
        });
        told.next().unwrap_or(if last.is_some() { End::Unknown } else { End::Before })
    }

    /// Bytes that it takes in memory.
    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(self.runs.as_slice())
            + size_of_val(self.blocks.as_slice())
            + size_of_val(self.marks.as_slice())
            + size_of_val(self.offsets.as_slice())
    }
}

/// Segments are at most some megabytes.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// `mov $15,%rax; syscall` or `mov $15,%eax; syscall`: how gdb, too, knows a signal trampoline
/// that has no unwind information.
pub(super) fn is_sigreturn(read: &dyn Fn(Addr, &mut [u8]) -> usize, syscall: Addr) -> bool {
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
    let stands = |code: &[u8]| {
        let mut bytes = [0; LONG.len()];
        let bytes = &mut bytes[..code.len()];
        let start = syscall.wrapping_sub(code.len() as u64 - 2);
        read(start, bytes) == code.len() && bytes == code
    };
    stands(&LONG) || stands(&SHORT)
}

/// Finds the block of a span: most often the one that followed the last time, too.
#[derive(Default)]
struct Builder {
    known: Known,
    /// Blocks that are to be completed.
    fresh: Vec<(u32, Span)>,
    /// The block before the next span.
    last: u32,
    /// For each block, which one followed it last, and in which epoch that one is.
    followers: Vec<(u32, usize)>,
}

impl Builder {
    fn guess(&self, blocks: &[Block], span: &Span, epoch: usize) -> Option<u32> {
        let (follower, in_epoch) = *self.followers.get(self.last as usize)?;
        let block = blocks.get(follower as usize)?;
        let same = block.ip == span.ip && block.insns == span.insns && block.exit == span.exit;
        (same && in_epoch == epoch).then_some(follower)
    }

    fn learn(&mut self, block: u32, epoch: usize) {
        let wanted = self.last.max(block) as usize + 1;
        if self.followers.len() < wanted {
            self.followers.resize(wanted, (u32::MAX, 0));
        }
        self.followers[self.last as usize] = (block, epoch);
    }
}

type Known = HashMap<(u64, u32, Exit, usize), u32, BuildHasherDefault<Mix>>;

/// A hash for keys that nobody can choose to collide on purpose and gain by it: they come from a
/// trace that its own user loads.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.cast_unsigned() as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
}
