//! The meaning of records: the edges of all superblocks, by number, each in full ([`Edge`]) and in
//! a compact form ([`CompactEdge`]), which fits half a cache line.
//!
//! The [`Treatment`] of an edge says how its records are encoded. An edge is *plain*, as nearly all
//! that are executed are, if the compact form describes it in full. An edge is *quiet* if it adds
//! nothing to the trace, unless the thread passed its target since the last packet or TNT bit: a
//! decoder binds the next packet to the first arrival at its address, so a loop of quiet edges
//! needs extra packets ([`super::encoder`]). Any other edge is *slow*.

use crate::translate::{Edge, EdgeKind, Jump, Step};

/// The maximum number of TNT bits of a plain edge, which fit the field `bits`.
const PLAIN_BITS: u8 = 16;

/// The parts of new superblocks that the encoder does not know yet.
#[derive(Debug, Default)]
pub struct NewEdges {
    /// The edges, in order of their numbers.
    pub edges: Vec<Edge>,
    /// The return addresses that the edges' paths push.
    pub pushes: Vec<u64>,
    /// The direct jumps and calls after the last TNT bit of the edges' paths.
    pub quiet_jumps: Vec<Jump>,
    /// The paths of superblocks, if an encoder needs them.
    pub paths: Vec<Paths>,
}

/// The whole path of one superblock: one list of steps. The paths of its edges are prefixes of it.
#[derive(Debug)]
pub struct Paths {
    /// The instructions.
    pub steps: Box<[Step]>,
    /// The lowest address of an instruction.
    pub(super) low: u64,
    /// The highest address of an instruction.
    pub(super) high: u64,
}

impl Paths {
    /// Creates the path with these instructions. Without any, its lowest and highest addresses are
    /// 0.
    pub fn new(steps: &[Step]) -> Self {
        let addresses = || steps.iter().map(|step| step.ip);
        let (low, high) = (addresses().min().unwrap_or(0), addresses().max().unwrap_or(0));
        Self { steps: steps.into(), low, high }
    }
}

/// The tables that all encoders of a process share. An edge's number is its index.
#[derive(Debug, Default)]
pub struct Dictionary {
    edges: Vec<Edge>,
    pushes: Vec<u64>,
    quiet_jumps: Vec<Jump>,
    /// By the number of the superblock; empty if no encoder needs them.
    paths: Vec<Paths>,
    /// The compact forms of `edges`, at the same indices.
    pub(super) compact: Vec<CompactEdge>,
}

/// The treatment of a record by the encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Adds TNT bits and return addresses, and continues at the target.
    Direct,
    /// Adds TNT bits, return addresses, and a return.
    Return,
    /// Adds TNT bits, return addresses, and an indirect branch.
    Indirect,
    /// Adds nothing to the trace, and continues at the target, but for a loop, as the module says.
    Quiet,
    /// Any other record with a known target, neither plain nor quiet.
    Slow,
    /// A return or indirect branch that is not plain.
    SlowIndirect,
    /// A return from a system call, whose record holds the time.
    Timed,
}

impl Treatment {
    /// Returns true if the compact form describes the record in full, so that `encoder::hot`
    /// encodes it alone. False for a quiet record, which only a chain may contain.
    #[inline]
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Direct | Self::Return | Self::Indirect)
    }

    /// Returns true if only the next record determines where control goes: for a return or indirect
    /// branch.
    #[inline]
    pub(super) fn is_indirect(self) -> bool {
        matches!(self, Self::Return | Self::Indirect | Self::SlowIndirect)
    }
}

/// The compact form of an edge, with the fields of [`Edge`]. Only if `treatment` is a plain one
/// does it describe the edge in full.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactEdge {
    pub(super) start: u64,
    pub(super) target: u64,
    pub(super) first_push: u32,
    pub(super) bits: u16,
    pub(super) instructions: u16,
    pub(super) bit_count: u8,
    pub(super) pushes: u8,
    pub(super) peak: u8,
    pub(super) treatment: Treatment,
}

