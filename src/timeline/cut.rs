//! Cuts the trace of a CPU into pieces of one thread each, by the times in the trace and the
//! context switches. Cuts only where tracing was off, as it is while the kernel switches: a
//! [`Period`] of tracing has one thread. Its times show in which runs of the CPU ([`Runs`]) it may
//! lie. If these leave open which thread executed it, the piece is marked as lost instead of being
//! assigned to the likeliest thread.

use super::piece::Piece;
use super::runs::{CpuHistory, Runs, Traceable, Who};
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
pub(super) struct Ran<'a> {
    pub(super) cpu: u32,
    /// The threads that ran on the CPU.
    pub(super) runs: &'a Runs,
    /// The CPUs on which each thread ran.
    pub(super) homes: &'a CpuHistory,
}

/// Cuts the trace with index `number` in the timeline. Returns the pieces in trace order, by the
/// index of their thread. A part that any thread may have executed is a lost piece of each thread.
pub(super) fn cut(
    number: usize,
    trace: &[u8],
    ran: Ran<'_>,
    config: &Config,
) -> BTreeMap<usize, Vec<Piece>> {
    let mut cutter = Cutter::new(number, ran);
    let mut psb = find_psb(trace, 0);
    while let Some(start) = psb {
        let end = find_psb(trace, start + 1);
        cutter.psb = start;
        for turn in outline(trace, start, end, config) {
            cutter.turn(&turn);
        }
        psb = end;
    }
    cutter.off(trace.len());
    cutter.settle(None);
    let Cutter { mut pieces, lost, .. } = cutter;
    if !lost.is_empty() {
        for thread in 0..ran.homes.threads() {
            let own = pieces.entry(thread).or_default();
            own.extend(lost.iter().cloned());
            own.sort_by_key(|piece| piece.from);
        }
    }
    pieces
}

/// A part of a CPU's trace that a thread executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The thread's ID.
    pub tid: Tid,
    /// The range of the trace, in bytes.
    pub range: Range<usize>,
    /// False if another thread may have executed the part; a recording has a gap there.
    pub is_certain: bool,
}

/// Divides the trace of a CPU among threads by the context switches in `records`. Serves callers
/// with a trace but no recording: opening a recording does this itself.
pub fn share_out(
    trace: &[u8],
    cpu: u32,
    records: &[Record],
    threads: &[(Pid, Tid)],
    config: &Config,
) -> Vec<Share> {
    let traceable = Traceable::new(threads.iter().copied(), None);
    let (runs, homes) =
        (Runs::of_cpu(cpu, records, &traceable), CpuHistory::of(records, &traceable));
    let pieces = cut(0, trace, Ran { cpu, runs: &runs, homes: &homes }, config);
    let mut shares = Vec::new();
    for (number, pieces) in pieces {
        let Some((_, tid)) = threads.get(number).copied() else { continue };
        let share =
            |piece: &Piece| Share { tid, range: piece.from..piece.to, is_certain: !piece.lost };
        shares.extend(pieces.iter().map(share));
    }
    shares
}

/// A part of the trace from the enabling of tracing to its disabling: one thread executed all of
/// it.
#[derive(Clone, Debug)]
struct Period {
    psb: usize,
    from: usize,
    to: usize,
    /// The last time in the trace before the period.
    before: Tsc,
    /// The first and the last time in the trace inside the period, if any.
    inside: Option<(Tsc, Tsc)>,
}

/// The threads that may have executed a period.
struct Found {
    who: Who,
    /// The index of the first run in which a thread of the recording may have executed the period.
    first: usize,
    /// The start time of run `first`.
    since: Tsc,
    /// The start time of the last run in which a recorded thread may have executed the period.
    until: Tsc,
}

struct Cutter<'a> {
    trace: usize,
    ran: Ran<'a>,
    /// The trace offset of the current segment's PSB.
    psb: usize,
    /// The trace offset at which the last period ended.
    boundary: usize,
    /// The last time in the trace.
    now: Tsc,
    /// The current period; `None` while tracing is off.
    on: Option<Period>,
    /// Periods that wait for the next time in the trace.
    waiting: Vec<Period>,
    /// The trace offset at which the last period ended that may belong to another process.
    foreign_end: usize,
    /// The thread to which the last period was assigned, and the index of its run; `None` if it was
    /// lost.
    last: Option<(usize, usize)>,
    pieces: BTreeMap<usize, Vec<Piece>>,
    /// Parts that any thread may have executed, joined to at most one piece.
    lost: Vec<Piece>,
}

