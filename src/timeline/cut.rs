//! Cuts the trace of a CPU into pieces of one thread each, by the times in the trace and the
//! context switches. Cuts only where tracing was off, as it is while the kernel switches: a
//! [`Period`] of tracing has one thread. Its times show in which *runs* of the CPU it may lie: the
//! times from one context switch to the next ([`CpuRuns`]), each with the threads that may have run.
//!
//! The [`Cutter`] goes through the trace from point to point. A period that has ended waits for the
//! next time in the trace, which bounds it. Then it is assigned to its thread; if several may have
//! executed it, it is marked as lost in each, instead of being assigned to the likeliest.

use super::piece::Piece;
use super::runs::{Candidates, CpuHistory, CpuRuns, Traceable};
use crate::common::{Pid, Tid, Tsc};
use crate::flow::{Config, OutlineKind, OutlinePoint, outline};
use crate::pt::find_psb;
use crate::sideband::Record;
use std::collections::BTreeMap;
use std::ops::Range;

/// The maximum number of runs of a CPU in which one period may lie. Beyond it, any thread may have
/// executed the period.
const RUNS_LIMIT: usize = 64;

/// The scheduling of the CPU that wrote a trace.
#[derive(Clone, Copy)]
pub(super) struct CpuSchedule<'a> {
    pub(super) cpu: u32,
    /// The threads that ran on the CPU.
    pub(super) runs: &'a CpuRuns,
    /// The CPUs on which each thread ran.
    pub(super) cpu_history: &'a CpuHistory,
}

/// Cuts the trace of a CPU, which has the index `number` in the timeline. Returns the pieces in
/// trace order, by the index of their thread. A part that any thread may have executed is a lost
/// piece of each thread.
pub(super) fn cut(
    number: usize,
    trace: &[u8],
    schedule: CpuSchedule<'_>,
    config: &Config,
) -> BTreeMap<usize, Vec<Piece>> {
    let mut cutter = Cutter::new(number, schedule);
    let mut psb = find_psb(trace, 0);
    while let Some(start) = psb {
        let end = find_psb(trace, start + 1);
        cutter.psb = start;
        for point in outline(trace, start, end, config) {
            cutter.process_point(&point);
        }
        psb = end;
    }
    cutter.end_period(trace.len());
    cutter.assign_waiting(None);
    let Cutter { mut pieces, lost, .. } = cutter;
    if !lost.is_empty() {
        for thread in 0..schedule.cpu_history.threads() {
            let own = pieces.entry(thread).or_default();
            own.extend(lost.iter().cloned());
            own.sort_by_key(|piece| piece.from);
        }
    }
    pieces
}

/// A part of a CPU's trace that a thread executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPart {
    /// The thread's ID.
    pub tid: Tid,
    /// The range of the trace, in bytes.
    pub range: Range<usize>,
    /// False if another thread may have executed the part; a recording has a gap there.
    pub is_certain: bool,
}

/// Divides the trace of a CPU among `threads` by the context switches in `records`. Parts that none
/// of them executed are left out; a part that several may have executed is returned for each.
/// Serves callers with a trace but no recording: opening a recording does this itself.
pub fn divide_among_threads(
    trace: &[u8],
    cpu: u32,
    records: &[Record],
    threads: &[(Pid, Tid)],
    config: &Config,
) -> Vec<ThreadPart> {
    let traceable = Traceable::new(threads.iter().copied(), None);
    let (runs, cpu_history) =
        (CpuRuns::of_cpu(cpu, records, &traceable), CpuHistory::of(records, &traceable));
    let pieces = cut(0, trace, CpuSchedule { cpu, runs: &runs, cpu_history: &cpu_history }, config);
    let mut shares = Vec::new();
    for (number, pieces) in pieces {
        let Some((_, tid)) = threads.get(number).copied() else { continue };
        let share = |piece: &Piece| ThreadPart {
            tid,
            range: piece.from..piece.to,
            is_certain: !piece.lost,
        };
        shares.extend(pieces.iter().map(share));
    }
    shares
}

