//! `contraflow dump`: a recording or a raw trace as text or JSON, on one rung of the ladder
//! ([`What`]): packets, events, blocks, instructions; also calls, counts, the sideband or the log.

use super::disassembly::Disassembler;
use super::dump_arguments::{Dump, What};
use super::found::Found;
use super::open::{path_of, say_what_is_wrong};
use super::print::{Printer, once, packets};
use super::progress::Bar;
use super::stats::Stats;
use super::{Failure, dump_log, raw};
use crate::common::{Tid, Visible};
use crate::flow::Config;
use crate::pt::Packets;
use crate::recording::{Reader, Releaser, TraceId};
use crate::session::{symbols_of, symbols_of_images};
use crate::timeline::{Options, Progress, RawTrace, Timeline, Visit, errata_of};
use std::collections::HashMap;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(arguments: &Dump) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let (what, recording) = arguments.subject()?;
    match (&arguments.raw.pt, recording) {
        (Some(_), Some(recording)) => {
            let recording = recording.display();
            return Err(format!("{recording}: give a raw trace or a recording, not both").into());
        }
        (Some(pt), None) => of_trace(arguments, what, pt, &mut out)?,
        (None, _) if arguments.raw.core.is_some() => {
            return Err("--core requires a raw trace: give one with --pt".into());
        }
        (None, recording) => of_recording(arguments, what, recording.as_deref(), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a raw trace, with the code that the arguments name. Fails for the sideband and the log,
/// which it does not have.
fn of_trace(
    arguments: &Dump,
    what: What,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mapped = raw::map(path)?;
    let trace = mapped.as_ref();
    if what == What::Sideband {
        return Err("a raw trace has no sideband".into());
    }
    if what == What::Log {
        return Err("a raw trace has no log".into());
    }
    if what == What::Packets {
        arguments.check_range(trace.len() as u64, "the trace")?;
        let errata = arguments.raw.config().errata;
        let found = once(Packets::synced(trace).with_errata(errata), Releaser::new(&mapped));
        packets(found, arguments, arguments.raw.clocks(), errata, out)?;
        return Ok(());
    }
    let image = arguments.raw.image()?;
    let stored = image.sections().map(|s| (s.name.as_ref().to_owned(), s.bytes.clone()));
    let stored: HashMap<_, _> = stored.filter(|(name, _)| !name.is_empty()).collect();
    let symbols = symbols_of_images(stored, std::iter::once(&image));
    let mut disassembler = Disassembler::new(symbols);
    let mut stats = Stats::default();
    let config = arguments.raw.config();
    if what == What::Stats {
        stats.packets(trace, Releaser::new(&mapped), config.errata);
    }
    let is_timed = needs_clock(what, &stats);
    let clocks = arguments.raw.clocks();
    let mut printer =
        Printer::new(arguments, what, clocks.is_some(), out, &mut disassembler, &mut stats)
            .with_image(&image);
    let clock = is_timed.then(|| clocks.unwrap_or_default());
    let config = Config { clock, ..config };
    let workers = Options::default().workers;
    let addrs = what == What::Insns;
    let raw = RawTrace { bytes: trace, image: &image, config: &config, workers, with_addrs: addrs };
    // On a terminal, the output itself shows the progress.
    let mut bar = if what == What::Stats || !io::stdout().is_terminal() {
        Bar::new("decoding")
    } else {
        Bar::hidden()
    };
    let mut releaser = Releaser::new(&mapped);
    let watch = &mut |progress: Progress| {
        bar.show(progress);
        releaser.release_before(usize::try_from(progress.done_bytes).unwrap_or(0));
    };
    finish(raw.visit(watch, &mut |visit| printer.visit(&visit)))?;
    drop(bar);
    arguments.check_range(printer.end(), "the trace's path")?;
    if what == What::Stats {
        stats.print(arguments.json, out)?;
    }
    Ok(())
}

/// Returns true if the decoder has to track the clock. Statistics need it only for core clocks;
/// without it TIPs decode three times as fast.
fn needs_clock(what: What, stats: &Stats) -> bool {
    what.is_timed() && (what != What::Stats || stats.reports_cycles())
}

/// Prints a recording. The path of an exact one is made first, by a replay.
fn of_recording(
    arguments: &Dump,
    what: What,
    recording: Option<&Path>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let found = Found::new(recording)?;
    let reader = Reader::open(found.dir())?;
    if what == What::Sideband {
        return sideband(&reader, arguments.json, out);
    }
    if what == What::Log {
        return dump_log::print(&reader, arguments, out);
    }
    let reader = path_of(reader)?;
    let tids = wanted_threads(&reader, arguments.thread.map(Tid))?;
    if what == What::Packets {
        let ids = traces(&reader, &tids, arguments.thread.is_some())?;
        let traces = ids.iter().map(|id| reader.trace(*id)).collect::<Result<Vec<_>, _>>()?;
        let sizes = traces.iter().map(|trace| trace.as_ref().len() as u64);
        arguments.check_range(sizes.max().unwrap_or(0), "the trace")?;
        let clocks = reader.manifest().capture.clocks();
        // A CPU's trace may begin within a packet.
        let of_cpu = reader.manifest().capture.is_of_cpu();
        let found = if of_cpu { Packets::synced } else { Packets::new };
        let errata = errata_of(reader.manifest());
        for trace in &traces {
            let found = found(trace.as_ref()).with_errata(errata);
            packets(once(found, trace.releaser()), arguments, clocks, errata, out)?;
        }
        return Ok(());
    }
    let timeline = Timeline::open(reader, Options::default())?;
    say_what_is_wrong(&timeline);
    let ends = tids.iter().map(|tid| timeline.instructions(*tid));
    arguments.check_range(ends.max().unwrap_or(0), "the path")?;
    threads(arguments, what, &timeline, &tids, out)
}

/// Returns the thread that the user named, if it exists, or all threads.
fn wanted_threads(reader: &Reader, named: Option<Tid>) -> Result<Vec<Tid>, Failure> {
    let all = reader.threads()?;
    let Some(tid) = named else { return Ok(all) };
    if !all.contains(&tid) {
        let all: Vec<_> = all.iter().map(Tid::to_string).collect();
        return Err(format!("no thread {tid}; the recording has {}", all.join(", ")).into());
    }
    Ok(vec![tid])
}

/// Prints the histories of threads, one after the other, or the counts of all of them together.
fn threads(
    arguments: &Dump,
    what: What,
    timeline: &Timeline,
    tids: &[Tid],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut disassembler = Disassembler::new(symbols_of(timeline.images()));
    let mut stats = Stats::default();
    let clocks = timeline.reader().manifest().capture.clocks().is_some();
    let errata = errata_of(timeline.reader().manifest());
    let labels = tids.len() > 1 && !arguments.addresses && what != What::Stats;
    for tid in tids {
        if labels && arguments.json {
            writeln!(out, "{}", serde_json::json!({"thread": tid}))?;
        } else if labels {
            writeln!(out, "thread {tid}")?;
        }
        if what == What::Stats
            && let Some(trace) = timeline.trace(*tid)
        {
            stats.packets(trace.as_ref(), trace.releaser(), errata);
        }
        // The packets of a CPU's trace are not counted yet.
        let is_timed =
            needs_clock(what, &stats) || what == What::Stats && timeline.trace(*tid).is_none();
        let mut printer = Printer::new(arguments, what, clocks, out, &mut disassembler, &mut stats);
        // The depth of calls is counted from the beginning of the path.
        let from = if what == What::Calls { 0 } else { arguments.range().start };
        let print = &mut |visit: Visit<'_>| printer.visit(&visit);
        // For a range, blocks are counted one by one.
        let is_whole = arguments.range() == (0..u64::MAX);
        match (is_timed, what) {
            (true, _) => finish(timeline.visit_timed(*tid, from, print))?,
            (false, What::Stats) if is_whole => match timeline.count_instructions(*tid, print) {
                ControlFlow::Continue(totals) => printer.executed(totals),
                ControlFlow::Break(end) => finish(ControlFlow::Break(end))?,
            },
            (false, _) => finish(timeline.visit(*tid, from, print))?,
        }
    }
    if what == What::Stats {
        for trace in timeline.reader().traces()? {
            if let TraceId::Cpu(_) = trace {
                let trace = timeline.reader().trace(trace)?;
                stats.packets(trace.as_ref(), trace.releaser(), errata);
            }
        }
        stats.print(arguments.json, out)?;
    }
    Ok(())
}

/// Returns the traces of all threads, or of the threads `tids` if they are `named`. Fails for named
/// threads if the traces are of CPUs.
fn traces(reader: &Reader, tids: &[Tid], named: bool) -> Result<Vec<TraceId>, Failure> {
    let all = reader.traces()?;
    let of_threads = all.iter().all(|trace| matches!(trace, TraceId::Thread(_)));
    match (named, of_threads) {
        (false, _) => Ok(all),
        (true, true) => Ok(tids.iter().copied().map(TraceId::Thread).collect()),
        (true, false) => Err("the traces are of CPUs, not of single threads".into()),
    }
}

fn sideband(reader: &Reader, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    for record in reader.sideband()? {
        if json {
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
        } else {
            writeln!(out, "{}", Visible(&record))?;
        }
    }
    Ok(())
}

/// Returns the error that broke off a visit, if any. A break without one is the end of the range.
fn finish(flow: ControlFlow<Option<io::Error>>) -> io::Result<()> {
    match flow {
        ControlFlow::Break(Some(error)) => Err(error),
        _ => Ok(()),
    }
}
