//! The addresses at which a run stops. Conditions and counts are the view's business.

use crate::common::Addr;
use std::collections::BTreeSet;

/// How the user asked for a breakpoint. A history treats both alike; they are told apart in what
/// is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakpointKind {
    /// As if written into the code.
    Software,
    /// As if in a debug register.
    Hardware,
}

/// Memory whose accesses stop a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchpoint {
    /// Its first byte.
    pub addr: Addr,
    /// How many bytes.
    pub size_bytes: u64,
    /// Which accesses.
    pub access: Access,
}

/// Accesses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes.
    Write,
    /// Reads. The CPU cannot tell them from writes, and stops for both.
    Read,
    /// Both.
    Any,
}

/// Inserted breakpoints.
#[derive(Clone, Debug, Default)]
pub struct Breakpoints {
    software: BTreeSet<Addr>,
    hardware: BTreeSet<Addr>,
    all: BTreeSet<Addr>,
    watchpoints: Vec<Watchpoint>,
}

impl Breakpoints {
    /// Inserts one; inserting twice is inserting once.
    pub fn insert(&mut self, kind: BreakpointKind, addr: Addr) {
        self.of_kind(kind).insert(addr);
        self.all.insert(addr);
    }

    /// Removes one; whether it was there.
    pub fn remove(&mut self, kind: BreakpointKind, addr: Addr) -> bool {
        let removed = self.of_kind(kind).remove(&addr);
        if self.at(addr).is_none() {
            self.all.remove(&addr);
        }
        removed
    }

    /// Inserts a watchpoint; inserting twice is inserting once.
    pub fn watch(&mut self, watchpoint: Watchpoint) {
        if !self.watchpoints.contains(&watchpoint) {
            self.watchpoints.push(watchpoint);
        }
    }

    /// Removes a watchpoint; whether it was there.
    pub fn unwatch(&mut self, watchpoint: Watchpoint) -> bool {
        let place = self.watchpoints.iter().position(|known| *known == watchpoint);
        place.map(|place| self.watchpoints.remove(place)).is_some()
    }

    /// The watchpoints, in the order of their insertion.
    pub fn watchpoints(&self) -> &[Watchpoint] {
        &self.watchpoints
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The breakpoint at an address; a software one goes before a hardware one.
    pub fn at(&self, addr: Addr) -> Option<BreakpointKind> {
        if self.software.contains(&addr) {
            Some(BreakpointKind::Software)
        } else if self.hardware.contains(&addr) {
            Some(BreakpointKind::Hardware)
        } else {
            None
        }
    }

    /// The addresses of all.
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