/// A part of the trace from the enabling of tracing to its disabling: one thread executed all of
/// it.
#[derive(Clone, Debug)]
struct Period {
    /// The trace offset of the PSB at which its decoding starts.
    psb: usize,
    /// The trace offsets of its beginning and its end.
    from: usize,
    to: usize,
    /// The last time in the trace before the period.
    before: Tsc,
    /// The first and the last time in the trace inside the period, if any.
    inside: Option<(Tsc, Tsc)>,
}

/// The threads that may have executed a period.
struct PeriodCandidates {
    candidates: Candidates,
    /// The index of the first run in which a thread of the recording may have executed the period.
    first_run: usize,
    /// The start time of run `first_run`.
    since: Tsc,
    /// The start time of the last run in which a recorded thread may have executed the period.
    until: Tsc,
}

/// The state of cutting a trace, from point to point.
struct Cutter<'a> {
    /// The trace's index in the timeline.
    trace: usize,
    schedule: CpuSchedule<'a>,
    /// The trace offset of the current segment's PSB.
    psb: usize,
    /// The trace offset at which the last period ended.
    boundary: usize,
    /// The last time in the trace.
    last_time: Tsc,
    /// The current period; `None` while tracing is off.
    current: Option<Period>,
    /// Periods that wait for the next time in the trace.
    waiting: Vec<Period>,
    /// The trace offset at which the last period ended that may belong to a thread outside the
    /// recording.
    foreign_end: usize,
    /// The thread to which the last period was assigned, and the index of its run; `None` if it was
    /// lost.
    last_assigned: Option<(usize, usize)>,
    pieces: BTreeMap<usize, Vec<Piece>>,
    /// Parts that any thread may have executed, joined to at most one piece.
    lost: Vec<Piece>,
}

