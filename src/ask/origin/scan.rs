//! Searches a path backwards for the instruction that wrote a register last. The path has no
//! values, so a conditional write is found too, even if it wrote nothing: the caller checks it in a
//! replay.

use crate::ask::clock::TimedPlaces;
use crate::common::{Addr, Tid};
use crate::flow::{EventKind, Exit, Span};
use crate::insn::{
    Class, ExecMode, Insn, RegisterPart, Registers, Source, ValuePlace, decode, is_syscall,
    source_of,
};
use crate::timeline::{BlockCode, Timeline, Visit};
use crate::translate::AddressMap;
use std::ops::ControlFlow;

const INSN_BYTES: usize = 15;
/// Instructions that set RAX to the number of `rt_sigreturn`, as the C library and Go have them.
const SETS_SIGRETURN: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0], &[0xb8, 0x0f, 0, 0, 0]];

/// The last write of a register on a thread's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// The thread's instruction with this number wrote the register, or may have done so.
    At(u64),
    /// The kernel wrote the register before the instruction with this number, with which a signal's
    /// handler begins.
    Handler(u64),
    /// Nothing wrote the register, as far back as the path goes.
    None,
}

/// The path of one thread.
pub(super) struct Path<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) places: &'a TimedPlaces,
    pub(super) tid: Tid,
}

/// An item of a segment of the path.
enum SegmentItem {
    /// Instructions in a straight line: the number of the first one, and the index of their block
    /// in [`Search::blocks`].
    Block(u64, usize),
    /// A signal's handler begins with the instruction of this number.
    Handler(u64),
}

/// Instructions in a straight line.
struct Block {
    first: Addr,
    insns: u32,
    exit: Exit,
    /// The effects of the instructions, in reverse order.
    back: Vec<Effect>,
    /// True if none of the instructions writes the register, calls, returns or makes a system call.
    is_plain: bool,
    /// The address of the instruction that follows unless a signal's handler begins; `None` if it
    /// is not known.
    next: Option<Addr>,
}

/// The effect of an instruction, as far as the search needs it.
#[derive(Clone, Copy, Debug)]
struct Effect {
    /// True if the instruction may write the register.
    writes: bool,
    insn: Option<Insn>,
    is_call_of_kernel: bool,
    sets_sigreturn: bool,
}

impl Effect {
    fn is_plain(&self) -> bool {
        let class = self.insn.map(|insn| insn.class);
        let moves = matches!(class, Some(Class::Ret | Class::Call { .. } | Class::CallIndirect));
        !self.writes && !self.is_call_of_kernel && !moves
    }
}

impl Path<'_> {
    /// Finds the last instruction before number `before` that may have written a part of a
    /// register. With `skips_calls`, functions that were called and have returned are passed over
    /// for registers that functions preserve. Returns `None` if the user interrupted the search.
    pub(super) fn definition(
        &self,
        part: RegisterPart,
        before: u64,
        skips_calls: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Definition> {
        let mut search = Search::new(part, skips_calls && part.of.is_preserved());
        let mut until = before;
        while until > 0 {
            if interrupted() {
                return None;
            }
            let (first, passed) = self.segment(until, &mut search);
            if let Some(found) = search.back_through(&passed, until) {
                return Some(found);
            }
            if first >= until {
                break;
            }
            until = first;
        }
        Some(Definition::None)
    }

    /// Returns the items of the segment that contains the instruction before `until`, up to
    /// `until`, and first the number of the segment's first instruction. The last block may reach
    /// beyond `until`.
    fn segment(&self, until: u64, search: &mut Search) -> (u64, Vec<SegmentItem>) {
        // The code may differ between segments.
        search.blocks.clear();
        search.known.clear();
        let (mut first, mut all) = (until, Vec::new());
        let (mut next, mut is_interrupted) = (None, false);
        let _: ControlFlow<()> = self.timeline.visit(self.tid, until - 1, &mut |visit| {
            let Visit::Block { index, span, code, .. } = &visit else {
                if let Visit::Event { event, .. } = &visit {
                    use EventKind as E;
                    if let E::Tsc(_) = event.kind {
                        // Mappings, and so the code, may change where the trace has a time.
                        search.known.clear();
                    }
                    is_interrupted |=
                        matches!(event.kind, E::AsyncBranch { .. } | E::AsyncDisabled { .. });
                }
                return ControlFlow::Continue(());
            };
            if *index > until {
                return ControlFlow::Break(());
            }
            // A handler begins if the path does not continue where its instructions lead.
            let is_elsewhere = match next.take() {
                Some(next) => next != span.ip,
                None => is_interrupted,
            };
            if is_elsewhere {
                all.push(SegmentItem::Handler(*index));
            }
            is_interrupted = false;
            if *index == until {
                return ControlFlow::Break(());
            }
            first = first.min(*index);
            let block = search.learn(span, code);
            next = search.blocks[block].next;
            all.push(SegmentItem::Block(*index, block));
            ControlFlow::Continue(())
        });
        (first, all)
    }
}

/// A search for the instruction that wrote a register.
struct Search {
    part: RegisterPart,
    skips_calls: bool,
    blocks: Vec<Block>,
    /// The indices of blocks, by first address, number of instructions and kind of exit.
    known: AddressMap<(Addr, u32, Exit), usize>,
    /// The number of functions that the search has entered at their return and not left at their
    /// call.
    depth: usize,
    /// The number of signal handlers that it has entered at their `rt_sigreturn` and not left at
    /// their beginning.
    handlers: usize,
    /// Set if the instruction passed last is a SYSCALL: its number, and true if it may write the
    /// register. The call is `rt_sigreturn` if the instruction before it sets RAX to its number.
    after_call: Option<(u64, bool)>,
}

