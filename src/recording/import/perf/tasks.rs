//! The threads that the traces of CPUs can contain: perf opens Intel PT on each CPU for all
//! threads, or for the given threads and their descendants.

use crate::common::Tid;
use crate::sideband::perf_data::{PerfData, PerfEvent, PerfRecord};
use std::collections::BTreeSet;

/// Returns the threads that the traces can contain; `None` if they can contain any thread, or if
/// records were lost.
///
/// Each area names the first of the threads that perf traces. The kernel names a thread when it
/// first enables its event (`PERF_RECORD_ITRACE_START`) and, with each piece, the thread that wrote
/// it (`PERF_RECORD_AUX`). Lost records may have named others.
pub(super) fn traced_tasks(data: &PerfData) -> Option<Vec<Tid>> {
    let named = data.aux_traces.iter().map(|area| area.tid);
    let mut tasks = named.collect::<Option<BTreeSet<Tid>>>()?;
    for record in &data.records {
        match &record.event {
            PerfEvent::Lost(_) => return None,
            PerfEvent::ItraceStart { tid, .. } => drop(tasks.insert(*tid)),
            PerfEvent::Aux { .. } => tasks.extend(record.id.task.map(|(_, tid)| tid)),
            _ => {}
        }
    }
    add_descendants(data, &mut tasks);
    Some(tasks.into_iter().collect())
}

/// Adds the threads created by traced ones, which inherit the event.
fn add_descendants(data: &PerfData, tasks: &mut BTreeSet<Tid>) {
    let mut forks: Vec<_> = data.records.iter().filter_map(fork).collect();
    forks.sort_by_key(|(time_ns, ..)| *time_ns);
    for (_, parent, child) in forks {
        if tasks.contains(&parent) {
            tasks.insert(child);
        }
    }
}

fn fork(record: &PerfRecord) -> Option<(u64, Tid, Tid)> {
    let PerfEvent::Fork { child, parent } = record.event else { return None };
    Some((record.id.time_ns.unwrap_or(0), parent.1, child.1))
}
