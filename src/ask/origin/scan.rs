//! Searches a path backwards for the instruction that wrote a register last. The path has no
//! values, so a conditional write is found too, even if it wrote nothing: the caller checks it in a
//! replay.
//!
//! Code that other code interrupted is passed over. Backwards, a signal's handler begins with its
//! `rt_sigreturn` and ends at its first instruction, and a function begins with its RET and ends at
//! the CALL: [`Search`] counts those that it is in. The instruction before a system call shows if
//! that is `rt_sigreturn`, and the search meets it next: until then, the call is *pending*. The
//! path is decoded from front to back only, so the search takes one *segment* after the other: the
//! part from one PSB to the next.

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

/// The last write of a register on a thread's path, before some instruction.
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

/// The path of one thread of an exact recording.
pub(super) struct ExactPath<'a> {
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
    effects_reversed: Vec<Effect>,
    /// True if none of the instructions writes the register, calls, returns or makes a system call:
    /// then the search skips the block.
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
    /// The decoded instruction; `None` if its code is unknown or invalid.
    insn: Option<Insn>,
    is_syscall: bool,
    /// True if the instruction sets RAX to the number of `rt_sigreturn`.
    sets_sigreturn: bool,
}

impl Effect {
    /// Returns true if the instruction does not matter to the search.
    fn is_plain(&self) -> bool {
        let class = self.insn.map(|insn| insn.class);
        let moves = matches!(class, Some(Class::Ret | Class::Call { .. } | Class::CallIndirect));
        !self.writes && !self.is_syscall && !moves
    }
}

