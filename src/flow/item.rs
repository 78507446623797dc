//! What the decoder yields: runs of instructions, events, gaps. Plain values, no logic.

use crate::common::{Addr, Tsc};
use crate::insn::ExecMode;
use crate::pt::{Packet, PacketError, PayloadSize};
use thiserror::Error;

/// One step of a decoded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowItem {
    /// Instructions that were executed.
    Block(Span),
    /// Something that happened between two instructions.
    Event(Event),
    /// Here the path is lost.
    Gap(Gap),
}

/// Instructions executed in a straight line, up to and including a branch at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first instruction.
    pub ip: Addr,
    /// The address of the last one.
    pub last: Addr,
    /// How many, at least 1. A REP-prefixed instruction counts once.
    pub insns: u32,
    /// Width of the code.
    pub mode: ExecMode,
    /// How control left.
    pub exit: Exit,
}

/// How control left a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// Straight on, the last instruction being no branch. Also where an event cut the run.
    Next,
    /// A conditional branch that was taken.
    Taken,
    /// A conditional branch that was not taken.
    NotTaken,
    /// A direct jump.
    Jmp,
    /// A direct or indirect near call.
    Call,
    /// An indirect jump.
    JmpIndirect,
    /// A near return.
    Ret,
    /// A far call, software interrupt or system call.
    FarCall,
    /// A far return.
    FarReturn,
    /// A far jump.
    FarJmp,
    /// A branch, but the trace does not say which way it went.
    Unknown,
}

/// Something that happened between two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where in the trace the packet is, in bytes.
    pub offset: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What an [`Event`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Tracing goes on at `ip` (TIP.PGE).
    Enabled {
        /// The next instruction.
        ip: Addr,
    },
    /// A branch, or MOV CR3, left the traced code (TIP.PGD).
    Disabled {
        /// The branch, which is the last instruction of the span before.
        at: Addr,
        /// Where it went, if the packet says.
        ip: Option<Addr>,
    },
    /// Something asynchronous, such as an interrupt or a signal, left the traced code.
    AsyncDisabled {
        /// The instruction that was about to execute.
        at: Addr,
        /// Where control went, if the packet says.
        ip: Option<Addr>,
    },
    /// Something asynchronous diverted control inside the traced code.
    AsyncBranch {
        /// The instruction that was about to execute.
        from: Addr,
        /// The instruction that executes next.
        to: Addr,
    },
    /// Packets were lost in an internal buffer overflow.
    Overflow {
        /// Where tracing went on, if it did at once.
        ip: Option<Addr>,
    },
    /// The width of the code changed.
    ExecMode {
        /// The new width.
        mode: ExecMode,
    },
    /// RFLAGS.IF changed, where event trace is on.
    Interrupts {
        /// Whether interrupts are enabled now.
        enabled: bool,
    },
    /// A transaction began, was committed (both clear) or aborted.
    Tsx {
        /// The instruction that was about to execute, if tracing is on.
        ip: Option<Addr>,
        /// A transaction runs.
        in_tx: bool,
        /// The transaction was aborted.
        aborted: bool,
    },
    /// CR3 was written.
    Paging {
        /// CR3, bits 51 to 5.
        cr3: u64,
        /// VMX non-root operation.
        non_root: bool,
    },
    /// Another VMCS is current.
    Vmcs {
        /// Its physical address.
        base: u64,
    },
    /// A `TraceStop` range was entered; the trace ends until software starts it anew.
    Stop,
    /// PTWRITE gave a value.
    Ptwrite {
        /// The instruction, if known.
        ip: Option<Addr>,
        /// The operand.
        value: u64,
        /// The operand's size.
        size: PayloadSize,
    },
    /// The time-stamp counter at this point of the trace.
    Tsc(Tsc),
    /// The core:bus ratio changed.
    Cbr(u8),
    /// Any other packet that tells of the machine: power, event trace, PEBS, maintenance, trigger.
    Note {
        /// The packet.
        packet: Packet,
        /// The instruction that was about to execute, if a FUP says.
        ip: Option<Addr>,
    },
}

/// A place where the path is lost until the next PSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("offset {offset:#x} last ip {} {reason}", last_ip_text(*last_ip))]
pub struct Gap {
    /// Where in the trace the fault was met, in bytes.
    pub offset: u64,
    /// The instruction that would have come next, if known.
    pub last_ip: Option<Addr>,
    /// What is wrong.
    pub reason: GapReason,
}

fn last_ip_text(ip: Option<Addr>) -> String {
    ip.map_or_else(|| "unknown".into(), |ip| ip.to_string())
}

/// Why the path is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GapReason {
    /// Bytes that are no packet.
    #[error("{0}")]
    Packet(PacketError),
    /// A packet that cannot stand here.
    #[error("unexpected {} packet", packet_name(.0))]
    Unexpected(Packet),
    /// The image has no code there.
    #[error("no code is known at {0}")]
    NoCode(Addr),
    /// The bytes there are no instruction.
    #[error("the code at {0} is no instruction")]
    BadInsn(Addr),
    /// The branch needs a packet of another kind than the one that is there.
    #[error("the branch at {0} has no packet")]
    NoBranchPacket(Addr),
    /// A compressed return has nothing to return to.
    #[error("the return at {0} has no call")]
    ReturnWithoutCall(Addr),
    /// The bit of a compressed return says not taken.
    #[error("the return at {0} is marked as not taken")]
    ReturnNotTaken(Addr),
    /// The code does not lead to the address that a packet gives.
    #[error("the code does not lead to {0}")]
    NotReached(Addr),
    /// A PTW packet has no PTWRITE to belong to.
    #[error("the code does not lead to a PTWRITE")]
    NoPtwrite,
    /// The code leads nowhere that a packet could bind to.
    #[error("the code runs on without a branch that the packet could belong to")]
    Endless,
    /// A PSB+ says that tracing is on where it was off, or the reverse.
    #[error("the state at the PSB contradicts the trace before it")]
    PsbContradicts,
    /// A packet gives no address where one is needed.
    #[error("{} packet without an address", packet_name(.0))]
    NoAddress(Packet),
    /// The trace has no PSB to start at.
    #[error("no PSB to start at")]
    NoPsb,
    /// The trace is of several threads, and nothing tells which of them executed what comes here.
    #[error("the context switches do not tell which thread ran")]
    ThreadUnknown,
}

/// The packet's name as the SDM writes it, for messages.
const fn packet_name(packet: &Packet) -> &'static str {
    match packet {
        Packet::Psb => "PSB",
        Packet::PsbEnd => "PSBEND",
        Packet::TntShort(_) | Packet::TntLong(_) => "TNT",
        Packet::Tip(_) => "TIP",
        Packet::TipPge(_) => "TIP.PGE",
        Packet::TipPgd(_) => "TIP.PGD",
        Packet::Fup(_) => "FUP",
        Packet::ModeExec { .. } => "MODE.Exec",
        Packet::ModeTsx { .. } => "MODE.TSX",
        Packet::TraceStop => "TraceStop",
        Packet::Ovf => "OVF",
        _ => "other",
    }
}
