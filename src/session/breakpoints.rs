//! The addresses at which a run stops. Views evaluate hit counts, and the conditions that a run
//! does not evaluate.

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
    /// Writes only.
    Write,
    /// Reads. A live program stops for writes too, as the debug registers of the CPU cannot watch
    /// reads alone (SDM volume 3, debug registers).
    Read,
    /// Reads and writes.
    Any,
}

/// Reads memory. Returns false if not all of it is known.
pub type ReadMemory<'a> = dyn Fn(Addr, &mut [u8]) -> bool + 'a;

/// A function that returns true if a thread with these registers stops at a breakpoint at an
/// address.
type Condition = dyn Fn(Addr, &KnownRegisters, &ReadMemory<'_>) -> bool;

/// The conditions of the inserted breakpoints, for runs that can evaluate them on their way.
#[derive(Clone, Default)]
pub struct Conditions {
    /// A number that is equal for equal conditions.
    key: u64,
    holds: Option<Arc<Condition>>,
}

impl Conditions {
    /// Returns conditions that `holds` evaluates. `key` is equal for equal conditions.
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

    /// Returns true if a thread with these registers stops at a breakpoint at `addr`; always if
    /// there are no conditions.
    pub fn hold(&self, addr: Addr, registers: &KnownRegisters, read: &ReadMemory<'_>) -> bool {
        self.holds.as_ref().is_none_or(|holds| holds(addr, registers, read))
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conditions({:x})", self.key)
    }
}

/// The inserted breakpoints and watchpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    conditions: Conditions,
    software: BTreeSet<Addr>,
    hardware: BTreeSet<Addr>,
    all: BTreeSet<Addr>,
    watchpoints: Vec<Watchpoint>,
}

impl Breakpoints {
    /// Inserts a breakpoint. Inserting it again has no effect.
    pub fn insert(&mut self, kind: BreakpointKind, addr: Addr) {
        self.of_kind(kind).insert(addr);
        self.all.insert(addr);
    }

    /// Removes a breakpoint. Returns true if it was inserted.
    pub fn remove(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        let removed = self.of_kind(kind).remove(&addr);
        if self.at(addr).is_none() {
            self.all.remove(&addr);
        }
        removed
    }

    /// Inserts a watchpoint. Inserting it again has no effect.
    pub fn watch(&mut self, watchpoint: Watchpoint) {
        if !self.watchpoints.contains(&watchpoint) {
            self.watchpoints.push(watchpoint);
        }
    }

    /// Removes a watchpoint. Returns true if it was inserted.
    pub fn unwatch(&mut self, watchpoint: Watchpoint) -> bool {
        let place = self.watchpoints.iter().position(|known| *known == watchpoint);
        place.map(|place| self.watchpoints.remove(place)).is_some()
    }

    /// Sets the conditions of the breakpoints.
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

    /// Returns the kind of breakpoint at an address; software wins over hardware.
    pub fn at(&self, addr: Addr) -> Option<BreakpointKind> {
        if self.software.contains(&addr) {
            Some(BreakpointKind::Software)
        } else if self.hardware.contains(&addr) {
            Some(BreakpointKind::Hardware)
        } else {
            None
        }
    }

    /// Returns the addresses of all breakpoints.
    pub fn addrs(&self) -> &BTreeSet<Addr> {
        &self.all
    }

    fn of_kind(&mut self, kind: BreakpointKind) -> &mut BTreeSet<Addr> {
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
