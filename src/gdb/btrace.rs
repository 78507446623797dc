//! gdb's `record btrace pt`: the raw packets of a thread up to its current position, for gdb's own
//! decoder. Between the commands `record btrace pt` and `record stop`, this replaces reverse
//! execution in gdb.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::target::Served;
use super::{frame, hex};
use crate::common::Tid;
use crate::session::Run;

/// The reported size of the ring buffer. The trace is sent in full, whatever its size.
const RING_BYTES: u64 = 0x1_0000;

/// The branch trace that a client enabled.
pub(super) struct Btrace {
    /// The position at which the trace begins.
    since: u64,
    /// The hash of the trace that the client has of each thread; it has none of other threads.
    sent: HashMap<Tid, u64>,
}

impl Btrace {
    /// Notes that the client gets this trace of a thread. Returns false if the client has it
    /// already.
    fn note_sent(&mut self, tid: Tid, trace: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        trace.hash(&mut hasher);
        let hash = hasher.finish();
        self.sent.insert(tid, hash) != Some(hash)
    }

    /// Forgets which traces the client has, after the client has gone. Tracing stays enabled, and
    /// the next client gets each trace as a whole.
    pub(super) fn forget_client(&mut self) {
        self.sent.clear();
    }
}

/// Handles a `Qbtrace` or `Qbtrace-conf` packet, which starts, stops or configures the trace, and
/// returns the reply: empty for unsupported ones. Accepts any size of the buffer and ignores it.
/// Returns `None` for other packets. To start may take long: `interrupted` is called regularly, and
/// ends that with an error if it returns true.
pub(super) fn answer<R: Run>(
    served: &mut Served<R>,
    body: &[u8],
    interrupted: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    match body {
        b"Qbtrace:pt" => {
            if let Err(error) = served.session.run().prepare_path(&mut |_, _| !interrupted()) {
                return Some(frame::error_text(&error.to_string()));
            }
            // Enabled at the present of a live program, the trace begins there, as gdb expects. In
            // the past it has the whole history.
            let run = served.session.run();
            let now =
                run.position().filter(|position| run.is_live() && position.at == position.total);
            let since = now.map_or(0, |position| position.at);
            served.btrace = Some(Btrace { since, sent: HashMap::new() });
        }
        b"Qbtrace:off" => served.btrace = None,
        _ if body.starts_with(b"Qbtrace-conf:pt:size=") => {}
        _ if body.starts_with(b"Qbtrace") => return Some(Vec::new()),
        _ => return None,
    }
    Some(b"OK".to_vec())
}

/// Returns the document `btrace` of a thread for an annex, and notes that the client gets it. It
/// has the whole history if the client enabled no trace. `None` for an annex other than `all` and
/// `new`, or if the thread has no trace. For `new`, the document contains no packets if the client
/// has them already.
pub(super) fn document<R: Run>(served: &mut Served<R>, tid: Tid, annex: &[u8]) -> Option<Vec<u8>> {
    // PT traces have no deltas: gdb then requests what is new, which is the whole trace or nothing.
    if !matches!(annex, b"all" | b"new") {
        return None;
    }
    let since = served.btrace.as_ref().map_or(0, |btrace| btrace.since);
    let raw = served.session.run().pt_trace(tid, since)?;
    let is_new = served.btrace.as_mut().is_none_or(|btrace| btrace.note_sent(tid, &raw));
    let trace = if is_new || annex == b"all" {
        let config = served.session.run().pt_cpu().map_or_else(String::new, |(family, model, stepping)| {
            format!(
                r#"<pt-config><cpu vendor="GenuineIntel" family="{family}" model="{model}" stepping="{stepping}"/></pt-config>"#
            )
        });
        format!("<pt>{config}<raw>{}</raw></pt>", hex::encode(&raw))
    } else {
        String::new()
    };
    let document =
        format!(r#"<!DOCTYPE btrace SYSTEM "btrace.dtd"><btrace version="1.0">{trace}</btrace>"#);
    Some(document.into_bytes())
}

/// Returns the document `btrace-conf`: with a PT trace if the client has enabled one, else without
/// an element.
pub(super) fn configuration_document<R: Run>(served: &Served<R>) -> Vec<u8> {
    let pt = if served.btrace.is_some() {
        format!(r#"<pt size="{RING_BYTES:#x}"/>"#)
    } else {
        String::new()
    };
    format!(
        r#"<!DOCTYPE btrace-conf SYSTEM "btrace-conf.dtd"><btrace-conf version="1.0">{pt}</btrace-conf>"#
    )
    .into_bytes()
}
