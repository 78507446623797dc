//! Cuts the trace of a CPU into pieces, one thread's each: by the times in the trace and the
//! context switches. Cuts only where tracing was off, as it is while the kernel switches. Packets
//! without a time between two times may leave open which thread they are of: what is executed
//! there is lost, and shown, and not given to whoever seems likely.

use super::piece::Piece;
use super::runs::{Homes, Runs, Traceable, Who};
use crate::common::{Pid, Tid, Tsc};
use crate::flow::{Config, Turn, TurnKind, outline};
use crate::pt::find_psb;
use crate::sideband::Record;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs that are looked at, at most, to find out whose a period is.
const RUNS_LIMIT: usize = 64;

/// Whom the CPU of a trace ran.
#[derive(Clone, Copy)]
pub(super) struct Ran<'a> {
    pub(super) cpu: u32,
    pub(super) runs: &'a Runs,
    pub(super) homes: &'a Homes,
}

/// The pieces of each thread that has some, by the thread's number, in the order of the trace,
/// whose number in the timeline is `number`.
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

/// What a thread executed of a CPU's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The thread.
    pub tid: Tid,
    /// Where in the trace, in bytes.
    pub range: Range<usize>,
    /// Whether it is certain that it was this thread; if not, a recording has a gap there.
    pub is_certain: bool,
}

/// Shares the trace of a CPU out among threads by the context switches among `records`. For those
/// who have a trace and no recording: opening a recording does this by itself.
pub fn share_out(
    trace: &[u8],
    cpu: u32,
    records: &[Record],
    threads: &[(Pid, Tid)],
    config: &Config,
) -> Vec<Share> {
    let traceable = Traceable::new(threads.iter().copied(), None);
    let (runs, homes) = (Runs::of_cpu(cpu, records, &traceable), Homes::of(records, &traceable));
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

/// From where tracing is enabled to where it is disabled: one thread's, whoever's.
#[derive(Clone, Debug)]
struct Period {
    psb: usize,
    from: usize,
    to: usize,
    /// The last time before it, and the first and last inside.
    before: Tsc,
    inside: Option<(Tsc, Tsc)>,
}

/// Whose a period may be.
struct Found {
    who: Who,
    /// The number of the first run in which it may be, of one of the recording's threads.
    first: usize,
    /// When that and the last such run begin.
    since: Tsc,
    until: Tsc,
}

struct Cutter<'a> {
    trace: usize,
    ran: Ran<'a>,
    /// The segment that the turns are of.
    psb: usize,
    /// Behind the last period.
    boundary: usize,
    now: Tsc,
    on: Option<Period>,
    /// Periods behind which no time has come yet.
    waiting: Vec<Period>,
    /// Behind the last period that may be of another process.
    foreign_end: usize,
    /// Whose the last period was, and in which run.
    last: Option<(usize, usize)>,
    pieces: BTreeMap<usize, Vec<Piece>>,
    /// What anybody may have executed: one piece at most.
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

    fn turn(&mut self, turn: &Turn) {
        match turn.kind {
            // One that is enabled though it was on is the decoder's matter.
            TurnKind::On => {
                if self.on.is_none() {
                    self.begin();
                }
            }
            TurnKind::Off => self.off(turn.offset),
            TurnKind::Time(tsc) => self.time(tsc),
        }
    }

    fn begin(&mut self) {
        let from = self.boundary.max(self.psb);
        let (psb, before) = (self.psb, self.now);
        self.on = Some(Period { psb, from, to: from, before, inside: None });
    }

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

    /// Gives the periods that wait to their threads: `after` is the time behind them.
    fn settle(&mut self, after: Option<Tsc>) {
        for period in std::mem::take(&mut self.waiting) {
            self.give(&period, after);
        }
    }

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

    /// Whose a period may be.
    fn whose(&self, period: &Period, after: Tsc) -> Found {
        let inside = period.inside.map(|(first, last)| self.between(first, last));
        // The kernel's clock may lag a little behind: nobody executes nothing.
        inside
            .filter(|found| !found.who.is_nobody())
            .unwrap_or_else(|| self.between(period.before, after))
    }

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

    /// Gives a period to a thread and its run with this number.
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

/// Notes that who has these pieces may have executed this.
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
