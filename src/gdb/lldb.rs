//! Packets that LLDB sends and gdb does not: about the host, the process, memory regions, and all
//! threads at once.

use super::signals::Numbering;
use super::thread_id::{self, ThreadChoice};
use super::{frame, hex};
use crate::common::{Addr, Tid, Visible};
use crate::session::{Protection, Run, Session, Stop, StopReason, ThreadInfo};
use serde_json::{Value, json};
use std::fmt::Write;

/// LLDB's target triple of x86-64 Linux programs.
const TRIPLE: &str = "x86_64-pc-linux-gnu";

/// Returns the reply to a query of LLDB, an error for a malformed address; `None` for other
/// packets, and for `qProcessInfo` without a program.
pub(super) fn answer<R: Run>(
    session: &Session<R>,
    signals: Numbering,
    body: &[u8],
) -> Option<Vec<u8>> {
    let reply = match body {
        b"qHostInfo" => host_info(),
        b"qProcessInfo" => process_info(session)?,
        b"jThreadsInfo" => threads_info(session, signals),
        _ => {
            let addr = body.strip_prefix(b"qMemoryRegionInfo:")?;
            hex::number(addr)
                .map_or_else(|| "E01".to_owned(), |addr| memory_region(session, Addr(addr)))
        }
    };
    // LLDB unescapes every reply.
    Some(frame::escape(reply.as_bytes()))
}

/// Returns the reply with this kind of machine, the same for all runs.
fn host_info() -> String {
    let triple = hex::encode(TRIPLE.as_bytes());
    format!("triple:{triple};ptrsize:8;endian:little;ostype:linux;vendor:pc;addressing_bits:47;")
}

/// Returns the reply with the process that is debugged; `None` if there is none.
fn process_info<R: Run>(session: &Session<R>) -> Option<String> {
    let pid = session.run().process()?;
    let triple = hex::encode(TRIPLE.as_bytes());
    Some(format!("pid:{:x};triple:{triple};ptrsize:8;endian:little;ostype:linux;vendor:pc;", pid.0))
}

/// Returns the reply with the mapping at an address, or with the unmapped range around it, which
/// has no permissions. Empty if the mappings are unknown.
fn memory_region<R: Run>(session: &Session<R>, addr: Addr) -> String {
    let Some(regions) = session.run().regions() else { return String::new() };
    let inside = regions.iter().find(|region| region.range.contains(addr));
    let Some(region) = inside else {
        let before = regions.iter().filter(|region| region.range.end <= addr);
        let start = before.map(|region| region.range.end.0).max().unwrap_or(0);
        let following = regions.iter().filter(|region| region.range.start > addr);
        let end = following.map(|region| region.range.start.0).min().unwrap_or(u64::MAX);
        return format!("start:{start:x};size:{:x};", end - start);
    };
    let (start, size) = (region.range.start.0, region.range.end.0 - region.range.start.0);
    let Protection { read, write, execute } = region.protection;
    let mut reply = format!("start:{start:x};size:{size:x};permissions:");
    for (letter, allowed) in [('r', read), ('w', write), ('x', execute)] {
        reply.extend(allowed.then_some(letter));
    }
    reply.push(';');
    if !region.name.is_empty() {
        // Writes to a string cannot fail.
        let _ = write!(reply, "name:{};", hex::encode(region.name.as_bytes()));
    }
    reply
}

/// Returns all threads as the JSON of `jThreadsInfo`. Only the thread of the last stop has a reason
/// and a signal.
fn threads_info<R: Run>(session: &Session<R>, signals: Numbering) -> String {
    let last = session.last_stop();
    let entry = |thread: &ThreadInfo| {
        let mut entry = json!({ "tid": thread.tid.0, "reason": "none" });
        if !thread.name.is_empty() {
            entry["name"] = Visible(&thread.name).to_string().into();
        }
        if thread.tid == last.thread {
            entry["reason"] = reason(last).into();
            entry["signal"] = signal(last, signals).into();
        }
        entry
    };
    let entries: Vec<Value> = session.threads().iter().map(entry).collect();
    Value::Array(entries).to_string()
}

/// Returns LLDB's word for the reason of a stop; `exception` for those without one.
fn reason(stop: Stop) -> &'static str {
    match stop.reason {
        StopReason::Breakpoint(_) => "breakpoint",
        StopReason::Watchpoint(_) => "watchpoint",
        StopReason::Step => "trace",
        StopReason::Signal(_) | StopReason::Interrupted => "signal",
        StopReason::Executed => "exec",
        StopReason::Forked(_) => "fork",
        StopReason::Vforked(_) => "vfork",
        StopReason::VforkDone => "vforkdone",
        _ => "exception",
    }
}

/// Returns the client's number of the signal to show: SIGTRAP for a stop that no signal caused.
fn signal(stop: Stop, signals: Numbering) -> u8 {
    match stop.reason {
        StopReason::Signal(number) => signals.client_number(number),
        StopReason::Interrupted => 2,
        _ => 5,
    }
}

/// Splits a packet about the state of one thread ([`concerns_one_thread`]) into the plain packet
/// and the thread named at its end (`;thread:TID;`). Returns `None` for other packets, and for one
/// without a single thread there.
pub(super) fn split_thread_suffix(body: &[u8]) -> Option<(&[u8], Tid)> {
    const THREAD: &[u8] = b";thread:";
    let at = body.windows(THREAD.len()).position(|window| window == THREAD)?;
    let (plain, id) = (&body[..at], &body[at + THREAD.len()..]);
    match thread_id::parse(id.strip_suffix(b";").unwrap_or(id)) {
        Some(ThreadChoice::One(tid)) if concerns_one_thread(body) => Some((plain, tid)),
        _ => None,
    }
}

/// Returns true for packets that read or write the registers or the siginfo of one thread, named or
/// chosen before.
pub(super) fn concerns_one_thread(body: &[u8]) -> bool {
    matches!(body, [b'g' | b'G' | b'p' | b'P', ..])
        || body.starts_with(b"QSaveRegisterState")
        || body.starts_with(b"qXfer:siginfo:")
}

/// Parses a thread ID, as in LLDB's `qThreadStopInfo`; `None` if it is malformed, or does not name
/// a single thread.
pub(super) fn single_thread(id: &[u8]) -> Option<Tid> {
    match thread_id::parse(id) {
        Some(ThreadChoice::One(tid)) => Some(tid),
        _ => None,
    }
}
