//! What the driver tells the unit about control flow.

use crate::common::Addr;

/// The kinds of change of flow instruction (SDM section "Change of Flow Instruction (COFI)
/// Tracing").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
    /// A conditional branch: `Jcc`, `J*CXZ`, `LOOP*`.
    Jcc {
        /// Whether it went to its target.
        taken: bool,
    },
    /// A direct near jump.
    Jmp,
    /// A direct near call.
    Call,
    /// An indirect near jump.
    JmpIndirect,
    /// An indirect near call.
    CallIndirect,
    /// A near return.
    Ret,
    /// A far transfer: far jump, call and return, `INT n`, `IRET`, `SYSCALL`, `SYSRET`,
    /// `SYSENTER`, `SYSEXIT`, VM entry...
    Far,
}

/// One executed branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// What it is.
    pub kind: BranchKind,
    /// Where it stands.
    pub ip: Addr,
    /// The address behind it.
    pub next: Addr,
    /// Where it goes if taken.
    pub target: Addr,
    /// The privilege level behind it, 0 to 3.
    pub cpl: u8,
}

impl Branch {
    /// Where execution goes on.
    #[must_use]
    pub const fn landing(&self) -> Addr {
        if self.is_taken() { self.target } else { self.next }
    }

    /// Whether it is a taken branch, conditional or not.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        !matches!(self.kind, BranchKind::Jcc { taken: false })
    }
}