impl<'a> Cutter<'a> {
    fn new(trace: usize, schedule: CpuSchedule<'a>) -> Self {
        Self {
            trace,
            schedule,
            psb: 0,
            boundary: 0,
            last_time: Tsc(0),
            current: None,
            waiting: Vec::new(),
            foreign_end: 0,
            last_assigned: None,
            pieces: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Processes the next time in the trace, or change of tracing.
    fn process_point(&mut self, point: &OutlinePoint) {
        match point.kind {
            // While tracing is on, another enable begins no period: the decoder handles it.
            OutlineKind::On => {
                if self.current.is_none() {
                    self.begin_period();
                }
            }
            OutlineKind::Off => self.end_period(point.offset),
            OutlineKind::Time(tsc) => self.process_time(tsc),
        }
    }

    /// Begins a period. It includes the packets since the end of the last one, back to the PSB at
    /// most.
    fn begin_period(&mut self) {
        let from = self.boundary.max(self.psb);
        let (psb, before) = (self.psb, self.last_time);
        self.current = Some(Period { psb, from, to: from, before, inside: None });
    }

    /// Ends the current period, if there is one, at trace offset `to`. It then waits for the next
    /// time in the trace.
    fn end_period(&mut self, to: usize) {
        if let Some(period) = self.current.take() {
            self.boundary = to;
            self.waiting.push(Period { to, ..period });
        }
    }

    /// Processes a time in the trace: it bounds the waiting periods, and is inside the current one.
    fn process_time(&mut self, tsc: Tsc) {
        self.assign_waiting(Some(tsc));
        self.last_time = tsc;
        if let Some(period) = &mut self.current {
            let (first, last) = period.inside.unwrap_or((tsc, tsc));
            period.inside = Some((first.min(tsc), last.max(tsc)));
        }
    }

    /// Assigns the waiting periods to their threads; `after` is the next time in the trace, `None`
    /// at its end.
    fn assign_waiting(&mut self, after: Option<Tsc>) {
        for period in std::mem::take(&mut self.waiting) {
            self.assign(&period, after);
        }
    }

    /// Assigns a period to its thread if there is one candidate only, which ran on no other CPU at
    /// that time. Otherwise marks the period as lost for each candidate. Leaves out a period that
    /// no thread of the recording can have executed.
    fn assign(&mut self, period: &Period, after: Option<Tsc>) {
        let found = self.candidates_of(period, after.unwrap_or(Tsc(u64::MAX)));
        let candidates = &found.candidates;
        let ran_here_only = |thread: &usize| {
            !self.schedule.cpu_history.was_on_other_cpu(
                *thread,
                self.schedule.cpu,
                (found.since, found.until),
            )
        };
        if let Some(thread) = candidates.single().filter(ran_here_only) {
            self.assign_to(thread, period, found.first_run);
            return;
        }
        self.last_assigned = None;
        if candidates.any_thread {
            lose(&mut self.lost, self.trace, period);
        } else {
            for thread in &candidates.threads {
                lose(self.pieces.entry(*thread).or_default(), self.trace, period);
            }
        }
        if candidates.foreign || candidates.any_thread || candidates.threads.is_empty() {
            self.foreign_end = period.to;
        }
    }

    /// Returns the threads that may have executed a period, by the times inside it, or else by
    /// those around it. `after` is the first time in the trace after the period.
    fn candidates_of(&self, period: &Period, after: Tsc) -> PeriodCandidates {
        let inside = period.inside.map(|(first, last)| self.candidates_between(first, last));
        // The times of switches are inexact: a period may fall into a run of no traced thread.
        inside
            .filter(|found| !found.candidates.is_empty())
            .unwrap_or_else(|| self.candidates_between(period.before, after))
    }

    /// Returns the threads that may have run on the CPU from time `low` to `high`.
    fn candidates_between(&self, low: Tsc, high: Tsc) -> PeriodCandidates {
        let all = self.schedule.runs;
        let (first, last) = (all.at(low), all.at(high.max(low)));
        let runs = all.range(first, last.min(first + RUNS_LIMIT));
        let mut candidates =
            Candidates { any_thread: last > first + RUNS_LIMIT, ..Candidates::default() };
        for run in runs {
            candidates.join(&run.candidates);
        }
        let mut own = runs.iter().enumerate().filter(|(_, run)| !run.candidates.threads.is_empty());
        let (offset, since) = own.next().map_or((0, low), |(offset, run)| (offset, run.since));
        let until = own.next_back().map_or(since, |(_, run)| run.since);
        PeriodCandidates { candidates, first_run: first + offset, since, until }
    }

    /// Assigns a period to a thread, as a piece. `run` is the index of the CPU's run in which the
    /// thread executed it. Consecutive periods of one run are one piece.
    fn assign_to(&mut self, thread: usize, period: &Period, run: usize) {
        let since = self.schedule.runs.range(run, run).first().map_or(Tsc(0), |run| run.since);
        let since = if since == Tsc(0) { period.before } else { since };
        let pieces = self.pieces.entry(thread).or_default();
        let continues_piece = self.last_assigned == Some((thread, run));
        self.last_assigned = Some((thread, run));
        match pieces.last_mut() {
            Some(piece) if continues_piece => piece.to = period.to,
            last => {
                let floor = last.map_or(Tsc(0), |piece| piece.since);
                let start = self.foreign_end.max(period.psb);
                let Period { psb, from, to, .. } = *period;
                let since = since.max(floor);
                let trace = self.trace;
                pieces.push(Piece { trace, psb, start, from, to, since, lost: false });
            }
        }
    }
}

/// Marks a period as lost in the pieces of a thread that may have executed it. Extends the last
/// piece if that is lost, too.
fn lose(pieces: &mut Vec<Piece>, trace: usize, period: &Period) {
    match pieces.last_mut() {
        Some(piece) if piece.lost => piece.to = period.to,
        last => {
            let since = last.map_or(Tsc(0), |piece| piece.since).max(period.before);
            let Period { psb, from, to, .. } = *period;
            pieces.push(Piece { trace, psb, start: from, from, to, since, lost: true });
        }
    }
}