impl<'a> Cutter<'a> {
    fn new(trace: usize, ran: Ran<'a>) -> Self {
        Self {
            trace,
            ran,
            psb: 0,
            boundary: 0,
            now: Tsc(0),
            on: None,
            waiting: Vec::new(),
            foreign_end: 0,
            last: None,
            pieces: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    /// Processes the next time in the trace, or change of tracing.
    fn turn(&mut self, turn: &OutlinePoint) {
        match turn.kind {
            // While tracing is on, another enable begins no period: the decoder handles it.
            OutlineKind::On => {
                if self.on.is_none() {
                    self.begin();
                }
            }
            OutlineKind::Off => self.off(turn.offset),
            OutlineKind::Time(tsc) => self.time(tsc),
        }
    }

    /// Begins a period. It includes the packets since the end of the last one, back to the PSB at
    /// most.
    fn begin(&mut self) {
        let from = self.boundary.max(self.psb);
        let (psb, before) = (self.psb, self.now);
        self.on = Some(Period { psb, from, to: from, before, inside: None });
    }

    /// Ends the current period, if there is one. It then waits for the next time in the trace.
    fn off(&mut self, to: usize) {
        if let Some(period) = self.on.take() {
            self.boundary = to;
            self.waiting.push(Period { to, ..period });
        }
    }

    fn time(&mut self, tsc: Tsc) {
        self.settle(Some(tsc));
        self.now = tsc;
        if let Some(period) = &mut self.on {
            let (first, last) = period.inside.unwrap_or((tsc, tsc));
            period.inside = Some((first.min(tsc), last.max(tsc)));
        }
    }

    /// Assigns the waiting periods to their threads; `after` is the next time in the trace.
    fn settle(&mut self, after: Option<Tsc>) {
        for period in std::mem::take(&mut self.waiting) {
            self.give(&period, after);
        }
    }

    /// Assigns a period to its thread if there is one candidate only, which ran on no other CPU at
    /// that time. Otherwise marks the period as lost for each candidate. Leaves out a period that
    /// no thread of the recording can have executed.
    fn give(&mut self, period: &Period, after: Option<Tsc>) {
        let found = self.whose(period, after.unwrap_or(Tsc(u64::MAX)));
        let who = &found.who;
        let at_home = |thread: &usize| {
            !self.ran.homes.is_elsewhere(*thread, self.ran.cpu, (found.since, found.until))
        };
        if let Some(thread) = who.only().filter(at_home) {
            self.give_to(thread, period, found.first);
            return;
        }
        self.last = None;
        if who.anybody {
            lose(&mut self.lost, self.trace, period);
        } else {
            for thread in &who.threads {
                lose(self.pieces.entry(*thread).or_default(), self.trace, period);
            }
        }
        if who.foreign || who.anybody || who.threads.is_empty() {
            self.foreign_end = period.to;
        }
    }

    /// Returns the threads that may have executed a period. `after` is the first time in the trace
    /// after the period.
    fn whose(&self, period: &Period, after: Tsc) -> Found {
        let inside = period.inside.map(|(first, last)| self.between(first, last));
        // The times of switches are inexact: a period may fall into a run of no traced thread.
        inside
            .filter(|found| !found.who.is_nobody())
            .unwrap_or_else(|| self.between(period.before, after))
    }

    /// Returns the threads that may have run on the CPU from time `low` to `high`.
    fn between(&self, low: Tsc, high: Tsc) -> Found {
        let all = self.ran.runs;
        let (first, last) = (all.at(low), all.at(high.max(low)));
        let runs = all.range(first, last.min(first + RUNS_LIMIT));
        let mut who = Who { anybody: last > first + RUNS_LIMIT, ..Who::default() };
        for run in runs {
            who.join(&run.who);
        }
        let mut own = runs.iter().enumerate().filter(|(_, run)| !run.who.threads.is_empty());
        let (offset, since) = own.next().map_or((0, low), |(offset, run)| (offset, run.since));
        let until = own.next_back().map_or(since, |(_, run)| run.since);
        Found { who, first: first + offset, since, until }
    }

    /// Assigns a period to a thread. `run` is the index of the CPU's run in which the thread
    /// executed it. Consecutive periods of one run are one piece.
    fn give_to(&mut self, thread: usize, period: &Period, run: usize) {
        let since = self.ran.runs.range(run, run).first().map_or(Tsc(0), |run| run.since);
        let since = if since == Tsc(0) { period.before } else { since };
        let pieces = self.pieces.entry(thread).or_default();
        let goes_on = self.last == Some((thread, run));
        self.last = Some((thread, run));
        match pieces.last_mut() {
            Some(piece) if goes_on => piece.to = period.to,
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
