//! LLDB's `thread trace`: the packets of threads up to their current positions, for LLDB's own
//! decoder (lldb/docs/lldb-gdb-remote.txt, "jLLDBTrace..."). The trace exists from the beginning of
//! the history: starting and stopping it have no effect.

use super::frame;
use crate::common::Tid;
use crate::session::{Error, Run, Session};
use serde_json::{Value, json};

/// LLDB's name for the packets of a thread.
const KIND: &str = "iptTrace";
/// LLDB's name for the description of the CPU.
const CPU: &str = "procfsCpuInfo";
/// The CPU to describe if the traced one is unknown, one without errata: family, model and
/// stepping.
const PLAIN_CPU: (u16, u8, u8) = (6, 0x7e, 5);
/// The maximum size of a trace that is sent, since it is copied.
const TRACE_LIMIT_BYTES: usize = 1 << 28;

/// Returns the reply to a `jLLDBTrace` packet: an error for a trace that is not of Intel PT or does
/// not exist, and empty for an unknown request. Returns `None` for other packets. `Start` may take
/// long: `interrupted` is called regularly, and ends that with an error if it returns true.
pub(super) fn answer<R: Run>(
    session: &Session<R>,
    body: &[u8],
    interrupted: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let request = body.strip_prefix(b"jLLDBTrace")?;
    let (name, argument) = match request.iter().position(|byte| *byte == b':') {
        Some(at) => (&request[..at], &request[at + 1..]),
        None => (request, &[][..]),
    };
    let argument: Value = serde_json::from_slice(&frame::unescape(argument)).unwrap_or_default();
    let is_pt = argument["type"] == "intel-pt";
    let reply = match name {
        b"Supported" => supported(session),
        _ if !is_pt => return Some(b"E.only Intel PT is traced".to_vec()),
        b"Start" => {
            let prepared = session.run().prepare_path(&mut |_, _| !interrupted());
            let refused = |error: Error| frame::error_text(&error.to_string());
            return Some(prepared.map_or_else(refused, |()| b"OK".to_vec()));
        }
        b"Stop" => return Some(b"OK".to_vec()),
        b"GetState" => Some(state(session).to_string().into_bytes()),
        b"GetBinaryData" => data(session, &argument),
        _ => return Some(Vec::new()),
    };
    let missing = || b"E.there is no such trace".to_vec();
    Some(reply.map_or_else(missing, |reply| frame::escape(&reply)))
}

/// Returns the description of the trace; `None` if no thread has a trace. Exact recordings have
/// one.
fn supported<R: Run>(session: &Session<R>) -> Option<Vec<u8>> {
    let has_trace = |tid| session.run().pt_trace(tid, 0).is_some();
    // The path of an exact recording is made when its trace is started.
    let traced = session.run().is_exact() || session.threads().iter().any(|t| has_trace(t.tid));
    let description = "the recorded Intel PT packets";
    let reply = json!({ "name": "intel-pt", "description": description });
    traced.then(|| reply.to_string().into_bytes())
}

/// Returns the sizes of the traces of the threads that exist now, and of the description of the
/// CPU.
fn state<R: Run>(session: &Session<R>) -> Value {
    let threads = session.threads();
    let traced = threads.iter().filter_map(|thread| {
        let size = session.run().pt_trace(thread.tid, 0)?.len();
        Some(json!({ "tid": thread.tid.0, "binaryData": [{ "kind": KIND, "size": size }] }))
    });
    let traced: Vec<Value> = traced.collect();
    let cpu = json!([{ "kind": CPU, "size": cpu(session).len() }]);
    json!({ "tracedThreads": traced, "processBinaryData": cpu, "usingCgroupFiltering": false })
}

/// Returns the whole trace of a thread, or the description of the CPU; `None` for other kinds, for
/// a thread without a trace, and for a trace larger than [`TRACE_LIMIT_BYTES`].
fn data<R: Run>(session: &Session<R>, argument: &Value) -> Option<Vec<u8>> {
    if argument["kind"] == CPU {
        return Some(cpu(session).into_bytes());
    }
    let tid = argument["tid"].as_i64().and_then(|tid| i32::try_from(tid).ok()).map(Tid)?;
    let trace = session.run().pt_trace(tid, 0).filter(|_| argument["kind"] == KIND)?;
    (trace.len() <= TRACE_LIMIT_BYTES).then_some(trace)
}

/// Returns the traced CPU in the format of /proc/cpuinfo; [`PLAIN_CPU`] if it is unknown.
fn cpu<R: Run>(session: &Session<R>) -> String {
    let (family, model, stepping) = session.run().pt_cpu().unwrap_or(PLAIN_CPU);
    format!(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: Intel PT\nstepping\t: {stepping}\n\n"
    )
}