impl Dictionary {
    /// Adds the parts of new superblocks. Edges get the next numbers, in order. The first edge of
    /// all, with number 0, means no edge: its records are invalid.
    pub fn learn(&mut self, news: NewEdges) {
        self.compact.extend(news.edges.iter().map(CompactEdge::of));
        // Number 0 is no edge. The slow path rejects it.
        self.compact.iter_mut().take(1).for_each(|none| none.treatment = Treatment::Slow);
        self.edges.extend(news.edges);
        self.pushes.extend(news.pushes);
        self.quiet_jumps.extend(news.quiet_jumps);
        self.paths.extend(news.paths);
    }

    /// Returns the whole path of the superblock that an edge leaves, which may go on after the
    /// edge's own path; `None` if it is not known.
    pub(super) fn path_of(&self, edge: &Edge) -> Option<&Paths> {
        self.paths.get(edge.superblock as usize)
    }

    /// Returns an edge by its number; `None` for an unknown number, and for 0, which unwritten
    /// memory contains.
    pub(super) fn edge(&self, number: u32) -> Option<&Edge> {
        self.edges.get(number as usize).filter(|_| number != 0)
    }

    /// Returns the return addresses that a path leaves on the stack, oldest first; none if the
    /// dictionary lacks them.
    pub(super) fn pushes_of(&self, edge: &Edge) -> &[u64] {
        self.pushes_at(edge.first_push, edge.pushes)
    }

    /// Returns `count` return addresses from index `first` on; none if there are fewer.
    pub(super) fn pushes_at(&self, first: u32, count: u8) -> &[u64] {
        let first = first as usize;
        self.pushes.get(first..first + usize::from(count)).unwrap_or_default()
    }

    /// Returns the direct jumps and calls after a path's last TNT bit, in the order of their
    /// execution; none if the dictionary lacks them.
    pub(super) fn quiet_jumps_of(&self, edge: &Edge) -> &[Jump] {
        let first = edge.first_quiet as usize;
        let jumps = first..first + usize::from(edge.quiet_jumps);
        self.quiet_jumps.get(jumps).unwrap_or_default()
    }
}

impl CompactEdge {
    /// Returns the compact form of an edge. If its bits do not fit, it has 0 in their place: such
    /// an edge is not plain.
    fn of(edge: &Edge) -> Self {
        Self {
            start: edge.start,
            target: edge.target,
            first_push: edge.first_push,
            bits: u16::try_from(edge.bits).unwrap_or(0),
            instructions: edge.instructions,
            bit_count: edge.bit_count,
            pushes: edge.pushes,
            peak: edge.peak,
            treatment: treatment_of(edge),
        }
    }
}

/// Returns the treatment of an edge's records by the encoder.
fn treatment_of(edge: &Edge) -> Treatment {
    let slow = if edge.kind.is_indirect() { Treatment::SlowIndirect } else { Treatment::Slow };
    if edge.kind == EdgeKind::SyscallReturn {
        return Treatment::Timed;
    }
    // The first record after a change of code also reports its time.
    if edge.since != 0 || edge.bit_count > PLAIN_BITS {
        return slow;
    }
    // A path without a bit, or one whose tail (after its last bit) is a loop, may need a packet.
    if edge.kind == EdgeKind::Direct && edge.bit_count == 0 {
        return Treatment::Quiet;
    }
    let target_is_in_quiet_tail = edge.quiet_low <= edge.target && edge.target <= edge.quiet_high;
    match edge.kind {
        EdgeKind::Direct if target_is_in_quiet_tail => slow,
        EdgeKind::Direct => Treatment::Direct,
        EdgeKind::Return => Treatment::Return,
        EdgeKind::Indirect => Treatment::Indirect,
        EdgeKind::Syscall | EdgeKind::SyscallReturn => slow,
    }
}
