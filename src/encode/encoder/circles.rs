//! Circles: loops of direct branches, which generate no packets. A trace shows one round of such a
//! loop at most, since a decoder binds the next packet to the first arrival at its address (SDM
//! section "Packet Binding"). So that all rounds are decoded, each is reported by an interruption
//! that resumes at once (FUP, TIP.PGD, TIP.PGE), as in [`crate::pt::unit`].
//!
//! An edge is *loud* if it adds a packet or TNT bit to the trace, and *quiet* if it adds nothing.
//! The encoder keeps the quiet edges since the last packet or bit, and the loud edge before them,
//! of which the part after its last bit is quiet, too. Before it adds a packet with an address that
//! these may have passed, it walks along them again (`report_rounds`), by pieces of straight code
//! (*runs*), and reports an address in each round:
//! - where a run begins, if an earlier run has executed some of its code (`check_run`);
//! - the branch at its end, if an earlier run or itself has executed the target (`jump`).
//!
//! At last it reports the current address. A decoder knows a *reported* address, so a report
//! forgets all before it: of a reported start, that run remains; of a reported branch, the branch.
//!
//! Example: `A: jmp B` and `B: jmp A`, each an edge, entered at A. The second leads to A, which
//! the first has passed, so the encoder walks. The branch at A leads to new code: A becomes a run.
//! The branch at B leads to that run: B is reported, and then A, the current address. The edges are
//! forgotten. Each further round reports B and A again.
//!
//! `quiet_low..=quiet_high` of an edge contains the path after its last bit, and maybe code between
//! that was not executed. So `has_passed` may return true without need, but never misses an address
//! of an edge. (It knows nothing of instructions that are in no edge: `Encoder::stepped_insn`.)

use super::Encoder;
use crate::common::Addr;
use crate::encode::dictionary::Dictionary;
use crate::pt::{IpCompression, IpPayload, Packet, encode};
use crate::translate::{Edge, Jump, Step};

/// A walk along a path without packets, since the last reported address.
struct Walk {
    /// The address at which the current run, a piece of straight code, began.
    start: u64,
    /// The runs before it: the address of the first instruction, and of the branch at the end. No
    /// address is in two of them.
    runs: Vec<(u64, u64)>,
}

impl Walk {
    /// Returns true if an earlier run executed an instruction from `first` to `last`.
    fn has_run(&self, first: u64, last: u64) -> bool {
        self.runs.iter().any(|run| run.0 <= last && first <= run.1)
    }
}

impl Encoder {
    /// Forgets the loud edge and the quiet ones: a packet or a TNT bit was added, which determines
    /// the current address.
    pub(super) fn forget_edges(&mut self) {
        self.loud = 0;
        self.quiet.clear();
    }

    /// Returns the loud edge, if there is one, and the quiet ones after it: those since the last
    /// packet or pending bit.
    fn edges_since_bit<'a>(&'a self, dictionary: &'a Dictionary) -> impl Iterator<Item = &'a Edge> {
        let numbers = std::iter::once(self.loud).chain(self.quiet.iter().copied());
        numbers.filter(|number| *number != 0).filter_map(|number| dictionary.edge(number))
    }

    /// Returns true if an edge may have executed `ip` since the last packet or pending bit.
    pub(super) fn has_passed(&self, dictionary: &Dictionary, ip: u64) -> bool {
        self.edges_since_bit(dictionary).any(|edge| edge.quiet_low <= ip && ip <= edge.quiet_high)
    }

    /// Reports the rounds since the last packet or pending bit if they may have passed `ip`, the
    /// current address. To be called before a packet with `ip`, which a decoder would bind to the
    /// first arrival there.
    pub(super) fn report_rounds_before(&mut self, dictionary: &Dictionary, ip: u64) {
        if self.has_passed(dictionary, ip) {
            self.report_rounds(dictionary, &[]);
        }
    }

    /// Does the same as [`Self::report_rounds_before`] for the current address, after `steps` of an
    /// interrupted path, which have no TNT bits.
    pub(super) fn report_rounds_of_partial(&mut self, dictionary: &Dictionary, steps: &[Step]) {
        let ip = self.ip;
        if self.has_passed(dictionary, ip) || steps.iter().any(|step| step.ip == ip) {
            self.report_rounds(dictionary, steps);
        }
    }

