//! Emits the glue at the exits of a superblock, which writes a record or counts ticks.

use super::super::edge::{Edge, EdgeKind};
use super::super::emit::{Gpr, STORE_AT_DIRECT, STORE_AT_INDIRECT};
use super::super::slots;
use super::{Builder, Exit};

impl Builder<'_, '_> {
    /// Emits an exit to `target`: records the edge or counts its ticks, then jumps. If R11 holds
    /// the program's value there (`r11_is_program`), saves it and loads the trace pointer first.
    pub(super) fn emit_direct_exit(&mut self, edge: u32, target: u64, r11_is_program: bool) {
        if r11_is_program {
            self.emitter.load_trace_pointer();
        }
        if self.site.counts {
            self.emit_count(edge, STORE_AT_DIRECT);
        } else {
            self.emitter.record(edge);
        }
        self.emit_exit(edge, target);
    }

    /// Emits an exit whose target is in RDX, with the program's RCX and RDX in their slots: records
    /// the edge or counts its ticks, then jumps by the target, which it compares with `likely`
    /// first. A bounded superblock requests the target instead. `r11_is_program` is as for
    /// [`Self::emit_direct_exit`].
    pub(super) fn emit_indirect_exit(
        &mut self,
        edge: u32,
        r11_is_program: bool,
        likely: Option<u64>,
    ) {
        if r11_is_program {
            self.emitter.load_trace_pointer();
        }
        if self.site.counts {
            // No record identifies the branch, so a slot does.
            self.emitter.store_value(edge, slots::EDGE);
            self.emit_count(edge, STORE_AT_INDIRECT);
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

    /// Emits an exit that is taken if the target in RDX is `target`, with RCX and RDX restored: one
    /// continuation of the indirect branch of edge `of`, whose record is written, or ticks are
    /// counted, already. Falls through for other targets, with RCX overwritten. Emits nothing if
    /// there is no edge `of`.
    fn exit_if_target(&mut self, of: u32, target: u64) {
        let Some(of) = self.edge_at(of) else { return };
        let other = self.emitter.jump_if_rdx_is_not(target);
        self.emitter.load(Gpr::Rcx, slots::RCX);
        self.emitter.load(Gpr::Rdx, slots::RDX);
        // This exit writes no record, so no encoder needs the edge's calls.
        let kind = EdgeKind::Direct;
        let edge =
            self.add_edge(Edge { kind, pushes: 0, target, branch: true, quiet_jumps: 0, ..of });
        self.emit_exit(edge, target);
        self.emitter.aim_here(other);
    }

    /// Emits a jump that is linked later, followed by the request for its target; writes no record
    /// and counts nothing. All registers but R11 are the program's here. A bounded superblock's
    /// jump is never linked, and leads to the request.
    pub(super) fn emit_exit(&mut self, edge: u32, target: u64) {
        while self.emitter.len() % 4 != 3 {
            self.emitter.put(&[0x90]);
        }
        self.emitter.put(&[0xe9]);
        let field = self.emitter.here();
        self.emitter.put_u32(0);
        self.emitter.store(Gpr::Rcx, slots::RCX);
        // mov ecx, edge
        self.emitter.put(&[0xb9]);
        self.emitter.put_u32(edge);
        self.emitter.jump(self.site.request);
        if self.site.bound.is_none() {
            self.exits.push(Exit { target, field });
        }
    }

    /// Emits code that subtracts the ticks of an edge from the budget in R11, and checks by `store`
    /// whether it is spent. An edge without ticks needs neither. That of a bounded superblock needs
    /// no check: it makes a request in any case.
    fn emit_count(&mut self, edge: u32, store: [u8; 3]) {
        let Some(ticks) = self.ticks_of(edge) else { return };
        match self.site.bound {
            Some(_) => self.emitter.subtract_ticks(ticks),
            None => self.emitter.count_and_check(ticks, store),
        }
    }

    /// Returns the number of ticks of an edge; `None` if it is 0, or there is no such edge yet. Not
    /// for the edges of system calls.
    fn ticks_of(&self, edge: u32) -> Option<u8> {
        let edge = self.edge_at(edge)?;
        debug_assert!(!matches!(edge.kind, EdgeKind::Syscall | EdgeKind::SyscallReturn));
        Some(edge.ticks).filter(|ticks| *ticks > 0)
    }

    /// Returns an edge of this superblock, by its number, which is not below `next_edge` of its
    /// site; `None` if it is not added yet.
    fn edge_at(&self, number: u32) -> Option<Edge> {
        let index = usize::try_from(number - self.site.next_edge).ok()?;
        self.edges.get(index).copied()
    }
}
