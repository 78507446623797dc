//! A decoded segment: its instructions by number, and the events and gaps between them, its marks.
//! The addresses of a [`Block`] are stored once, however often it executed: each execution is a
//! [`BlockExecution`]. Instructions are numbered from the segment's start.

use super::walk::Walker;
use crate::common::{Addr, Tsc};
use crate::flow::{EventKind, Exit, FlowItem, Gap, Span};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// One execution of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockExecution {
    /// The number of the first instruction, counted from the segment's start.
    pub(super) first: u64,
    /// The index of the block in [`Segment::blocks`].
    pub(super) block: u32,
}

/// A range of straight-line code that executed once or repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The address of the first instruction.
    pub(super) ip: Addr,
    /// The address of the last instruction.
    pub(super) last: Addr,
    /// The address after the last instruction if that is a call or far transfer; unused otherwise.
    pub(super) end: Addr,
    pub(super) insns: u32,
    pub(super) exit: Exit,
    /// True if the last instruction is the system call that ends a signal handler.
    pub(super) sigreturn: bool,
    /// True if one of the instructions loads the stack pointer.
    pub(super) loads_sp: bool,
    /// The index in [`Segment::offsets`] of the block's first entry; each instruction has one
    /// entry, its offset from `ip`.
    offsets: u32,
}

/// An event or gap before instruction `at`, counted from the segment's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: u64,
    /// The index in [`Segment::executions`] of the next run.
    pub(super) next_execution: u32,
    pub(super) content: MarkContent,
}

/// The content of a [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkContent {
    Event(EventKind),
    Gap(Gap),
}

/// The address of the instruction that follows a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAddr {
    /// This address.
    Known(Addr),
    /// The segment does not show the address.
    Unknown,
    /// The same as at the segment's start, since nothing executed.
    SameAsStart,
}

/// A decoded segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) insns: u64,
    pub(super) executions: Vec<BlockExecution>,
    pub(super) blocks: Vec<Block>,
    pub(super) marks: Vec<Mark>,
    /// The offset of each instruction of each block from the block's `ip`.
    offsets: Vec<u16>,
}

impl Segment {
    /// Decodes the segment that `walker` walks.
    pub(super) fn decode(walker: &mut Walker<'_>) -> Self {
        let mut segment = Self::default();
        let mut lookup = BlockLookup::default();
        loop {
            let epoch = walker.epoch();
            let item = walker.blocks_until_mark(&mut |spans| {
                for span in spans {
                    segment.push(span, epoch, &mut lookup);
                }
            });
            for (number, span) in lookup.fresh.drain(..) {
                segment.complete(number, &span, walker);
            }
            let Some(item) = item else { return segment };
            walker.process_mark(&item);
            match item {
                FlowItem::Block(_) => {}
                FlowItem::Event(event) => segment.mark(MarkContent::Event(event.kind)),
                FlowItem::Gap(gap) => segment.mark(MarkContent::Gap(gap)),
            }
        }
    }

    /// Returns a segment that consists of one gap and has no instructions, for a lost piece.
    pub(super) fn of_gap(gap: Gap) -> Self {
        let mut segment = Self::default();
        segment.mark(MarkContent::Gap(gap));
        segment
    }

    /// Appends one execution of a span. If its block is new, adds it, also to
    /// [`BlockLookup::fresh`].
    fn push(&mut self, span: &Span, epoch: usize, lookup: &mut BlockLookup) {
        let block = lookup.guess(&self.blocks, span, epoch).unwrap_or_else(|| {
            let key = (span.ip.0, span.insns, span.exit, epoch);
            let BlockLookup { known, fresh, .. } = lookup;
            let block = *known.entry(key).or_insert_with(|| {
                let number = self.add_block(span);
                fresh.push((number, *span));
                number
            });
            lookup.learn(block, epoch);
            block
        });
        lookup.last = block;
        self.executions.push(BlockExecution { first: self.insns, block });
        self.insns += u64::from(span.insns);
    }

