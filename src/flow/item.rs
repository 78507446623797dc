//! The items that the decoder yields: spans of executed instructions, events, gaps. Plain values,
//! no logic.

use crate::common::{Addr, Tsc};
use crate::insn::ExecMode;
use crate::pt::{Packet, PacketError, PayloadSize};
use thiserror::Error;

/// One step of a decoded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowItem {
    /// Instructions executed in a straight line.
    Block(Span),
    /// An event between two instructions.
    Event(Event),
    /// The path is lost here.
    Gap(Gap),
}

/// Instructions executed in a straight line; only the last one may be a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first instruction.
    pub ip: Addr,
    /// The address of the last instruction.
    pub last: Addr,
    /// The number of instructions, at least 1. A REP-prefixed instruction counts once.
    pub insns: u32,
    /// Width of the code.
    pub mode: ExecMode,
    /// The exit by which control left the span.
    pub exit: Exit,
}

/// The exit by which control left a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// To the next instruction: the last one is not a branch, or an event ended the span.
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
    /// By a branch whose outcome the trace does not contain.
    Unknown,
}

/// An event between two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The offset of its packet in the trace, in bytes.
    pub offset: u64,
    /// The kind of the event, with its data.
    pub kind: EventKind,
}

/// The kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Tracing is enabled at `ip` (TIP.PGE).
    Enabled {
        /// The address of the next instruction.
        ip: Addr,
    },
    /// A branch, or MOV CR3, left the traced code (TIP.PGD).
    Disabled {
        /// The address of the branch, which is the last instruction of the preceding span.
        at: Addr,
        /// The target of the branch; `None` if the packet does not contain it.
        ip: Option<Addr>,
    },
    /// An asynchronous event, such as an interrupt or a signal, left the traced code.
    AsyncDisabled {
        /// The address of the instruction that was about to execute.
        at: Addr,
        /// The destination; `None` if the packet does not contain it.
        ip: Option<Addr>,
    },
    /// An asynchronous event diverted control inside the traced code.
    AsyncBranch {
        /// The address of the instruction that was about to execute.
        from: Addr,
        /// The address of the instruction that executes next.
        to: Addr,
    },
    /// Packets were lost in an internal buffer overflow.
    Overflow {
        /// The address at which tracing resumed; `None` if it did not resume at once.
        ip: Option<Addr>,
    },
    /// The width of the code changed.
    ExecMode {
        /// The new width.
        mode: ExecMode,
    },
    /// RFLAGS.IF changed; reported if event trace is enabled.
    Interrupts {
        /// True if interrupts are enabled now.
        enabled: bool,
    },
    /// A transaction began (only `in_tx` is true), was committed (both flags are false) or was
    /// aborted.
    Tsx {
        /// The address of the instruction that was about to execute; `None` if tracing is off.
        ip: Option<Addr>,
        /// True if a transaction is running.
        in_tx: bool,
        /// True if the transaction was aborted.
        aborted: bool,
    },
    /// CR3 was written.
    Paging {
        /// CR3, bits 51 to 5.
        cr3: u64,
        /// True in VMX non-root operation.
        non_root: bool,
    },
    /// The current VMCS changed.
    Vmcs {
        /// The physical address of the VMCS.
        base: u64,
    },
    /// A `TraceStop` range was entered; the trace ends until software restarts it.
    Stop,
    /// PTWRITE wrote a value.
    Ptwrite {
        /// The address of the PTWRITE; `None` if it is unknown.
        ip: Option<Addr>,
        /// The operand.
        value: u64,
        /// The operand's size.
        size: PayloadSize,
    },
    /// The time-stamp counter at this point of the trace.
    Tsc(Tsc),
    /// The core:bus ratio at this point of the trace.
    Cbr(u8),
    /// Any other packet about the machine: power, event trace, PEBS, maintenance, trigger.
    Note {
        /// The packet.
        packet: Packet,
        /// The address of the instruction that was about to execute, if a FUP gives it.
        ip: Option<Addr>,
    },
}

/// A place where the path is lost until the next PSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("offset {offset:#x} last ip {} {reason}", last_ip_text(*last_ip))]
pub struct Gap {
    /// The offset of the fault in the trace, in bytes.
    pub offset: u64,
    /// The address of the instruction that would have been next; `None` if it is unknown.
    pub last_ip: Option<Addr>,
    /// The reason why the path is lost.
    pub reason: GapReason,
}

/// Returns an address as text, for messages: `unknown` for `None`.
fn last_ip_text(ip: Option<Addr>) -> String {
    ip.map_or_else(|| "unknown".into(), |ip| ip.to_string())
}

/// The reason why the path is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GapReason {
    /// Bytes that are not a packet.
    #[error("{0}")]
    Packet(PacketError),
    /// A packet that cannot occur at this point.
    #[error("unexpected {} packet", packet_name(.0))]
    Unexpected(Packet),
    /// The image has no code at this address.
    #[error("no code is known at {0}")]
    NoCode(Addr),
    /// The bytes at this address are not an instruction.
    #[error("the code at {0} is not an instruction")]
    BadInsn(Addr),
    /// The branch at this address needs a packet, but the next packet is of another kind.
    #[error("the branch at {0} has no packet")]
    NoBranchPacket(Addr),
    /// The return at this address is compressed, but there is no call to which it can return.
    #[error("the return at {0} has no call")]
    ReturnWithoutCall(Addr),
    /// The return at this address has a TNT bit that says not taken.
    #[error("the return at {0} is marked as not taken")]
    ReturnNotTaken(Addr),
    /// The code does not lead to this address, which is in a packet.
    #[error("the code does not lead to {0}")]
    NotReached(Addr),
    /// The code does not lead to a PTWRITE, which a PTW packet needs.
    #[error("the code does not lead to a PTWRITE")]
    NoPtwrite,
    /// The code leads to no place that a packet could bind to.
    #[error("the code runs on without a branch that the packet could belong to")]
    Endless,
    /// A PSB+ shows that tracing is on where it was off, or the reverse.
    #[error("the state at the PSB contradicts the trace before it")]
    PsbContradicts,
    /// A packet lacks the address that it needs.
    #[error("{} packet without an address", packet_name(.0))]
    NoAddress(Packet),
    /// The trace has no PSB to start at.
    #[error("no PSB to start at")]
    NoPsb,
    /// The trace contains several threads, and it is unknown which of them executed the following
    /// code.
    #[error("the context switches do not show which thread ran")]
    ThreadUnknown,
}

/// Returns the packet's name in the SDM, for messages: `other` for those that seldom are in one.
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
