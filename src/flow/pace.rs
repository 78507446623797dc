//! When things were executed, and how fast: the time of each item, and instructions per core
//! clock where CYC packets are. Knows no more than the decoder's clock does, and makes nothing up.

use super::code::Last;
use super::decoder::Decoder;
use super::item::{EventKind, Exit, FlowItem};
use crate::pt::TimeEstimate;

/// Instructions that were executed, and the core clocks that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Instructions.
    pub insns: u64,
    /// Core clocks.
    pub cycles: u64,
}

/// What the clock says of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time of the packet that tells of the item; none where the trace does not say.
    pub time: Option<TimeEstimate>,
    /// Up to the end of the item, since the one before that has a pace or where tracing began to
    /// tell; none where no CYC tells the core clocks there.
    pub pace: Option<Pace>,
}

/// Gives the moment of each item of a segment, all of which it must be shown, in order. A CYC
/// tells the core clocks at the first branch of the packet behind it (SDM section "Cycle Count
/// Packet").
#[derive(Clone, Debug, Default)]
pub struct Meter {
    insns: u64,
    /// Where instructions and core clocks were known last, with tracing on ever since.
    since: Option<Pace>,
    /// The core clocks of the packet that was used last: its further branches have none.
    used: Option<u64>,
}

impl Meter {
    /// The moment of what `decoder` gave just now; of a block with its last instruction.
    pub fn moment(&mut self, decoder: &Decoder<'_>, item: &FlowItem, last: Option<Last>) -> Moment {
        let told = decoder.cycles().filter(|cycles| self.used != Some(*cycles));
        let pace = self.pace(item, last, told);
        Moment { time: decoder.time(), pace }
    }

    fn pace(&mut self, item: &FlowItem, last: Option<Last>, told: Option<u64>) -> Option<Pace> {
        let ends = match item {
            FlowItem::Block(span) => {
                self.insns = self.insns.saturating_add(span.insns.into());
                // The packet may be of a branch further on.
                let told = told.filter(|_| takes_a_packet(span.exit, last));
                return self.at(told?);
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
        let pace = told.and_then(|cycles| self.at(cycles));
        if ends {
            // What passes from here on are not this code's clocks.
            self.since = None;
        }
        pace
    }

    /// Here so many core clocks have passed.
    fn at(&mut self, cycles: u64) -> Option<Pace> {
        self.used = Some(cycles);
        let since = self.since.replace(Pace { insns: self.insns, cycles })?;
        Some(Pace {
            insns: self.insns.saturating_sub(since.insns),
            cycles: cycles.saturating_sub(since.cycles),
        })
    }
}

/// Whether a packet, or a bit of one, tells where the branch went.
fn takes_a_packet(exit: Exit, last: Option<Last>) -> bool {
    match exit {
        Exit::Next | Exit::Jmp | Exit::Unknown => false,
        Exit::Call => last.is_some_and(|last| last.is_indirect_call),
        _ => true,
    }
}
