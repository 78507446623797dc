//! What a record in a trace buffer means.

/// How control leaves a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// To an address known beforehand: [`Edge::target`].
    Direct,
    /// By a near return, to where the next record's path starts.
    Return,
    /// By an indirect jump or call, to where the next record's path starts.
    Indirect,
    /// Into the kernel by SYSCALL; [`Edge::target`] is where it would come back to.
    Syscall,
    /// Back from the kernel to [`Edge::target`]; the record holds the time-stamp counter.
    SyscallReturn,
}

impl EdgeKind {
    /// Bytes of the record, its number included.
    pub const fn record_bytes(self) -> usize {
        match self {
            Self::Direct | Self::Return | Self::Indirect | Self::Syscall => 4,
            Self::SyscallReturn => 12,
        }
    }

    /// Whether only what comes next tells where control goes.
    pub const fn is_indirect(self) -> bool {
        matches!(self, Self::Return | Self::Indirect)
    }
}

/// A way out of a superblock: the path from its start to there. Edges are numbered, and the
/// number is the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Outcomes of the path's conditional branches, and a 1 for each return to the call that the
    /// path itself made: what TNT packets hold of it. The oldest is the highest bit.
    pub bits: u64,
    /// How many of `bits` there are.
    pub bit_count: u8,
    /// How control leaves.
    pub kind: EdgeKind,
    /// Calls of the path that are not returned from: how many return addresses it leaves on the
    /// stack.
    pub pushes: u8,
    /// The most of its return addresses that were on the stack at one time.
    pub peak: u8,
    /// Where in [`super::Translator::return_addresses`] the `pushes` addresses are, oldest first.
    pub first_push: u32,
    /// Instructions of the path.
    pub instructions: u16,
    /// Index of the superblock.
    pub superblock: u32,
    /// Where the path starts.
    pub start: u64,
    /// Where control goes, if that is known beforehand; else 0.
    pub target: u64,
    /// The lowest address of the path behind its last TNT bit; above `quiet_high`: there is none.
    pub quiet_low: u64,
    /// The highest such address.
    pub quiet_high: u64,
    /// The time-stamp counter from which on the path's code is as it is; 0: from the start. For
    /// whoever keeps time: the translator leaves it 0.
    pub since: u64,
    /// Control leaves by a direct jump or call; else it falls through, or there is a TNT bit.
    pub branch: bool,
    /// The address that execution reached behind the last TNT bit.
    pub quiet_start: u64,
    /// How many direct jumps and calls there are behind it, that one included.
    pub quiet_jumps: u8,
    /// Where in [`super::Translator::quiet_jumps`] they are, oldest first.
    pub first_quiet: u32,
}

/// A direct jump or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// Where it stands.
    pub from: u64,
    /// Where it leads.
    pub to: u64,
}
