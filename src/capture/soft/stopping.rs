//! `TraceStop` in a ring: what was kept when a thread's trace ended must not be overwritten by what
//! it does later.

use super::process::Process;
use super::thread::Thread;
use crate::translate::{Edge, EdgeKind, Outcome, Step};
use std::collections::HashMap;

impl Process {
    /// Whether the records in the thread's buffer, up to `pointer`, tell of a branch to code that
    /// ends its trace.
    pub(super) fn comes_to_stop(&self, thread: &mut Thread, pointer: u64) -> bool {
        let ranges = self.resolver.ranges();
        if !ranges.stops() {
            return false;
        }
        let start = thread.area().buffer(thread.buffer);
        let mut bytes = vec![0; usize::try_from(pointer.saturating_sub(start)).unwrap_or(0)];
        self.engine.shared().read(thread.area().offset_of(start), &mut bytes);
        let mut known = HashMap::new();
        let mut rest = &bytes[..];
        while let Some((number, behind)) = rest.split_first_chunk::<4>() {
            let number = u32::from_le_bytes(*number);
            let Some(edge) = self.engine.translator().edges_from(number as usize).first() else {
                break;
            };
            rest = behind.get(edge.kind.record_bytes() - 4..).unwrap_or_default();
            let before = thread.last_record.replace(edge.kind);
            let is_target = before.is_some_and(EdgeKind::is_indirect);
            if is_target && edge.kind != EdgeKind::SyscallReturn && ranges.stop_at(edge.start) {
                return true;
            }
            let stops = || {
                arrivals(edge, self.engine.translator().path_of(edge)).any(|ip| ranges.stop_at(ip))
            };
            if *known.entry(number).or_insert_with(stops) {
                return true;
            }
        }
        false
    }
}

/// Where the direct branches of an edge's path lead.
fn arrivals<'a>(edge: &'a Edge, path: &'a [Step]) -> impl Iterator<Item = u64> + 'a {
    let branches = |outcome| !matches!(outcome, Outcome::Plain | Outcome::NotTaken);
    let inner = path.iter().zip(path.iter().skip(1));
    let inner = inner.filter(move |(step, _)| branches(step.outcome)).map(|(_, next)| next.ip);
    let last = path.last().map(|step| step.outcome);
    let leaves = match (edge.kind, last) {
        (EdgeKind::SyscallReturn, _) => true,
        (EdgeKind::Direct, Some(Outcome::Taken | Outcome::NotTaken)) => edge.bits & 1 != 0,
        (EdgeKind::Direct, _) => edge.branch,
        _ => false,
    };
    inner.chain(leaves.then_some(edge.target))
}
