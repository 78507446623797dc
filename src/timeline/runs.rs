//! The threads that a CPU ran over time, by the context switches in the sideband: a *run* is the
//! time from one switch to the next. Where switches were lost, any thread may have run.

use crate::common::{Pid, Tid, Tsc};
use crate::sideband::{Event, Record};
use std::collections::{HashMap, HashSet};

/// The threads whose instructions the traces of CPUs can contain.
#[derive(Clone, Debug, Default)]
pub(super) struct Traceable {
    /// The indexes of the threads in the timeline.
    numbers: HashMap<(Pid, Tid), usize>,
    /// All traced threads; `None` if any thread may have been traced.
    traced: Option<HashSet<Tid>>,
}

impl Traceable {
    /// Returns the traceable threads: the timeline's `threads` in order, and the IDs of all traced
    /// threads if they are known.
    pub(super) fn new(
        threads: impl Iterator<Item = (Pid, Tid)>,
        traced: Option<HashSet<Tid>>,
    ) -> Self {
        Self { numbers: threads.zip(0..).collect(), traced }
    }

    fn number(&self, pid: Pid, tid: Tid) -> Option<usize> {
        self.numbers.get(&(pid, tid)).copied()
    }

    /// Returns true if a thread outside the timeline certainly was not traced: it is the idle task,
    /// or not among the traced threads.
    fn is_untraced(&self, tid: Tid) -> bool {
        tid == Tid(0) || self.traced.as_ref().is_some_and(|traced| !traced.contains(&tid))
    }
}

/// The threads that may have run on a CPU: some of the recording's threads, and perhaps another
/// process. Empty for the kernel, the idle task or an untraced thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    /// The indexes of the threads in the timeline.
    pub(super) threads: Vec<usize>,
    /// True if a thread outside the timeline, which may be traced, may have run.
    pub(super) foreign: bool,
    /// True if any thread may have run, since switches are missing.
    pub(super) any_thread: bool,
}

impl Candidates {
    fn of(pid: Pid, tid: Tid, traceable: &Traceable) -> Self {
        match traceable.number(pid, tid) {
            Some(number) => Self { threads: vec![number], ..Self::default() },
            None => Self { foreign: !traceable.is_untraced(tid), ..Self::default() },
        }
    }

    /// Adds the candidates of another value.
    pub(super) fn join(&mut self, other: &Self) {
        let fresh = other.threads.iter().filter(|thread| !self.threads.contains(thread));
        let fresh: Vec<_> = fresh.copied().collect();
        self.threads.extend(fresh);
        self.foreign |= other.foreign;
        self.any_thread |= other.any_thread;
    }

    /// Returns true if no traced thread can have run.
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty() && !self.foreign && !self.any_thread
    }

    /// Returns the thread that must have run, if there is only one candidate.
    pub(super) fn single(&self) -> Option<usize> {
        match self.threads.as_slice() {
            [thread] if !self.foreign && !self.any_thread => Some(*thread),
            _ => None,
        }
    }
}

/// The CPUs on which each thread was scheduled, with their times.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuHistory {
    by_thread: Vec<Vec<(Tsc, u32)>>,
}

impl CpuHistory {
    pub(super) fn of(records: &[Record], traceable: &Traceable) -> Self {
        let mut by_thread = vec![Vec::new(); traceable.numbers.len()];
        for record in records {
            let Event::SwitchIn { cpu } = record.event else { continue };
            let number = traceable.number(record.pid, record.tid);
            if let Some(of_thread) = number.and_then(|number| by_thread.get_mut(number)) {
                of_thread.push((record.tsc, cpu));
            }
        }
        for schedulings in &mut by_thread {
            schedulings.sort_unstable();
        }
        Self { by_thread }
    }

    /// Returns the number of threads.
    pub(super) fn threads(&self) -> usize {
        self.by_thread.len()
    }

