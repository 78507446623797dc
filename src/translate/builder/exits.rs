//! Builds the edges of a superblock, the points of its code, and the result. An edge is the path so
//! far with the exit here (`edge_here`); it gets its number when it is added (`add_edge`). The
//! *quiet* part of a path is that after its last TNT bit.
//!
//! `calls` and `jumps` are those of the path now. `add_edge` copies them to the ends of `pushes`
//! and `quiet_jumps`, where the edge finds its own by `first_push` and `first_quiet`.

use super::super::edge::{Edge, EdgeKind};
use super::super::superblock::{Outcome, Point, State, Step};
use super::{Builder, Built, Quiet, Spare, Stub};

impl Builder<'_, '_> {
    /// Ends the path after a direct jump or call to `target`, whose step and jump the caller has
    /// added.
    pub(super) fn end_by_branch(&mut self, target: u64) {
        self.end_with_edge(target, true);
    }

    /// Ends the path where control falls through to `target`.
    pub(super) fn end_at(&mut self, target: u64) {
        self.end_with_edge(target, false);
    }

    /// Ends the path with an edge to `target`. `branch`: a direct jump or call leads there.
    pub(super) fn end_with_edge(&mut self, target: u64, branch: bool) {
        self.glue_point();
        let edge = Edge { branch, ..self.edge_here(EdgeKind::Direct, target) };
        let edge = self.add_edge(edge);
        self.emit_direct_exit(edge, target, self.r11_is_program);
    }

    /// Adds the current instruction to the path and its quiet part, with its ticks. `next` is the
    /// address after it. For an instruction with a TNT bit, call [`Self::push_bit`] after this. The
    /// caller moves on to the next instruction.
    pub(super) fn push_step(&mut self, next: u64, outcome: Outcome) {
        let len = u8::try_from(next.wrapping_sub(self.ip)).unwrap_or(0);
        self.path.push(Step { ip: self.ip, len, outcome, ticks: self.ticks_next });
        self.ticks = self.ticks.saturating_add(self.ticks_next.into());
        let quiet = self.quiet.unwrap_or(Quiet { start: self.ip, low: self.ip, high: self.ip });
        let (low, high) = (quiet.low.min(self.ip), quiet.high.max(self.ip));
        self.quiet = Some(Quiet { low, high, ..quiet });
    }

    /// Adds the TNT bit of a conditional branch or compressed return to the path, whose quiet part
    /// begins anew after it.
    pub(super) fn push_bit(&mut self, bit: u64) {
        self.bits = self.bits << 1 | bit;
        self.bit_count += 1;
        self.quiet = None;
        self.jumps.clear();
    }

    /// Returns the edge from the start to here that goes on at `target`, without adding it. Its
    /// `branch` is false: the caller sets it for a direct jump or call.
    pub(super) fn edge_here(&self, kind: EdgeKind, target: u64) -> Edge {
        Edge {
            bits: self.bits,
            bit_count: self.bit_count,
            ticks: self.ticks,
            kind,
            pushes: u8::try_from(self.calls.len()).unwrap_or(u8::MAX),
            peak: u8::try_from(self.peak).unwrap_or(u8::MAX),
            first_push: self.site.next_push + u32::try_from(self.pushes.len()).unwrap_or(0),
            instructions: u16::try_from(self.path.len()).unwrap_or(u16::MAX),
            superblock: self.site.superblock,
            start: self.start,
            target,
            quiet_low: self.quiet.map_or(u64::MAX, |quiet| quiet.low),
            quiet_high: self.quiet.map_or(0, |quiet| quiet.high),
            since: 0,
            branch: false,
            quiet_start: self.quiet.map_or(target, |quiet| quiet.start),
            quiet_jumps: u8::try_from(self.jumps.len()).unwrap_or(u8::MAX),
            first_quiet: self.site.next_quiet + u32::try_from(self.quiet_jumps.len()).unwrap_or(0),
        }
    }

    /// Adds the edge from the start to here that goes on at `target`. Returns its number.
    pub(super) fn add_edge_here(&mut self, kind: EdgeKind, target: u64) -> u32 {
        let edge = self.edge_here(kind, target);
        self.add_edge(edge)
    }