impl ExactPath<'_> {
    /// Finds the last instruction before number `before` that may have written a part of a
    /// register, or the beginning of a signal's handler that did. With `skips_calls`, functions
    /// that were called and have returned are passed over, but only for registers that functions
    /// preserve by the ABI. Returns `None` if the user interrupted the search.
    pub(super) fn last_definition(
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
            let (first, items) = self.segment(until, &mut search);
            if let Some(found) = search.search_back(&items, until) {
                return Some(found);
            }
            if first >= until {
                break;
            }
            until = first;
        }
        Some(search.finish())
    }

    /// Decodes the segment that contains the instruction before `until`. Returns the number of the
    /// segment's first instruction, and its items up to `until`; the last block may reach beyond
    /// `until`. Replaces the blocks of `search`.
    fn segment(&self, until: u64, search: &mut Search) -> (u64, Vec<SegmentItem>) {
        // The code may differ between segments.
        search.blocks.clear();
        search.indices.clear();
        let (mut first, mut all) = (until, Vec::new());
        let (mut next, mut is_interrupted) = (None, false);
        let _: ControlFlow<()> = self.timeline.visit(self.tid, until - 1, &mut |visit| {
            let Visit::Block { index, span, code, .. } = &visit else {
                if let Visit::Event { event, .. } = &visit {
                    use EventKind as E;
                    if let E::Tsc(_) = event.kind {
                        // Mappings, and so the code, may change where the trace has a time.
                        search.indices.clear();
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
            let block = search.block_index(span, code);
            next = search.blocks[block].next;
            all.push(SegmentItem::Block(*index, block));
            ControlFlow::Continue(())
        });
        (first, all)
    }
}

/// A search for the instruction that wrote a register.
struct Search {
    /// The part of a register that is searched.
    part: RegisterPart,
    /// True if functions that have returned are passed over.
    skips_calls: bool,
    /// The blocks of the current segment.
    blocks: Vec<Block>,
    /// The indices of blocks, by first address, number of instructions and kind of exit.
    indices: AddressMap<(Addr, u32, Exit), usize>,
    /// The number of functions that the search has entered at their return and not left at their
    /// call.
    open_calls: usize,
    /// The number of signal handlers that it has entered at their `rt_sigreturn` and not left at
    /// their beginning.
    open_handlers: usize,
    /// Set if the instruction passed last is a SYSCALL: its number, and true if it may write the
    /// register. The instruction before it decides: if that sets RAX to the number of
    /// `rt_sigreturn`, the search enters a handler.
    pending_syscall: Option<(u64, bool)>,
}

impl Search {
    fn new(part: RegisterPart, skips_calls: bool) -> Self {
        Self {
            part,
            skips_calls,
            blocks: Vec::new(),
            indices: AddressMap::default(),
            open_calls: 0,
            open_handlers: 0,
            pending_syscall: None,
        }
    }

    /// Returns the index of a block. Adds the block if it is new.
    fn block_index(&mut self, span: &Span, code: &BlockCode<'_>) -> usize {
        let key = (span.ip, span.insns, span.exit);
        if let Some(index) = self.indices.get(&key)
            && let Some(block) = self.blocks.get(*index)
            && (block.first, block.insns, block.exit) == key
        {
            return *index;
        }
        let effects_reversed: Vec<Effect> =
            code.addrs().iter().rev().map(|addr| effect_of(self.part, *addr, code)).collect();
        let next = following_address(span.exit, &effects_reversed);
        let is_plain = effects_reversed.iter().all(Effect::is_plain);
        let (first, insns, exit) = key;
        self.blocks.push(Block { first, insns, exit, effects_reversed, is_plain, next });
        let index = self.blocks.len() - 1;
        self.indices.insert(key, index);
        index
    }

    /// Searches the items of a segment before instruction `until` from last to first. Returns the
    /// definition; `None` if it is not in this segment: then the search goes on in the segment
    /// before, with the state that this leaves.
    fn search_back(&mut self, items: &[SegmentItem], until: u64) -> Option<Definition> {
        items.iter().rev().find_map(|item| match item {
            SegmentItem::Block(_, block)
                if self.pending_syscall.is_none() && self.blocks.get(*block)?.is_plain =>
            {
                None
            }
            SegmentItem::Block(first, block) => {
                let effects = std::mem::take(&mut self.blocks.get_mut(*block)?.effects_reversed);
                let last = first + effects.len() as u64;
                let numbered = (0..).zip(&effects).map(|(back, effect)| (last - 1 - back, effect));
                let mut before = numbered.filter(|(index, _)| *index < until);
                let found = before.find_map(|(index, effect)| self.step_back(index, *effect));
                self.blocks.get_mut(*block)?.effects_reversed = effects;
                found
            }
            SegmentItem::Handler(index) => self.step_back_over_handler(*index),
        })
    }

    /// Passes instruction `index`; to be called for each one, backwards. Returns it if it may write
    /// the register, unless it is in a handler or, with `skips_calls`, in a function that has
    /// returned. A system call is returned only by the call for the instruction before it, which
    /// shows whether it was `rt_sigreturn`: so never if it is the first instruction of the path.
    fn step_back(&mut self, index: u64, effect: Effect) -> Option<Definition> {
        if let Some((call, writes)) = self.pending_syscall.take() {
            if effect.sets_sigreturn {
                self.open_handlers += 1;
            } else if writes && self.open_handlers == 0 {
                return Some(Definition::At(call));
            }
        }
        if effect.is_syscall {
            self.pending_syscall = Some((index, effect.writes));
            return None;
        }
        if self.open_handlers > 0 {
            return None;
        }
        match effect.insn.map(|insn| insn.class) {
            Some(Class::Ret) => self.open_calls += 1,
            Some(Class::Call { .. } | Class::CallIndirect) => {
                self.open_calls = self.open_calls.saturating_sub(1);
            }
            _ => {}
        }
        let is_passed = self.skips_calls && self.open_calls > 0;
        (effect.writes && !is_passed).then_some(Definition::At(index))
    }

    /// Ends the search at the beginning of the path. Returns the system call that is the first
    /// instruction if it is the definition.
    fn finish(&mut self) -> Definition {
        match self.pending_syscall.take() {
            Some((call, true)) if self.open_handlers == 0 => Definition::At(call),
            _ => Definition::None,
        }
    }

    /// Passes the beginning of a signal's handler, at instruction `index`. If the search entered
    /// this handler at its end, leaves it. Else the searched code is in the handler: returns its
    /// first instruction if that is a pending system call that may write the register, or else its
    /// beginning if the kernel sets the register for handlers.
    fn step_back_over_handler(&mut self, index: u64) -> Option<Definition> {
        // The handler begins with the system call.
        if let Some((call, true)) = self.pending_syscall.take()
            && self.open_handlers == 0
        {
            return Some(Definition::At(call));
        }
        if self.open_handlers > 0 {
            self.open_handlers -= 1;
            return None;
        }
        self.part.of.is_set_for_handler().then_some(Definition::Handler(index))
    }
}

/// Returns the address at which the program continues after a block, unless a signal's handler
/// begins; `None` if it is not known, as after a system call that is `rt_sigreturn`, or may be as
/// the block has no instruction before it. `effects_reversed`: the effects of the block's
/// instructions in reverse order.
fn following_address(exit: Exit, effects_reversed: &[Effect]) -> Option<Addr> {
    let last = effects_reversed.first()?.insn?;
    match (exit, last.class) {
        // The call may be `rt_sigreturn`, after which the interrupted code continues.
        (Exit::FarCall, _)
            if effects_reversed.get(1).is_none_or(|before| before.sets_sigreturn) =>
        {
            None
        }
        (Exit::Next | Exit::NotTaken | Exit::FarCall, _) => Some(last.next()),
        (_, Class::Jcc { target } | Class::Jmp { target } | Class::Call { target }) => Some(target),
        _ => None,
    }
}

/// Decodes the instruction at `addr`, and returns its effect. An instruction that writes the part
/// of the register under some condition counts as writing it.
fn effect_of(part: RegisterPart, addr: Addr, code: &BlockCode<'_>) -> Effect {
    let mut bytes = [0; INSN_BYTES];
    let count = code.read(addr, &mut bytes);
    let bytes = &bytes[..count];
    // The flags are not known here: an instruction that writes under some condition may write.
    let at = Registers { rip: addr.0, ..Registers::default() };
    let all = Registers { eflags: u64::MAX, ..at };
    let wanted = ValuePlace::Register(part);
    let is_kept =
        |registers: &Registers| source_of(bytes, registers, registers, wanted) == Source::Kept;
    Effect {
        writes: !is_kept(&at) || !is_kept(&all),
        insn: decode(bytes, addr, ExecMode::Bits64),
        is_syscall: is_syscall(bytes),
        sets_sigreturn: SETS_SIGRETURN.iter().any(|set| bytes.starts_with(set)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::FullRegister;

    #[test]
    fn a_system_call_is_found_as_the_first_instruction_of_a_handler() {
        let of = FullRegister::of_dwarf(0).expect("RAX");
        let mut search = Search::new(RegisterPart { of, offset: 0, size_bytes: 8 }, false);
        let call = Effect { writes: true, insn: None, is_syscall: true, sets_sigreturn: false };
        assert_eq!(search.step_back(7, call), None);
        assert_eq!(search.step_back_over_handler(7), Some(Definition::At(7)));
        // The search passes a handler from its end.
        search.open_handlers = 1;
        assert_eq!(search.step_back(3, call), None);
        assert_eq!(search.step_back_over_handler(3), None);
        assert_eq!((search.open_handlers, search.pending_syscall), (0, None));
    }
}
