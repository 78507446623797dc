//! The choice of the process of a perf.data file that becomes the recording, the ancestors whose
//! memory it inherited, and its threads.
//!
//! A process begins with a copy of its parent's memory. So before it was forked, the *owner* of its
//! memory is the parent, before that the parent's parent, and so on: the mappings that count at a
//! time are those of the owner then.

use super::super::super::error::ErrorKind;
use super::filter::filtered_files;
use super::note_thread;
use crate::common::{Pid, Tid};
use crate::sideband::perf_data::{AuxInfo, PerfData, PerfEvent, PerfRecord};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The end of the note that a process had children, which are not imported.
pub const CHILDREN_LEFT_OUT: &str = "which are not recorded";

/// The maximum number of processes that an error lists.
const LISTED_LIMIT: usize = 8;

/// A process of a perf.data file.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// The threads, in the order of first occurrence.
    pub(super) threads: Vec<Tid>,
    /// The indices of the records of perf.data, in order of time.
    pub(super) order: Vec<usize>,
    /// The processes that owned the memory before it became this one's, then this one, each with
    /// the index in `order` from which on it owned the memory.
    lineage: Vec<(usize, Pid)>,
}

impl Process {
    /// Returns the process `wanted`; for `None`, the only traced one. Fails if it does not exist,
    /// or if several are traced.
    pub(super) fn choose(
        data: &PerfData,
        info: &AuxInfo,
        wanted: Option<Pid>,
    ) -> Result<Self, ErrorKind> {
        let mut order: Vec<usize> = (0..data.records.len()).collect();
        let time = |number: &usize| data.records.get(*number).and_then(|record| record.id.time_ns);
        order.sort_by_key(|number| time(number).unwrap_or(0));
        let names = names(data);
        let pid = match wanted {
            Some(pid) if names.contains_key(&pid) => pid,
            Some(pid) => return Err(ErrorKind::NoSuchProcess(pid, listed(&names, |_| true))),
            None => only_traced_process(data, info, &names)?,
        };
        let threads = threads_of(data, pid);
        let lineage = lineage(data, &order, pid);
        Ok(Self { pid, threads, order, lineage })
    }

    /// Returns the records in order of time, each with the process that owned the recording's
    /// memory at that time.
    pub(super) fn records<'a>(
        &'a self,
        data: &'a PerfData,
    ) -> impl Iterator<Item = (Pid, &'a PerfRecord)> {
        let records = self.order.iter().enumerate();
        records.filter_map(|(place, number)| {
            let next = self.lineage.partition_point(|(from, _)| *from <= place);
            let owner = next.checked_sub(1).and_then(|last| self.lineage.get(last));
            Some((owner.map_or(self.pid, |(_, pid)| *pid), data.records.get(*number)?))
        })
    }

    /// Returns notes for the user: that children are left out, and that perf lost records.
    pub(super) fn notes(&self, data: &PerfData) -> Vec<String> {
        let mut children = HashSet::new();
        let (mut lost, mut places) = (0_u64, 0_u64);
        for record in &data.records {
            match &record.event {
                PerfEvent::Fork { child, parent }
                    if parent.0 == self.pid && child.0 != self.pid =>
                {
                    children.insert(child.0);
                }
                PerfEvent::Lost(count) => {
                    lost = lost.saturating_add(*count);
                    places += 1;
                }
                _ => {}
            }
        }
        let mut notes = Vec::new();
        if !children.is_empty() {
            let count = children.len();
            notes.push(format!("the process forked {count} others, {CHILDREN_LEFT_OUT}"));
        }
        if lost > 0 {
            notes.push(format!(
                "perf lost {lost} records in {places} places: code mapped there is unknown, and \
                 execution on CPUs there belongs to no thread"
            ));
        }
        notes
    }
}

/// Returns the processes in the records, and their last names; empty for one without a name.
fn names(data: &PerfData) -> BTreeMap<Pid, String> {
    let mut names = BTreeMap::new();
    for record in &data.records {
        match &record.event {
            PerfEvent::Comm { pid, name, .. } => drop(names.insert(*pid, name.clone())),
            PerfEvent::Fork { child, .. } => drop(names.entry(child.0).or_default()),
            PerfEvent::ItraceStart { pid, .. } => drop(names.entry(*pid).or_default()),
            PerfEvent::Map(map) => drop(names.entry(map.pid).or_default()),
            _ => {}
        }
    }
    names.retain(|pid, _| pid.0 > 0);
    names
}