    /// Adds a block and returns its index. [`Self::complete`] adds the properties that depend on
    /// its code.
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

    /// Completes block `number` from its code: appends the offsets of its instructions, and sets
    /// the end of a call, and whether it loads the stack pointer or is a sigreturn. Must be called
    /// once for a block.
    fn complete(&mut self, number: u32, span: &Span, walker: &mut Walker<'_>) {
        let Some(block) = self.blocks.get_mut(number as usize) else { return };
        block.offsets = narrow(self.offsets.len());
        // A block has at most 1024 instructions of 15 bytes.
        let offset = |addr: Addr| u16::try_from(addr.0.wrapping_sub(span.ip.0)).unwrap_or(u16::MAX);
        self.offsets.extend(walker.addrs(span).map(offset));
        if matches!(span.exit, Exit::Call | Exit::FarCall) {
            block.end = walker.last(span).map_or(span.last, |last| last.end);
        }
        block.loads_sp = walker.loads_sp(span);
        block.sigreturn = span.exit == Exit::FarCall
            && is_sigreturn(&|addr, buf| walker.read(addr, buf), span.last);
    }

    /// Appends an event or gap.
    fn mark(&mut self, content: MarkContent) {
        self.marks.push(Mark {
            at: self.insns,
            next_execution: narrow(self.executions.len()),
            content,
        });
    }

    /// Returns the block of a run.
    pub(super) fn block(&self, run: &BlockExecution) -> Option<&Block> {
        self.blocks.get(run.block as usize)
    }

    /// Returns the address of instruction `number`; `None` after the last one.
    pub(super) fn addr(&self, number: u64) -> Option<Addr> {
        let run = self.executions.get(self.execution_of(number)?)?;
        let inside = usize::try_from(number - run.first).ok()?;
        let block = self.block(run)?;
        self.block_addrs(block).nth(inside)
    }

    /// Returns the index of the block execution that contains instruction `number`; `None` after the
    /// last one.
    pub(super) fn execution_of(&self, number: u64) -> Option<usize> {
        if number >= self.insns {
            return None;
        }
        self.executions.partition_point(|run| run.first <= number).checked_sub(1)
    }

    /// Returns true if instruction `number` and the next one belong to the same activation of a
    /// function: no call, no return, no event in between. Returns false if the segment does not
    /// show that.
    pub(super) fn stays_in_activation(&self, number: u64) -> bool {
        let Some(at) = self.execution_of(number) else { return false };
        let Some((run, block)) =
            self.executions.get(at).and_then(|run| Some((run, self.block(run)?)))
        else {
            return false;
        };
        if number + 1 < run.first + u64::from(block.insns) {
            return true;
        }
        let next = self.marks.partition_point(|mark| mark.next_execution as usize <= at);
        let is_marked =
            self.marks.get(next).is_some_and(|mark| mark.next_execution as usize == at + 1);
        let branches = matches!(block.exit, Exit::Next | Exit::Taken | Exit::NotTaken | Exit::Jmp);
        branches && !is_marked && at + 1 < self.executions.len()
    }

    /// Returns the addresses of a block's instructions.
    pub(super) fn block_addrs(&self, block: &Block) -> impl ExactSizeIterator<Item = Addr> {
        let start = block.offsets as usize;
        let offsets = self.offsets.get(start..start + block.insns as usize).unwrap_or_default();
        let ip = block.ip;
        offsets.iter().map(move |offset| ip.wrapping_add((*offset).into()))
    }

    /// Returns the times in the segment, each with the number of the next instruction, counted from
    /// the segment's start.
    pub(super) fn times(&self) -> impl Iterator<Item = (u64, Tsc)> {
        self.marks.iter().filter_map(|mark| match mark.content {
            MarkContent::Event(EventKind::Tsc(tsc)) => Some((mark.at, tsc)),
            _ => None,
        })
    }

