//! Stop replies: the reason of a stop, with the registers that every client reads next.

use super::signals::Numbering;
use super::supported::ClientFeatures;
use super::{hex, numbers, thread_id};
use crate::common::Tid;
use crate::session::{
    Access, BreakpointKind, Edge, Ending, Register, Run, Session, Stop, StopReason, Watchpoint,
    signal_name,
};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

const SIGINT: u8 = 2;
const SIGTRAP: u8 = 5;

/// Registers that clients read after every stop: sending them along saves round trips.
const EXPEDITED: [Register; 3] = [Register::RIP, Register::RSP, Register::RBP];

/// Returns the reply for a stop, in terms that the client understands: a reason that it does not
/// know is a plain trap. `X` or `W` reports the end of a process, with status 0 if it is unknown.
/// With `edge_as_trap`, the edges of the history are plain traps, too.
pub(super) fn format<R: Run>(
    session: &Session<R>,
    stop: Stop,
    client: ClientFeatures,
    edge_as_trap: bool,
) -> Vec<u8> {
    match stop.reason {
        StopReason::Gone(Ending::Signal(number)) => {
            return of_process(
                format!("X{:02x}", client.signals.client_number(number)),
                stop,
                client,
            );
        }
        StopReason::Gone(ending) => {
            let status = if let Ending::Exited(status) = ending { status & 0xff } else { 0 };
            return of_process(format!("W{status:02x}"), stop, client);
        }
        StopReason::NoneRuns if client.no_resumed => return b"N".to_vec(),
        _ => {}
    }
    let tid = client.thread_id(session, stop.thread);
    let (signal, description) = match signal(session, stop, client.signals) {
        // LLDB would deliver the signal on resuming, and refuses to while going backwards.
        number if client.lldb && number != SIGTRAP => (SIGTRAP, lldb_reason(session, stop)),
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
    if let StopReason::Watchpoint(Watchpoint { addr, access, .. }) = stop.reason {
        let name = match access {
            Access::Write => "watch",
            Access::Read => "rwatch",
            Access::Any => "awatch",
        };
        let _ = write!(reply, "{name}:{:x};", addr.0);
    }
    match stop.reason {
        // Writes to a string cannot fail.
        StopReason::Call(number) => {
            let _ = write!(reply, "syscall_entry:{number:x};");
        }
        StopReason::CallReturn(number) => {
            let _ = write!(reply, "syscall_return:{number:x};");
        }
        StopReason::Forked(child) if client.forks.fork => {
            let _ = write!(reply, "fork:{};", thread_id::format_with_process(child, Tid(child.0)));
        }
        StopReason::Vforked(child) if client.forks.vfork => {
            let _ = write!(reply, "vfork:{};", thread_id::format_with_process(child, Tid(child.0)));
        }
        StopReason::VforkDone if client.lldb => reply.push_str("reason:vforkdone;"),
        StopReason::VforkDone if client.forks.vfork => reply.push_str("vforkdone:;"),
        _ => {}
    }
    if client.lists_threads {
        let threads: Vec<String> =
            session.threads().iter().map(|thread| client.thread_id(session, thread.tid)).collect();
        let _ = write!(reply, "threads:{};", threads.join(","));
    }
    if stop.reason == StopReason::Executed && client.exec_events {
        let program = session.run().exec_file().unwrap_or_default();
        // Writes to a string cannot fail.
        let _ = write!(reply, "exec:{};", hex::encode(program.as_os_str().as_bytes()));
    }
    expedite(session, stop.thread, &mut reply);
    reply.into_bytes()
}

/// Returns the reply `end` for the end of a process, with the process for clients that know
/// several. Its ID is that of its first thread, which `stop` names.
fn of_process(end: String, stop: Stop, client: ClientFeatures) -> Vec<u8> {
    let process = format!(";process:{:x}", stop.thread.0);
    (if client.multiprocess { end + &process } else { end }).into_bytes()
}

/// Returns a stop reply without signal and reason, for a thread that did not cause the stop, or a
/// stop whose reason gdb must not see.
pub(super) fn without_reason<R: Run>(
    session: &Session<R>,
    thread: Tid,
    client: ClientFeatures,
) -> Vec<u8> {
    let mut reply = format!("T00thread:{};", client.thread_id(session, thread));
    expedite(session, thread, &mut reply);
    reply.into_bytes()
}

/// Appends the known registers of [`EXPEDITED`] to a reply.
fn expedite<R: Run>(session: &Session<R>, thread: Tid, reply: &mut String) {
    let registers = session.run().registers(thread);
    for register in EXPEDITED {
        if let Some((number, bytes)) = numbers::number(register).zip(registers.bytes(register)) {
            // Writes to a string cannot fail.
            let _ = write!(reply, "{number:02x}:{};", hex::encode(&bytes));
        }
    }
}

/// Returns LLDB's fields with the reason of `stop` in words: Ctrl-C, a signal, or else the signal
/// that ended the run. Must be called only for a stop whose [`signal`] is not SIGTRAP: any other
/// gets the ending of the run.
fn lldb_reason<R: Run>(session: &Session<R>, stop: Stop) -> String {
    let words = match stop.reason {
        StopReason::Interrupted => "interrupted".to_owned(),
        StopReason::Signal(number) => match signal_name(number) {
            Some(name) => format!("signal {name}"),
            None => format!("signal {number}"),
        },
        // A thread has moved to the signal that ended the run.
        _ => session.run().describe().ending.to_string(),
    };
    format!("reason:exception;description:{};", hex::encode(words.as_bytes()))
}

/// Returns the client's number of the signal to show: that of the run's fatal signal for a thread
/// that has moved to it, and SIGTRAP for a stop that no signal caused.
fn signal<R: Run>(session: &Session<R>, stop: Stop, numbering: Numbering) -> u8 {
    match stop.reason {
        StopReason::Interrupted => SIGINT,
        StopReason::Signal(number) => numbering.client_number(number),
        StopReason::Moved => match session.run().fatal_signal() {
            Some((tid, number)) if tid == stop.thread => numbering.client_number(number),
            _ => SIGTRAP,
        },
        _ => SIGTRAP,
    }
}
