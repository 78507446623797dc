//! Stop replies: why the run stands where it stands, with the registers that every client asks for
//! next.

use super::supported::ClientFeatures;
use super::{hex, thread_id};
use crate::session::{BreakpointKind, Edge, Register, Run, Session, Stop, StopReason};
use std::fmt::Write;

const SIGINT: u8 = 2;
const SIGTRAP: u8 = 5;

/// Read after every stop: sending them along spares round trips.
const EXPEDITED: [Register; 3] = [Register::RIP, Register::RSP, Register::RBP];

/// The reply for a stop.
pub(super) fn format<R: Run>(
    session: &Session<R>,
    stop: Stop,
    client: ClientFeatures,
    edge_as_trap: bool,
) -> Vec<u8> {
    let tid = thread_id::format(stop.thread);
    let (signal, description) = match signal(session, stop) {
        // LLDB would deliver the signal on resuming, and refuses to while going backwards.
        number if client.lldb && number != SIGTRAP => (SIGTRAP, describe(session)),
        number => (number, String::new()),
    };
    let mut reply = format!("T{signal:02x}thread:{tid};{description}");
    reply.push_str(match stop.reason {
        StopReason::Breakpoint(BreakpointKind::Software) if client.swbreak => "swbreak:;",
        StopReason::Breakpoint(BreakpointKind::Hardware) if client.hwbreak => "hwbreak:;",
        StopReason::Edge(Edge::Begin) if !edge_as_trap => "replaylog:begin;",
        StopReason::Edge(Edge::End) if !edge_as_trap => "replaylog:end;",
        _ => "",
    });
    let registers = session.run().registers(stop.thread);
    for register in EXPEDITED {
        if let Some(bytes) = registers.bytes(register) {
            // Writing to a string cannot fail.
            let _ = write!(reply, "{:02x}:{};", register.number(), hex::encode(&bytes));
        }
    }
    reply.into_bytes()
}

/// LLDB's way of showing why a thread stopped, in words.
fn describe<R: Run>(session: &Session<R>) -> String {
    let words = match session.last_stop().reason {
        StopReason::Interrupted => "interrupted".to_owned(),
        _ => session.run().describe().ending.to_string(),
    };
    format!("reason:exception;description:{};", hex::encode(words.as_bytes()))
}

/// gdb's number of the signal to show.
fn signal<R: Run>(session: &Session<R>, stop: Stop) -> u8 {
    match stop.reason {
        StopReason::Interrupted => SIGINT,
        StopReason::Arrived => match session.run().fatal_signal() {
            Some((tid, number)) if tid == stop.thread => gdb_number(number),
            _ => SIGTRAP,
        },
        _ => SIGTRAP,
    }
}

/// gdb numbers signals in its own way, whatever the system: `include/gdb/signals.def`. What has no
/// number there is `SIGTRAP`, which gdb does not print.
fn gdb_number(linux: i32) -> u8 {
    const NUMBERS: [u8; 31] = [
        1, 2, 3, 4, 5, 6, 10, 8, 9, 30, 11, 31, 13, 14, 15, SIGTRAP, 20, 19, 17, 18, 21, 22, 16,
        24, 25, 26, 27, 28, 23, 32, 12,
    ];
    let index = usize::try_from(linux).ok().and_then(|number| number.checked_sub(1));
    index.and_then(|index| NUMBERS.get(index)).copied().unwrap_or(SIGTRAP)
}
