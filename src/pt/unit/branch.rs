//! Control flow events, the input of the unit.

use crate::common::Addr;

/// A kind of change of flow instruction (SDM section "Change of Flow Instruction (COFI) Tracing").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
    /// A conditional branch: `Jcc`, `J*CXZ`, `LOOP*`.
    Jcc {
        /// True if the branch went to its target.
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
    /// The kind of the branch.
    pub kind: BranchKind,
    /// The address of the branch.
    pub ip: Addr,
    /// The address of the next instruction.
    pub next: Addr,
    /// The target of the branch if it is taken.
    pub target: Addr,
    /// The privilege level after the branch, 0 to 3.
    pub cpl: u8,
}

impl Branch {
    /// Returns the address at which execution continues: the target, or the next instruction if the
    /// branch is not taken.
    #[must_use]
    pub const fn landing(&self) -> Addr {
        if self.is_taken() { self.target } else { self.next }
    }

    /// Returns true if the branch is taken. Only a conditional one can be not taken.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        !matches!(self.kind, BranchKind::Jcc { taken: false })
    }
}