    /// Walks the edges since the last packet or pending bit again, and then `steps`, which were
    /// executed after them. Reports an address in each round, and at last the current address.
    /// Writes the pending bits first, and forgets the edges. Does nothing if there are neither
    /// edges nor steps.
    #[cold]
    pub(super) fn report_rounds(&mut self, dictionary: &Dictionary, steps: &[Step]) {
        let ip = self.ip;
        let edges: Vec<Edge> = self.edges_since_bit(dictionary).copied().collect();
        // A walk begins after the loud edge's last bit: `quiet_start` is the address after it.
        let first =
            edges.first().map(|edge| if self.loud == 0 { edge.start } else { edge.quiet_start });
        let Some(start) = first.or(steps.first().map(|step| step.ip)) else { return };
        self.flush();
        let mut walk = Walk { start, runs: Vec::new() };
        for jump in edges.iter().flat_map(|edge| dictionary.quiet_jumps_of(edge)) {
            self.jump(&mut walk, *jump);
        }
        for (number, step) in steps.iter().enumerate() {
            let to = steps.get(number + 1).map_or(ip, |next| next.ip);
            if to != step.ip.wrapping_add(step.len.into()) {
                self.jump(&mut walk, Jump { from: step.ip, to });
            }
        }
        self.check_run(&mut walk, ip);
        // Unless the decoder is at `ip` already: a packet, bit or report determined this very
        // address last. (`is_decoder_there` in `jump` is the same, for a branch.)
        if !(walk.runs.is_empty() && walk.start == ip) {
            self.report_address(ip);
        }
        self.forget_edges();
    }

    /// Checks the current run, from its start to `ip`. If an earlier run has executed some of its
    /// code, reports the start of the current run, and forgets the earlier ones; the current run
    /// goes on.
    fn check_run(&mut self, walk: &mut Walk, ip: u64) {
        if walk.has_run(walk.start, ip) {
            self.report_address(walk.start);
            walk.runs.clear();
        }
    }

    /// Ends the current run with a branch, and begins the next at its target. If an earlier run, or
    /// the one that ends, has executed the target, reports the branch and forgets the runs; the
    /// branch alone stays, as a run. There are three cases: a target that is new, a branch to
    /// itself (which leads to where the decoder is then, so nothing stays), and any other branch
    /// back.
    fn jump(&mut self, walk: &mut Walk, jump: Jump) {
        let Jump { from, to } = jump;
        self.check_run(walk, from);
        // True if a packet, a bit, or the report of a start determined this very address last: the
        // run that ends is the branch alone, and no run is before it.
        let is_decoder_there = walk.runs.is_empty() && walk.start == from;
        // Before the check, as the target may be in the run that ends.
        walk.runs.push((walk.start, from));
        walk.start = to;
        if !walk.has_run(to, to) {
            return;
        }
        walk.runs.clear();
        if to == from {
            // A FUP with the branch's own address would also match its target, so the TIP.PGD alone
            // reports the branch, by its target.
            if !is_decoder_there {
                self.report_address(from);
            }
            let ip = self.last_ip.compress(Addr(to));
            encode(&Packet::TipPgd(ip), &mut self.out);
            self.put_enable(to);
        } else {
            self.report_address(from);
            // The branch itself was executed after the reported place.
            walk.runs.push((from, from));
        }
    }

    /// Reports `ip` by an interruption before the instruction there: FUP, TIP.PGD, TIP.PGE. The
    /// path must not have passed `ip` since the last reported address, and the caller has written
    /// the pending bits ([`Self::flush`]).
    fn report_address(&mut self, ip: u64) {
        let fup = self.last_ip.compress(Addr(ip));
        encode(&Packet::Fup(fup), &mut self.out);
        let suppressed = IpPayload { compression: IpCompression::Suppressed, value: 0 };
        encode(&Packet::TipPgd(suppressed), &mut self.out);
        self.put_enable(ip);
    }
}
