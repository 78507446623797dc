//! Measures the time of each item, and its pace, if there are CYC packets: how many instructions
//! were executed in how many core clocks. Reads the decoder's clock and does not change it.

use super::code::Last;
use super::decoder::Decoder;
use super::item::{EventKind, Exit, FlowItem};
use crate::pt::TimeEstimate;

/// A number of executed instructions, and of the core clocks that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The number of instructions.
    pub insns: u64,
    /// The number of core clocks.
    pub cycles: u64,
}

/// The time and pace of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The time of the item's packet; `None` if the trace does not determine it.
    pub time: Option<TimeEstimate>,
    /// The pace from the last point with known core clocks to the end of this item; `None` unless a
    /// CYC gives the core clocks at both.
    pub pace: Option<Pace>,
}

/// A meter for the items of one segment. It must see all of them, in order. A CYC gives the core
/// clocks at the first branch of the next packet (SDM section "Cycle Count Packet").
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// The number of instructions executed so far.
    insns: u64,
    /// The instructions and core clocks at the last point where both were known; `None` if tracing
    /// was off after it.
    since: Option<Pace>,
    /// The core clocks of the last point that was set. They hold at the first branch of a packet
    /// only, so they set no second point.
    last_cycles: Option<u64>,
}

impl Meter {
    /// Returns the time and pace of the item that `decoder` just yielded, and counts its
    /// instructions. `last` is the last instruction of the item if that is a block, as
    /// [`Code::last`](super::Code::last) returns it; `None` counts a call as direct.
    pub fn timing_of(
        &mut self,
        decoder: &Decoder<'_>,
        item: &FlowItem,
        last: Option<Last>,
    ) -> Timing {
        let cycles = decoder.cycles().filter(|cycles| self.last_cycles != Some(*cycles));
        let pace = self.pace(item, last, cycles);
        Timing { time: decoder.time(), pace }
    }

    /// Counts an item's instructions. Returns the pace to its end; `None` if the core clocks there
    /// are not known, as after a block whose branch takes no packet, and at the first known point
    /// of a segment or after a gap, an overflow, or a time with tracing off. `cycles` are those
    /// last reported, unless they set a point before.
    fn pace(&mut self, item: &FlowItem, last: Option<Last>, cycles: Option<u64>) -> Option<Pace> {
        let leaves_code = match item {
            FlowItem::Block(span) => {
                self.insns = self.insns.saturating_add(span.insns.into());
                // The packet may belong to a later branch.
                let cycles = cycles.filter(|_| takes_a_packet(span.exit, last));
                return self.set_point(cycles?);
            }
            FlowItem::Gap(_) => {
                self.since = None;
                return None;
            }
            FlowItem::Event(event) => match event.kind {
                EventKind::Enabled { .. } | EventKind::AsyncBranch { .. } => false,
                EventKind::Disabled { .. }
                | EventKind::AsyncDisabled { .. }
                | EventKind::Overflow { .. } => true,
                _ => return None,
            },
        };
        let pace = cycles.and_then(|cycles| self.set_point(cycles));
        if leaves_code {
            // Clocks that pass from here on are not those of this code.
            self.since = None;
        }
        pace
    }

    /// Makes the end of the last item a point with known core clocks. Returns the pace since the
    /// last such point; `None` if there is none.
    fn set_point(&mut self, cycles: u64) -> Option<Pace> {
        self.last_cycles = Some(cycles);
        let since = self.since.replace(Pace { insns: self.insns, cycles })?;
        Some(Pace {
            insns: self.insns.saturating_sub(since.insns),
            cycles: cycles.saturating_sub(since.cycles),
        })
    }
}

/// Returns true if a TNT bit or TIP gives the outcome of the branch at the end of a block. `last`
/// distinguishes an indirect call from a direct one.
fn takes_a_packet(exit: Exit, last: Option<Last>) -> bool {
    match exit {
        Exit::Next | Exit::Jmp | Exit::Unknown => false,
        Exit::Call => last.is_some_and(|last| last.is_indirect_call),
        _ => true,
    }
}
