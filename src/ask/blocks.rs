//! The facts of the blocks of a path. Most executions are those of a few blocks, so the facts of
//! each are looked up once.

use super::functions::Functions;
use crate::common::Addr;
use crate::flow::{Exit, Span};
use crate::timeline::BlockCode;
use crate::translate::{AddressMap, is_tick};

/// The maximum number of blocks that are known; beyond it, all are forgotten.
const MOST: usize = 1 << 20;
/// The maximum number of bytes of an instruction.
const INSN_BYTES: usize = 15;

/// The facts of a block, which are the same at each of its executions.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFacts {
    /// The number of the block. Blocks are numbered from 0 in the order in which a walk meets them.
    pub(super) number: u32,
    /// The start of the function with the first instruction; `None` if the code has no symbols.
    pub(super) function: Option<Addr>,
    /// The start of the function with the last instruction.
    pub(super) last_function: Option<Addr>,
    /// The address after the last instruction.
    pub(super) end: Addr,
    /// True if the last instruction is a tick ([`is_tick`]): a branch that exact recordings count.
    pub(super) ticks: bool,
}

/// The blocks that a walk has met.
pub(super) struct Blocks<'f> {
    functions: &'f Functions<'f>,
    numbers: AddressMap<Key, u32>,
    /// The blocks by their numbers.
    known: Vec<Known>,
    /// The number of the last block.
    last: u32,
    /// True if the walk met the last block for the first time, or had forgotten it.
    is_new: bool,
}

/// The identity of a block: the address of its first instruction, the number of its instructions,
/// the kind of its exit, and the generation of its code.
type Key = (Addr, u32, Exit, u32);

struct Known {
    key: Key,
    facts: BlockFacts,
    /// The number of the block that followed when this one was last executed.
    follower: u32,
}

impl<'f> Blocks<'f> {
    pub(super) fn new(functions: &'f Functions<'f>) -> Self {
        Self {
            functions,
            numbers: AddressMap::default(),
            known: Vec::new(),
            last: 0,
            is_new: false,
        }
    }

    /// Proceeds to the next block of the path, whose facts [`Self::last`] then returns.
    #[inline]
    pub(super) fn pass(&mut self, span: &Span, code: &BlockCode<'_>) {
        let key = (span.ip, span.insns, span.exit, code.generation());
        // Mostly the same block follows again.
        let follower = self.known.get(self.last as usize).map_or(0, |last| last.follower);
        self.is_new = false;
        if self.known.get(follower as usize).is_some_and(|known| known.key == key) {
            self.last = follower;
            return;
        }
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.add(key, span, code),
        };
        if let Some(last) = self.known.get_mut(self.last as usize) {
            last.follower = number;
        }
        self.last = number;
    }

    /// Returns the facts of the last block; `None` before the first one.
    #[inline]
    pub(super) fn last(&self) -> Option<&BlockFacts> {
        self.known.get(self.last as usize).map(|known| &known.facts)
    }

    /// Returns true if the walk met the last block for the first time, or had forgotten it. Then
    /// its number may have been that of a block that is forgotten.
    pub(super) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Adds a block and returns its number. If there are too many, forgets all others first: their
    /// numbers are reused.
    fn add(&mut self, key: Key, span: &Span, code: &BlockCode<'_>) -> u32 {
        if self.known.len() >= MOST {
            self.numbers.clear();
            self.known.clear();
        }
        let number = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        let start_of = |addr| self.functions.at(addr).map(|function| function.start);
        let facts = BlockFacts {
            number,
            function: start_of(span.ip),
            last_function: start_of(span.last),
            end: code.last().map_or(span.last, |last| last.end),
            ticks: ends_in_tick(span, code),
        };
        self.numbers.insert(key, number);
        self.known.push(Known { key, facts, follower: 0 });
        self.is_new = true;
        number
    }
}

/// Returns true if a block's last instruction is a tick, whether its branch was taken or not.
pub(super) fn ends_in_tick(span: &Span, code: &BlockCode<'_>) -> bool {
    match span.exit {
        Exit::Taken | Exit::NotTaken | Exit::JmpIndirect | Exit::Ret => true,
        Exit::Next | Exit::FarCall | Exit::FarReturn | Exit::FarJmp => false,
        Exit::Jmp | Exit::Call | Exit::Unknown => {
            let mut bytes = [0; INSN_BYTES];
            let count = code.read(span.last, &mut bytes);
            bytes.get(..count).is_some_and(|bytes| is_tick(bytes, span.last.0))
        }
    }
}