    /// Returns true if a thread was scheduled on another CPU than `cpu` within a time range, without
    /// its start.
    pub(super) fn was_on_other_cpu(&self, thread: usize, cpu: u32, within: (Tsc, Tsc)) -> bool {
        let schedulings = self.by_thread.get(thread).map_or(&[][..], Vec::as_slice);
        let first = schedulings.partition_point(|(since, _)| *since <= within.0);
        let mut inside = schedulings.iter().skip(first).take_while(|(since, _)| *since <= within.1);
        inside.any(|(_, other)| *other != cpu)
    }
}

/// The threads that may have run on a CPU from one context switch to the next. A run ends where the
/// next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CpuRun {
    pub(super) since: Tsc,
    pub(super) candidates: Candidates,
}

/// The runs of a CPU over time.
#[derive(Clone, Debug)]
pub(super) struct CpuRuns {
    /// The runs in order of time; the first begins at time 0.
    runs: Vec<CpuRun>,
    state: CpuState,
}

/// The state of a CPU after the last context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuState {
    /// There was no context switch yet.
    Beginning,
    /// This thread was switched in.
    CpuRuns(Pid, Tid),
    /// One thread was switched out, and the next is not known yet.
    Between,
    /// Context switches were lost.
    Lost,
}

impl CpuRuns {
    /// Returns the runs of one CPU.
    pub(super) fn of_cpu(cpu: u32, records: &[Record], traceable: &Traceable) -> Self {
        let own = |record: &&Record| match record.event {
            Event::SwitchIn { cpu: of }
            | Event::SwitchOut { cpu: of }
            | Event::SwitchLost { cpu: of } => of == cpu,
            _ => false,
        };
        let mut switches: Vec<&Record> = records.iter().filter(own).collect();
        // A hostile sideband may be out of order.
        switches.sort_by_key(|record| record.tsc);
        let first = CpuRun { since: Tsc(0), candidates: Candidates::default() };
        let mut runs = Self { runs: vec![first], state: CpuState::Beginning };
        for record in switches {
            runs.add_switch(record, traceable);
        }
        if runs.state == CpuState::Beginning {
            runs.mark_unknown();
        }
        runs
    }

    /// Processes the next context switch: ends the last run, and begins another, with the thread
    /// that is switched in. If it does not fit the switch before, any thread may have run in
    /// between.
    fn add_switch(&mut self, record: &Record, traceable: &Traceable) {
        let (pid, tid) = (record.pid, record.tid);
        let candidates = Candidates::of(pid, tid, traceable);
        match (&record.event, self.state) {
            (Event::SwitchOut { .. }, CpuState::Beginning) => self.last().candidates = candidates,
            // A thread that has ended is reported with the ID -1.
            (Event::SwitchOut { .. }, CpuState::CpuRuns(..)) if tid == Tid(-1) => {}
            (Event::SwitchOut { .. }, CpuState::CpuRuns(p, t)) if (p, t) == (pid, tid) => {}
            (Event::SwitchIn { .. }, CpuState::Between) => {}
            _ => self.mark_unknown(),
        }
        self.state = match record.event {
            Event::SwitchOut { .. } => CpuState::Between,
            Event::SwitchIn { .. } => CpuState::CpuRuns(pid, tid),
            _ => CpuState::Lost,
        };
        match record.event {
            Event::SwitchOut { .. } => self.push(record.tsc, Candidates::default()),
            Event::SwitchIn { .. } => self.push(record.tsc, Candidates::of(pid, tid, traceable)),
            _ => {}
        }
    }

    fn push(&mut self, since: Tsc, candidates: Candidates) {
        self.runs.push(CpuRun { since, candidates });
    }

    fn last(&mut self) -> &mut CpuRun {
        let last = self.runs.len() - 1;
        &mut self.runs[last]
    }

    /// Marks the last run as one in which any thread may have run.
    fn mark_unknown(&mut self) {
        self.last().candidates =
            Candidates { threads: Vec::new(), foreign: true, any_thread: true };
    }