    /// Returns the address of the instruction that follows the segment, as far as the segment shows
    /// it.
    pub(super) fn next_addr(&self) -> NextAddr {
        let following = self
            .marks
            .iter()
            .rev()
            .take_while(|mark| mark.next_execution as usize == self.executions.len());
        let last = self.executions.last().and_then(|run| self.block(run));
        let of_event = |kind: EventKind| match kind {
            EventKind::Enabled { ip } | EventKind::AsyncBranch { to: ip, .. } => {
                Some(NextAddr::Known(ip))
            }
            EventKind::AsyncDisabled { at, .. } => Some(NextAddr::Known(at)),
            // After a system call, the thread is at the instruction after it.
            EventKind::Disabled { ip, .. } => {
                let call = last.filter(|block| block.exit == Exit::FarCall);
                Some(ip.or(call.map(|block| block.end)).map_or(NextAddr::Unknown, NextAddr::Known))
            }
            EventKind::Overflow { ip } => Some(ip.map_or(NextAddr::Unknown, NextAddr::Known)),
            _ => None,
        };
        let mut reported = following.filter_map(|mark| match mark.content {
            MarkContent::Gap(_) => Some(NextAddr::Unknown),
            MarkContent::Event(event) => of_event(event),
        });
        reported.next().unwrap_or(if last.is_some() {
            NextAddr::Unknown
        } else {
            NextAddr::SameAsStart
        })
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(self.executions.as_slice())
            + size_of_val(self.blocks.as_slice())
            + size_of_val(self.marks.as_slice())
            + size_of_val(self.offsets.as_slice())
    }
}

/// Converts a count to 32 bits. It fits, since a segment has some megabytes at most.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns true if the code up to the SYSCALL at `syscall` is `mov $15,%rax; syscall` or `mov
/// $15,%eax; syscall`. gdb recognizes signal trampolines without unwind information by the same
/// code.
pub(super) fn is_sigreturn(read: &dyn Fn(Addr, &mut [u8]) -> usize, syscall: Addr) -> bool {
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
    let is_here = |code: &[u8]| {
        let mut bytes = [0; LONG.len()];
        let bytes = &mut bytes[..code.len()];
        let start = syscall.wrapping_sub(code.len() as u64 - 2);
        read(start, bytes) == code.len() && bytes == code
    };
    is_here(&LONG) || is_here(&SHORT)
}

/// The lookup from spans to blocks during decoding. It tries the last block's previous successor
/// first, which is mostly right.
#[derive(Default)]
struct BlockLookup {
    known: BlockIndexes,
    /// Blocks that still lack the properties of their code.
    fresh: Vec<(u32, Span)>,
    /// The index of the block that was executed last.
    last: u32,
    /// For each block, the index of its last successor and the epoch at that time.
    followers: Vec<(u32, usize)>,
}

impl BlockLookup {
    /// Returns the previous successor of the last block if it is the block of this span.
    fn guess(&self, blocks: &[Block], span: &Span, epoch: usize) -> Option<u32> {
        let (follower, in_epoch) = *self.followers.get(self.last as usize)?;
        let block = blocks.get(follower as usize)?;
        let same = block.ip == span.ip && block.insns == span.insns && block.exit == span.exit;
        (same && in_epoch == epoch).then_some(follower)
    }

    /// Notes that `block` followed the last block.
    fn learn(&mut self, block: u32, epoch: usize) {
        let wanted = self.last.max(block) as usize + 1;
        if self.followers.len() < wanted {
            self.followers.resize(wanted, (u32::MAX, 0));
        }
        self.followers[self.last as usize] = (block, epoch);
    }
}

type BlockIndexes = HashMap<(u64, u32, Exit, usize), u32, BuildHasherDefault<FastHasher>>;

/// A hash that need not resist deliberate collisions: the keys come from a trace that the user
/// chose to load.
#[derive(Default)]
struct FastHasher(u64);

impl Hasher for FastHasher {
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
