//! The meaning of a record in a trace buffer: it is the number of an edge, an exit with its path.

/// The way in which control leaves a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// To an address known at translation: [`Edge::target`].
    Direct,
    /// By a near return, to the start of the next record's path.
    Return,
    /// By an indirect jump or call, to the start of the next record's path.
    Indirect,
    /// Into the kernel by SYSCALL; [`Edge::target`] is the return address.
    Syscall,
    /// Back from the kernel to [`Edge::target`]; the record holds the time-stamp counter.
    SyscallReturn,
}

impl EdgeKind {
    /// Returns the size of the record in bytes, including the edge's number.
    pub const fn record_bytes(self) -> usize {
        match self {
            Self::Direct | Self::Return | Self::Indirect | Self::Syscall => 4,
            Self::SyscallReturn => 12,
        }
    }

    /// Returns true if only the next record determines where control goes.
    pub const fn is_indirect(self) -> bool {
        matches!(self, Self::Return | Self::Indirect)
    }
}

/// An exit of a superblock, with the path from the superblock's start to it. Edges are numbered,
/// and the number is the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Outcomes of the path's conditional branches, and a 1 for each return to a call of the same
    /// path: the path's TNT bits. The oldest is the highest bit.
    pub bits: u64,
    /// The number of `bits`.
    pub bit_count: u8,
    /// The number of instructions on the path that tick ([`super::is_tick`]).
    pub ticks: u8,
    /// The way in which control leaves.
    pub kind: EdgeKind,
    /// The number of calls on the path without a return: how many return addresses it leaves on the
    /// stack.
    pub pushes: u8,
    /// The largest number of the path's own return addresses on the stack at one time.
    pub peak: u8,
    /// The index of the first of the `pushes` addresses in [`super::Translator::return_addresses`],
    /// oldest first.
    pub first_push: u32,
    /// The number of instructions on the path.
    pub instructions: u16,
    /// The number of the superblock that the edge leaves.
    pub superblock: u32,
    /// The first address of the path.
    pub start: u64,
    /// The destination, if known at translation; else 0.
    pub target: u64,
    /// The lowest address of the path after its last TNT bit; greater than `quiet_high` if there is
    /// none.
    pub quiet_low: u64,
    /// The highest address of the path after its last TNT bit.
    pub quiet_high: u64,
    /// The time-stamp counter since which the path's code is unchanged; 0 if since the start. The
    /// translator sets it to 0, and the caller changes it.
    pub since: u64,
    /// True if control leaves by a direct jump or call; false if it falls through or leaves at a
    /// TNT bit.
    pub branch: bool,
    /// The address that execution reached just after the last TNT bit.
    pub quiet_start: u64,
    /// The number of direct jumps and calls after the last TNT bit, including the exit itself.
    pub quiet_jumps: u8,
    /// The index of the first of the `quiet_jumps` in [`super::Translator::quiet_jumps`], oldest
    /// first.
    pub first_quiet: u32,
}

impl Edge {
    /// Edge 0, which is unused: a request of 0 is no request.
    pub(super) const UNUSED: Self = Self {
        bits: 0,
        bit_count: 0,
        ticks: 0,
        kind: EdgeKind::Direct,
        pushes: 0,
        peak: 0,
        first_push: 0,
        instructions: 0,
        superblock: 0,
        start: 0,
        target: 0,
        quiet_low: u64::MAX,
        quiet_high: 0,
        since: 0,
        branch: false,
        quiet_start: 0,
        quiet_jumps: 0,
        first_quiet: 0,
    };
}

/// A direct jump or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The address of the jump or call.
    pub from: u64,
    /// The address to which it leads.
    pub to: u64,
}
