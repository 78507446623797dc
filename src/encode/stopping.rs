//! Finds the end of a thread's trace in its records: a branch to code that ends the trace
//! (`TraceStop`). A ring searches each full buffer for it, since the records up to there must not
//! be overwritten by later ones.

use super::ranges::Ranges;
use super::thread_buffers::ThreadBuffers;
use crate::engine::Shared;
use crate::translate::{Edge, EdgeKind, Outcome, Step, Translator};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns true if the records in the thread's buffer in use, up to `pointer`, have a branch to
/// code that ends the trace; false if an unknown edge comes first. Stores the kind of the last
/// record read in `buffers` for the next call, whose first record shows the target of an indirect
/// one. So call this for each full buffer, in order. Panics if `pointer` is beyond the memory.
pub(super) fn leads_to_trace_stop(
    code: &Translator<Arc<Shared>>,
    ranges: &Ranges,
    shared: &Shared,
    buffers: &mut ThreadBuffers,
    pointer: u64,
) -> bool {
    if !ranges.has_trace_stop() {
        return false;
    }
    let start = buffers.area.buffer(buffers.current);
    let mut bytes = vec![0; usize::try_from(pointer.saturating_sub(start)).unwrap_or(0)];
    shared.read(buffers.area.offset_of(start), &mut bytes);
    let mut known = HashMap::new();
    let mut rest = &bytes[..];
    while let Some((number, following)) = rest.split_first_chunk::<4>() {
        let number = u32::from_le_bytes(*number);
        let Some(edge) = code.edges_from(number as usize).first() else { break };
        rest = following.get(edge.kind.record_bytes() - 4..).unwrap_or_default();
        let before = buffers.last_record.replace(edge.kind);
        let is_target = before.is_some_and(EdgeKind::is_indirect);
        if is_target && edge.kind != EdgeKind::SyscallReturn && ranges.is_trace_stop(edge.start) {
            return true;
        }
        let stops = || direct_targets(edge, &code.path_of(edge)).any(|ip| ranges.is_trace_stop(ip));
        if *known.entry(number).or_insert_with(stops) {
            return true;
        }
    }
    false
}

/// Returns the addresses to which the direct branches of an edge's path, and its return from a
/// system call, lead.
fn direct_targets<'a>(edge: &'a Edge, path: &'a [Step]) -> impl Iterator<Item = u64> + 'a {
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