    /// Returns the index of the run at a time. There is always one, since the first begins at time
    /// 0.
    pub(super) fn at(&self, tsc: Tsc) -> usize {
        self.runs.partition_point(|run| run.since <= tsc).saturating_sub(1)
    }

    /// Returns the runs from index `first` to `last`, both included.
    pub(super) fn range(&self, first: usize, last: usize) -> &[CpuRun] {
        let end = self.runs.len().min(last.saturating_add(1));
        self.runs.get(first..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the runs that these switches make: start, threads, and others that may have run.
    /// Threads 1 and 2 are of the timeline, thread 3 is not, and thread 0 is the idle task.
    fn runs(switches: &[(u64, char, i32)]) -> Vec<(u64, Vec<usize>, &'static str)> {
        runs_of(switches, None)
    }

    fn runs_of(
        switches: &[(u64, char, i32)],
        traced: Option<HashSet<Tid>>,
    ) -> Vec<(u64, Vec<usize>, &'static str)> {
        let threads = [(Pid(1), Tid(1)), (Pid(1), Tid(2))];
        let traceable = Traceable::new(threads.into_iter(), traced);
        let record = |(tsc, kind, tid): &(u64, char, i32)| {
            let event = match kind {
                'i' => Event::SwitchIn { cpu: 7 },
                'o' => Event::SwitchOut { cpu: 7 },
                _ => Event::SwitchLost { cpu: 7 },
            };
            Record { tsc: Tsc(*tsc), pid: Pid(1), tid: Tid(*tid), event }
        };
        let records: Vec<_> = switches.iter().map(record).collect();
        let runs = CpuRuns::of_cpu(7, &records, &traceable).runs;
        let reported = |run: CpuRun| {
            let others = match (run.candidates.any_thread, run.candidates.foreign) {
                (true, _) => "any",
                (false, true) => "others",
                (false, false) => "",
            };
            (run.since.0, run.candidates.threads, others)
        };
        runs.into_iter().map(reported).collect()
    }

    #[test]
    fn each_runs_from_its_in_to_its_out() {
        let found = runs(&[(10, 'o', 1), (11, 'i', 0), (20, 'o', 0), (21, 'i', 2), (30, 'o', 2)]);
        let expected = [
            (0, vec![0], ""),
            (10, vec![], ""),
            (11, vec![], ""),
            (20, vec![], ""),
            (21, vec![1], ""),
            (30, vec![], ""),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_thread_that_was_not_traced_is_no_candidate() {
        let traced = Some([Tid(1), Tid(2), Tid(4)].into());
        let found = runs_of(&[(10, 'o', 3), (20, 'i', 4), (30, 'o', 4), (40, 'i', 3)], traced);
        let expected = [
            (0, vec![], ""),
            (10, vec![], ""),
            (20, vec![], "others"),
            (30, vec![], ""),
            (40, vec![], ""),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_thread_that_ended_goes_without_its_numbers() {
        let found = runs(&[(10, 'i', 1), (20, 'o', -1)]);
        assert_eq!(found[1], (10, vec![0], ""));
    }

    #[test]
    fn lost_switches_leave_doubt() {
        let found = runs(&[(5, 'o', 3), (10, 'i', 1), (12, 'l', 0), (20, 'o', 2), (21, 'i', 1)]);
        assert_eq!(found[0], (0, vec![], "others"));
        assert_eq!(found[2], (10, vec![], "any"));
        assert_eq!(found[4], (21, vec![0], ""));
        // Two threads were switched out one after the other, so one switch is missing.
        assert_eq!(runs(&[(10, 'i', 1), (20, 'o', 2)])[1], (10, vec![], "any"));
        assert_eq!(runs(&[(10, 'i', 1), (20, 'i', 2)])[1], (10, vec![], "any"));
        assert_eq!(runs(&[]), [(0, vec![], "any")]);
    }
}