impl Search {
    fn new(part: RegisterPart, skips_calls: bool) -> Self {
        Self {
            part,
            skips_calls,
            blocks: Vec::new(),
            known: AddressMap::default(),
            depth: 0,
            handlers: 0,
            after_call: None,
        }
    }

    /// Returns the index of a block. Adds the block if it is new.
    fn learn(&mut self, span: &Span, code: &BlockCode<'_>) -> usize {
        let key = (span.ip, span.insns, span.exit);
        if let Some(known) = self.known.get(&key)
            && let Some(block) = self.blocks.get(*known)
            && (block.first, block.insns, block.exit) == key
        {
            return *known;
        }
        let back: Vec<Effect> =
            code.addrs().iter().rev().map(|addr| effect(self.part, *addr, code)).collect();
        let next = next_of(span.exit, &back);
        let is_plain = back.iter().all(Effect::is_plain);
        let (first, insns, exit) = key;
        self.blocks.push(Block { first, insns, exit, back, is_plain, next });
        let index = self.blocks.len() - 1;
        self.known.insert(key, index);
        index
    }

    /// Searches the items of a segment before instruction `until` from last to first. The state of
    /// the search remains for the segment before.
    fn back_through(&mut self, passed: &[SegmentItem], until: u64) -> Option<Definition> {
        passed.iter().rev().find_map(|passed| match passed {
            SegmentItem::Block(_, block)
                if self.after_call.is_none() && self.blocks.get(*block)?.is_plain =>
            {
                None
            }
            SegmentItem::Block(first, block) => {
                let effects = std::mem::take(&mut self.blocks.get_mut(*block)?.back);
                let last = first + effects.len() as u64;
                let numbered = (0..).zip(&effects).map(|(back, effect)| (last - 1 - back, effect));
                let mut before = numbered.filter(|(index, _)| *index < until);
                let found = before.find_map(|(index, effect)| self.back_over(index, *effect));
                self.blocks.get_mut(*block)?.back = effects;
                found
            }
            SegmentItem::Handler(index) => self.back_out_of_handler(*index),
        })
    }

    /// Passes an instruction, and returns the definition if it, or the system call after it, is
    /// one.
    fn back_over(&mut self, index: u64, effect: Effect) -> Option<Definition> {
        if let Some((call, writes)) = self.after_call.take() {
            if effect.sets_sigreturn {
                self.handlers += 1;
            } else if writes && self.handlers == 0 {
                return Some(Definition::At(call));
            }
        }
        if effect.is_call_of_kernel {
            self.after_call = Some((index, effect.writes));
            return None;
        }
        if self.handlers > 0 {
            return None;
        }
        match effect.insn.map(|insn| insn.class) {
            Some(Class::Ret) => self.depth += 1,
            Some(Class::Call { .. } | Class::CallIndirect) => {
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
        let is_passed = self.skips_calls && self.depth > 0;
        (effect.writes && !is_passed).then_some(Definition::At(index))
    }

    /// Passes the beginning of a signal's handler. Returns it if the kernel set the register there
    /// for the thread's current code.
    fn back_out_of_handler(&mut self, index: u64) -> Option<Definition> {
        if self.handlers > 0 {
            self.handlers -= 1;
            return None;
        }
        self.part.of.is_set_for_handler().then_some(Definition::Handler(index))
    }
}

/// Returns the address at which the program continues after a block, unless a signal's handler
/// begins; `None` if it is not known. `back`: the effects of the block's instructions in reverse
/// order.
fn next_of(exit: Exit, back: &[Effect]) -> Option<Addr> {
    let last = back.first()?.insn?;
    match (exit, last.class) {
        // The call may be `rt_sigreturn`, after which the interrupted code continues.
        (Exit::FarCall, _) if back.get(1).is_none_or(|before| before.sets_sigreturn) => None,
        (Exit::Next | Exit::NotTaken | Exit::FarCall, _) => Some(last.next()),
        (_, Class::Jcc { target } | Class::Jmp { target } | Class::Call { target }) => Some(target),
        _ => None,
    }
}

/// Decodes the instruction at `addr`, and finds out if it may write a part of a register, whatever
/// the flags are.
fn effect(part: RegisterPart, addr: Addr, code: &BlockCode<'_>) -> Effect {
    let mut bytes = [0; INSN_BYTES];
    let known = code.read(addr, &mut bytes);
    let bytes = &bytes[..known];
    // The flags are not known here: an instruction that writes under some condition may write.
    let at = Registers { rip: addr.0, ..Registers::default() };
    let all = Registers { eflags: u64::MAX, ..at };
    let wanted = ValuePlace::Register(part);
    let is_kept =
        |registers: &Registers| source_of(bytes, registers, registers, wanted) == Source::Kept;
    Effect {
        writes: !is_kept(&at) || !is_kept(&all),
        insn: decode(bytes, addr, ExecMode::Bits64),
        is_call_of_kernel: is_syscall(bytes),
        sets_sigreturn: SETS_SIGRETURN.iter().any(|set| bytes.starts_with(set)),
    }
}