/// Returns the only process that the AUX areas name, else the only one that maps the filter's
/// files, else the only one in the records. Fails if no candidate is the only one.
fn only_traced_process(
    data: &PerfData,
    info: &AuxInfo,
    names: &BTreeMap<Pid, String>,
) -> Result<Pid, ErrorKind> {
    let tids: HashSet<Tid> = data.aux_traces.iter().filter_map(|trace| trace.tid).collect();
    let of_thread = processes_of(data);
    let of_areas: HashSet<Pid> =
        tids.iter().map(|tid| of_thread.get(tid).copied().unwrap_or(Pid(tid.0))).collect();
    let files = filtered_files(&info.filter);
    let maps = |record: &PerfRecord| match &record.event {
        PerfEvent::Map(map) if files.contains(&map.name.as_str()) => Some(map.pid),
        _ => None,
    };
    let of_files: HashSet<Pid> = data.records.iter().filter_map(maps).collect();
    let all: HashSet<Pid> = names.keys().copied().collect();
    for candidates in [&of_areas, &of_files, &all] {
        if let [pid] = candidates.iter().collect::<Vec<_>>().as_slice() {
            return Ok(**pid);
        }
    }
    let candidates = [of_areas, of_files].into_iter().find(|pids| !pids.is_empty());
    let candidates = candidates.unwrap_or(all);
    Err(ErrorKind::WhichProcess(listed(names, |pid| candidates.contains(pid))))
}

/// Returns the process of each thread that a record names.
fn processes_of(data: &PerfData) -> HashMap<Tid, Pid> {
    let mut of_thread = HashMap::new();
    for record in &data.records {
        match &record.event {
            PerfEvent::Comm { pid, tid, .. } | PerfEvent::ItraceStart { pid, tid } => {
                of_thread.insert(*tid, *pid);
            }
            PerfEvent::Fork { child, .. } => drop(of_thread.insert(child.1, child.0)),
            _ => {}
        }
    }
    of_thread
}

fn listed(names: &BTreeMap<Pid, String>, is_listed: impl Fn(&Pid) -> bool) -> String {
    let listed: Vec<_> = names.iter().filter(|(pid, _)| is_listed(pid)).collect();
    let shown = listed.iter().take(LISTED_LIMIT).map(|(pid, name)| match name.as_str() {
        "" => pid.to_string(),
        name => format!("{pid} ({name})"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match listed.len().saturating_sub(LISTED_LIMIT) {
        0 if listed.is_empty() => "none".to_owned(),
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

/// Returns the threads of the process in the records. Its first thread comes first, even if no
/// record names it.
fn threads_of(data: &PerfData, pid: Pid) -> Vec<Tid> {
    let (mut threads, mut known) = (Vec::new(), HashSet::new());
    note_thread(&mut threads, &mut known, Tid(pid.0));
    for record in &data.records {
        let task = match &record.event {
            PerfEvent::Comm { pid, tid, .. }
            | PerfEvent::ItraceStart { pid, tid }
            | PerfEvent::Exit { pid, tid } => Some((*pid, *tid)),
            PerfEvent::Fork { child, .. } => Some(*child),
            PerfEvent::Switch { other, .. } => {
                let own = other.filter(|(of, _)| *of == pid);
                if let Some((_, tid)) = own {
                    note_thread(&mut threads, &mut known, tid);
                }
                record.id.task
            }
            _ => None,
        };
        if let Some((_, tid)) = task.filter(|(of, _)| *of == pid) {
            note_thread(&mut threads, &mut known, tid);
        }
    }
    threads
}

/// Returns the owners of the process's memory, each with the index in `order` from which on it
/// owned the memory: before the process was forked, its parent, and so on. The oldest owner is the
/// first, from index 0 on.
fn lineage(data: &PerfData, order: &[usize], pid: Pid) -> Vec<(usize, Pid)> {
    let mut lineage = Vec::new();
    let mut now = pid;
    for (place, number) in order.iter().enumerate().rev() {
        let Some(PerfEvent::Fork { child, parent }) = data.records.get(*number).map(|r| &r.event)
        else {
            continue;
        };
        if child.0 == now && parent.0 != now {
            lineage.push((place, now));
            now = parent.0;
        }
    }
    lineage.push((0, now));
    lineage.reverse();
    lineage
}
