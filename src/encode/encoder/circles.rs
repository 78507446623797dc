//! Circles of direct branches, which give no packets. What comes later would bind to the first
//! arrival at its address (SDM section "Packet Binding"), and the other rounds would be lost: each
//! is told, as [`crate::pt::unit`] tells it, by an interruption that goes on at once.

use super::Encoder;
use crate::common::Addr;
use crate::encode::dictionary::Dictionary;
use crate::pt::{IpCompression, IpPayload, Packet, encode};
use crate::translate::{Edge, Jump, Step};

/// A path that left nothing in the trace, from the last place on that the trace tells.
struct Walk {
    /// Where the straight code began that is being executed.
    start: u64,
    /// Straight code before that, from its first instruction to the branch at its end. No address
    /// is in two of them.
    runs: Vec<(u64, u64)>,
}

impl Walk {
    fn meets(&self, first: u64, last: u64) -> bool {
        self.runs.iter().any(|run| run.0 <= last && first <= run.1)
    }
}

impl Encoder {
    /// Something was written that pins the path: a packet, or a bit that waits for more.
    pub(super) fn is_loud(&mut self) {
        self.loud = 0;
        self.quiet.clear();
    }

    /// The edges since the last packet or pending bit, the one with that bit first.
    fn quiet_edges<'a>(&'a self, dictionary: &'a Dictionary) -> impl Iterator<Item = &'a Edge> {
        let numbers = std::iter::once(self.loud).chain(self.quiet.iter().copied());
        numbers.filter(|number| *number != 0).filter_map(|number| dictionary.edge(number))
    }

    /// Whether `ip` may have been passed since then.
    pub(super) fn has_passed(&self, dictionary: &Dictionary, ip: u64) -> bool {
        self.quiet_edges(dictionary).any(|edge| edge.quiet_low <= ip && ip <= edge.quiet_high)
    }

    /// A packet is about to name `ip`, where execution stands, and a decoder would take the first
    /// arrival there.
    pub(super) fn settle_for(&mut self, dictionary: &Dictionary, ip: u64) {
        if self.has_passed(dictionary, ip) {
            self.settle(dictionary, &[]);
        }
    }

    /// The same, behind a part of an edge's path that has no bits.
    pub(super) fn settle_partial(&mut self, dictionary: &Dictionary, steps: &[Step]) {
        let ip = self.here;
        if self.has_passed(dictionary, ip) || steps.iter().any(|step| step.ip == ip) {
            self.settle(dictionary, steps);
        }
    }

    /// Tells all rounds since the last packet or pending bit, and where execution stands. `steps`
    /// were executed behind the last edge.
    #[cold]
    pub(super) fn settle(&mut self, dictionary: &Dictionary, steps: &[Step]) {
        let here = self.here;
        let edges: Vec<Edge> = self.quiet_edges(dictionary).copied().collect();
        let first =
            edges.first().map(|edge| if self.loud == 0 { edge.start } else { edge.quiet_start });
        let Some(start) = first.or(steps.first().map(|step| step.ip)) else { return };
        self.flush_tnt();
        let mut walk = Walk { start, runs: Vec::new() };
        for jump in edges.iter().flat_map(|edge| dictionary.quiet_jumps_of(edge)) {
            self.jump(&mut walk, *jump);
        }
        for (number, step) in steps.iter().enumerate() {
            let to = steps.get(number + 1).map_or(here, |next| next.ip);
            if to != step.ip.wrapping_add(step.len.into()) {
                self.jump(&mut walk, Jump { from: step.ip, to });
            }
        }
        self.reach(&mut walk, here);
        if !(walk.runs.is_empty() && walk.start == here) {
            self.tell_place(here);
        }
        self.is_loud();
    }

    /// Execution went on, through straight code, to `ip`: if that led into code that was executed
    /// since the last place that is told, tells where the straight code began.
    fn reach(&mut self, walk: &mut Walk, ip: u64) {
        if walk.meets(walk.start, ip) {
            self.tell_place(walk.start);
            walk.runs.clear();
        }
    }

    fn jump(&mut self, walk: &mut Walk, jump: Jump) {
        let Jump { from, to } = jump;
        self.reach(walk, from);
        let is_told = walk.runs.is_empty() && walk.start == from;
        walk.runs.push((walk.start, from));
        walk.start = to;
        if !walk.meets(to, to) {
            return;
        }
        walk.runs.clear();
        if to == from {
            // No FUP can tell the branch's own address from its target.
            if !is_told {
                self.tell_place(from);
            }
            let ip = self.last_ip.compress(Addr(to));
            encode(&Packet::TipPgd(ip), &mut self.out);
            self.put_enable(to);
        } else {
            self.tell_place(from);
            walk.runs.push((from, from));
        }
    }

    /// An interruption before the instruction at `ip`, which execution has not reached before since
    /// the last place that is told.
    fn tell_place(&mut self, ip: u64) {
        let fup = self.last_ip.compress(Addr(ip));
        encode(&Packet::Fup(fup), &mut self.out);
        let suppressed = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        encode(&Packet::TipPgd(suppressed), &mut self.out);
        self.put_enable(ip);
    }
}
