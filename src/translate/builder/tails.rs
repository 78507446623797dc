//! Emits the glue at the exits of a superblock, which writes a record or counts ticks.

use super::super::edge::{Edge, EdgeKind};
use super::super::emit::Gpr;
use super::super::slots;
use super::{Builder, Exit};

impl Builder<'_, '_> {
    pub(super) fn direct_tail(&mut self, edge: u32, target: u64, r11_is_program: bool) {
        if r11_is_program {
            self.emitter.trace_pointer_in();
        }
        let spent = if self.site.counts {
            self.count_towards(edge, target)
        } else {
            self.emitter.record(edge);
            None
        };
        let request = self.exit(edge, target);
        if let Some(field) = spent {
            self.emitter.aim(field, request);
        }
    }

    /// Emits an exit whose target is in RDX, with the program's RCX and RDX in their slots.
    /// Compares `likely` first, if there is one.
    pub(super) fn indirect_tail(&mut self, edge: u32, r11_is_program: bool, likely: Option<u64>) {
        if r11_is_program {
            self.emitter.trace_pointer_in();
        }
        if self.site.counts {
            // No record identifies the branch, so a slot does.
            self.emitter.store_value(edge, slots::EDGE);
            if let Some(ticks) = self.ticks_of(edge) {
                let field = self.emitter.count_by_rcx(ticks);
                self.emitter.aim(field, self.site.miss);
            }
        } else {
            self.emitter.record(edge);
        }
        if self.site.bound.is_some() {
            self.emitter.jump(self.site.miss);
            return;
        }
        if let Some(target) = likely {
            self.exit_if_target(edge, target);
        }
        self.emitter.jump_by_target();
    }

    /// Emits an exit that is taken if the target in RDX is `target`, as one continuation of the
    /// indirect branch of edge `of`, whose ticks are counted already.
    fn exit_if_target(&mut self, of: u32, target: u64) {
        let Some(of) = self.edge_at(of) else { return };
        let other = self.emitter.jump_if_rdx_is_not(target);
        self.emitter.load(Gpr::Rcx, slots::RCX);
        self.emitter.load(Gpr::Rdx, slots::RDX);
        // This exit writes no record, so no encoder needs the edge's calls.
        let kind = EdgeKind::Direct;
        let edge = self.add(Edge { kind, pushes: 0, target, branch: true, quiet_jumps: 0, ..of });
        let _ = self.exit(edge, target);
        self.emitter.aim_here(other);
    }

    /// Emits a jump that is linked later, followed by the request for its target. Returns the
    /// address of the request.
    pub(super) fn exit(&mut self, edge: u32, target: u64) -> u64 {
        while self.emitter.len() % 4 != 3 {
            self.emitter.put(&[0x90]);
        }
        self.emitter.put(&[0xe9]);
        let field = self.emitter.here();
        self.emitter.put_u32(0);
        let request = self.emitter.here();
        self.emitter.store(Gpr::Rcx, slots::RCX);
        // mov ecx, edge
        self.emitter.put(&[0xb9]);
        self.emitter.put_u32(edge);
        self.emitter.jump(self.site.request);
        if self.site.bound.is_none() {
            self.exits.push(Exit { target, field });
        }
        request
    }

    /// Emits code that subtracts the ticks of an edge to `target` from the budget in R11. Returns
    /// the displacement of the jump taken when the budget is spent, that is if R11's upper half is
    /// then not 0. A recorder may overdraw the budget, so its exits to higher addresses only
    /// subtract: every cycle has an exit to a lower address, or an indirect one.
    fn count_towards(&mut self, edge: u32, target: u64) -> Option<usize> {
        let ticks = self.ticks_of(edge)?;
        let is_recorded = self.site.call_log.is_some_and(|log| !log.answers);
        if is_recorded && self.site.bound.is_none() && target > self.start {
            self.emitter.subtract(ticks);
            return None;
        }
        Some(self.emitter.count(ticks))
    }

    /// Returns the number of ticks of an edge; `None` if it is 0.
    fn ticks_of(&self, edge: u32) -> Option<u8> {
        let edge = self.edge_at(edge)?;
        debug_assert!(!matches!(edge.kind, EdgeKind::Syscall | EdgeKind::SyscallReturn));
        Some(edge.ticks).filter(|ticks| *ticks > 0)
    }

    /// Returns an edge of this superblock, by its number.
    fn edge_at(&self, number: u32) -> Option<Edge> {
        let index = usize::try_from(number - self.site.next_edge).ok()?;
        self.edges.get(index).copied()
    }
}