    /// Adds the edge that leaves the path at a conditional branch, with its TNT bit `bit`, and goes
    /// on at `target`. The branch is the last step of the path, and [`Self::push_bit`] is called
    /// only after this, for the path's own direction. Returns the edge's number.
    pub(super) fn branch_edge(&mut self, target: u64, bit: u64) -> u32 {
        let here = self.edge_here(EdgeKind::Direct, target);
        self.add_edge(Edge {
            bits: here.bits << 1 | bit,
            bit_count: here.bit_count + 1,
            quiet_low: u64::MAX,
            quiet_high: 0,
            quiet_start: target,
            quiet_jumps: 0,
            ..here
        })
    }

    /// Adds an edge from [`Self::edge_here`], with its return addresses and quiet jumps. Nothing
    /// was added to the path or the edges since that call. Returns the edge's number.
    pub(super) fn add_edge(&mut self, edge: Edge) -> u32 {
        let number = self.site.next_edge + u32::try_from(self.edges.len()).unwrap_or(0);
        self.pushes.extend_from_slice(&self.calls[..usize::from(edge.pushes)]);
        let jumps = &self.jumps[..usize::from(edge.quiet_jumps)];
        self.quiet_jumps.extend_from_slice(jumps);
        self.edges.push(edge);
        number
    }

    /// Adds a point at the current offset of the code, for the instruction at `ip`.
    pub(super) fn point(&mut self, state: State) {
        let offset = u32::try_from(self.emitter.len()).unwrap_or(u32::MAX);
        let index = u16::try_from(self.path.len()).unwrap_or(u16::MAX);
        self.points.push(Point { offset, index, ip: self.ip, state });
    }

    /// Adds a point before an instruction of the program, at which the program's state is exact.
    pub(super) fn exact_point(&mut self) {
        let r11_in_slot = !self.r11_is_program;
        self.point(State { exact: true, r11_in_slot, ..State::default() });
    }

    /// Adds a point before glue: a thread there is stepped until its state is exact. Adds none if
    /// an exact point is at this very offset, since a thread at the first byte of the glue still
    /// has that state. A loop of direct jumps has no other exact point.
    pub(super) fn glue_point(&mut self) {
        let here = u32::try_from(self.emitter.len()).unwrap_or(u32::MAX);
        let is_exact = |point: &Point| point.offset == here && point.state.exact;
        if !self.points.last().is_some_and(is_exact) {
            self.point(State::default());
        }
    }

    /// Emits the stubs and the literals after the path, and returns the superblock. `accepted` and
    /// `next_field` are from the prologue, and `body` is the address after it.
    pub(super) fn finish(
        mut self,
        accepted: u64,
        body: u64,
        next_field: usize,
        native: bool,
    ) -> Built {
        self.glue_point();
        for number in 0..self.stubs.len() {
            let here = self.emitter.here();
            match self.stubs[number] {
                Stub::Direct { field, edge, target, r11_is_program } => {
                    self.emitter.aim(field, here);
                    self.emit_direct_exit(edge, target, r11_is_program);
                }
                Stub::Indirect { field, edge, r11_is_program, likely } => {
                    self.emitter.aim(field, here);
                    self.emit_indirect_exit(edge, r11_is_program, likely);
                }
            }
        }
        self.emitter.pad(8);
        let next_literal = self.emitter.here();
        self.emitter.aim(next_field, next_literal);
        self.emitter.put_u64(0);
        for number in 0..self.literals.len() {
            let (field, value) = self.literals[number];
            let here = self.emitter.here();
            self.emitter.aim(field, here);
            self.emitter.put_u64(value);
        }
        Built {
            bytes: self.emitter.bytes,
            accepted,
            body,
            path: self.path,
            points: self.points,
            native,
            ignores_stop: self.site.ignores_stop,
            hook: self.hook,
            next_literal,
            edges: self.edges,
            pushes: self.pushes,
            quiet_jumps: self.quiet_jumps,
            exits: self.exits,
            pages: self.pages,
            spare: Spare {
                calls: self.calls,
                jumps: self.jumps,
                literals: self.literals,
                stubs: self.stubs,
            },
        }
    }
}
