//! The addresses at which a run stops, and the memory whose accesses stop it. A breakpoint may have
//! a *condition* of the user, and then stops a thread only if it holds. Only an exact recording
//! evaluates conditions, during its replay. Other runs stop in any case: their views evaluate the
//! conditions then, and resume. Views also count hits.

use super::KnownRegisters;
use crate::common::Addr;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The kind of breakpoint that the user requested. A history treats both kinds alike; only the
/// reported stop differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakpointKind {
    /// A breakpoint written into the code.
    Software,
    /// A breakpoint in a debug register.
    Hardware,
}

/// A memory range whose accesses stop a live program or an exact recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchpoint {
    /// Address of the first byte.
    pub addr: Addr,
    /// Length in bytes.
    pub size_bytes: u64,
    /// The accesses that stop the run.
    pub access: Access,
}

/// A set of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes only. In an exact recording, and in a live program without a debug register for the
    /// watchpoint, only those that change the value.
    Write,
    /// Reads. A live program stops for writes too if a debug register of the CPU watches: it cannot
    /// watch reads alone (SDM volume 3, debug registers).
    Read,
    /// Reads and writes.
    Any,
}

/// Reads memory. Returns false if not all of it is known.
pub type ReadMemory<'a> = dyn Fn(Addr, &mut [u8]) -> bool + 'a;

/// A function that returns true if a thread with these registers stops at a breakpoint at an
/// address.
type Condition = dyn Fn(Addr, &KnownRegisters, &ReadMemory<'_>) -> bool;

/// The conditions of all inserted breakpoints, as one function, for runs that can evaluate it on
/// their way. The default value has no conditions: each breakpoint stops the run.
#[derive(Clone, Default)]
pub struct Conditions {
    /// A number that is equal for equal conditions: a replay remembers search results by it.
    key: u64,
    /// `None` if there are no conditions.
    holds: Option<Arc<Condition>>,
}

impl Conditions {
    /// Returns conditions. `holds` returns true if a thread with the given registers stops at a
    /// breakpoint at the given address. `key` is equal for equal conditions.
    pub fn new(
        key: u64,
        holds: impl Fn(Addr, &KnownRegisters, &ReadMemory<'_>) -> bool + 'static,
    ) -> Self {
        Self { key, holds: Some(Arc::new(holds)) }
    }

    /// Returns a number that is equal for equal conditions.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns true if there are conditions to evaluate.
    pub fn exist(&self) -> bool {
        self.holds.is_some()
    }

    /// Returns true if a thread with these registers stops at a breakpoint at `addr`; always true
    /// without conditions. `read` reads memory. The caller knows that a breakpoint is there.
    pub fn hold(&self, addr: Addr, registers: &KnownRegisters, read: &ReadMemory<'_>) -> bool {
        self.holds.as_ref().is_none_or(|holds| holds(addr, registers, read))
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conditions({:x})", self.key)
    }
}

/// The inserted breakpoints and watchpoints, with the conditions of the breakpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    conditions: Conditions,
    software: BTreeSet<Addr>,
    hardware: BTreeSet<Addr>,
    /// The addresses in `software` or `hardware`.
    all: BTreeSet<Addr>,
    watchpoints: Vec<Watchpoint>,
}

impl Breakpoints {
    /// Inserts a breakpoint. Inserting it again has no effect. There may be one of each kind at an
    /// address. Leaves the conditions, which decide about the new address too.
    pub fn insert(&mut self, kind: BreakpointKind, addr: Addr) {
        self.addrs_of_kind(kind).insert(addr);
        self.all.insert(addr);
    }

    /// Removes a breakpoint; one of the other kind at the address stays. Returns true if it was
    /// inserted. Leaves the conditions, also that of this breakpoint ([`Self::set_conditions`]).
    pub fn remove(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        let removed = self.addrs_of_kind(kind).remove(&addr);
        if self.kind_at(addr).is_none() {
            self.all.remove(&addr);
        }
        removed
    }

    /// Inserts a watchpoint. Inserting it again has no effect. Does not check that the run can
    /// watch it. One with another size or access is another watchpoint.
    pub fn watch(&mut self, watchpoint: Watchpoint) {
        if !self.watchpoints.contains(&watchpoint) {
            self.watchpoints.push(watchpoint);
        }
    }

    /// Removes the watchpoint with this address, size and access. Returns true if it was inserted.
    pub fn unwatch(&mut self, watchpoint: Watchpoint) -> bool {
        let index = self.watchpoints.iter().position(|known| *known == watchpoint);
        index.map(|index| self.watchpoints.remove(index)).is_some()
    }

    /// Sets the conditions of all breakpoints, in place of the previous ones.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Returns the conditions of the breakpoints.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Returns the watchpoints in the order of their insertion.
    pub fn watchpoints(&self) -> &[Watchpoint] {
        &self.watchpoints
    }

    /// Removes all breakpoints, watchpoints and conditions.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the kind of breakpoint at an address: software if there are both. Returns `None`
    /// without a breakpoint. Conditions are not evaluated.
    pub fn kind_at(&self, addr: Addr) -> Option<BreakpointKind> {
        if self.software.contains(&addr) {
            Some(BreakpointKind::Software)
        } else if self.hardware.contains(&addr) {
            Some(BreakpointKind::Hardware)
        } else {
            None
        }
    }

    /// Returns the addresses of the breakpoints of both kinds; not those of watchpoints.
    pub fn addrs(&self) -> &BTreeSet<Addr> {
        &self.all
    }

    fn addrs_of_kind(&mut self, kind: BreakpointKind) -> &mut BTreeSet<Addr> {
        match kind {
            BreakpointKind::Software => &mut self.software,
            BreakpointKind::Hardware => &mut self.hardware,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inserted_twice_is_there_once() {
        let mut breakpoints = Breakpoints::default();
        let watchpoint = Watchpoint { addr: Addr(16), size_bytes: 4, access: Access::Write };
        for _ in 0..2 {
            breakpoints.insert(BreakpointKind::Software, Addr(1));
            breakpoints.watch(watchpoint);
        }
        assert_eq!((breakpoints.addrs().len(), breakpoints.watchpoints()), (1, &[watchpoint][..]));
        assert!(breakpoints.remove(BreakpointKind::Software, Addr(1)));
        assert!(breakpoints.unwatch(watchpoint));
        assert!(breakpoints.addrs().is_empty() && breakpoints.watchpoints().is_empty());
    }
}
