//! `contraflow dump`: a recording or a raw trace as text or JSON, on one rung of the ladder
//! ([`DumpKind`]): packets, events, blocks, instructions; also calls, counts, the sideband or the
//! log.

use super::disassembly::Disassembler;
use super::dump_arguments::{Dump, DumpKind};
use super::found::NamedRecording;
use super::open::{path_recording_of, report_faults};
use super::print::{Printer, print_packets, releasing_memory};
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

/// Prints a recording or a raw trace, whichever is given: fails for both. Without either, prints
/// the latest recording.
pub(super) fn run(arguments: &Dump) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let (kind, recording) = arguments.subject()?;
    match (&arguments.raw.pt, recording) {
        (Some(_), Some(recording)) => {
            let recording = recording.display();
            return Err(format!("{recording}: give a raw trace or a recording, not both").into());
        }
        (Some(pt), None) => dump_raw_trace(arguments, kind, pt, &mut out)?,
        (None, _) if arguments.raw.core.is_some() => {
            return Err("--core requires a raw trace: give one with --pt".into());
        }
        (None, recording) => dump_recording(arguments, kind, recording.as_deref(), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the raw trace in file `path`, with the code that the arguments name. Fails for the
/// sideband and the log, which it does not have.
fn dump_raw_trace(
    arguments: &Dump,
    kind: DumpKind,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mapped = raw::map_file(path)?;
    let trace = mapped.as_ref();
    if kind == DumpKind::Sideband {
        return Err("a raw trace has no sideband".into());
    }
    if kind == DumpKind::Log {
        return Err("a raw trace has no log".into());
    }
    if kind == DumpKind::Packets {
        arguments.check_range(trace.len() as u64, "the trace")?;
        let errata = arguments.raw.config().errata;
        let found =
            releasing_memory(Packets::synced(trace).with_errata(errata), Releaser::new(&mapped));
        print_packets(found, arguments, arguments.raw.clocks(), errata, out)?;
        return Ok(());
    }
    let image = arguments.raw.image()?;
    let stored = image.sections().map(|s| (s.name.as_ref().to_owned(), s.bytes.clone()));
    let stored: HashMap<_, _> = stored.filter(|(name, _)| !name.is_empty()).collect();
    let symbols = symbols_of_images(stored, std::iter::once(&image));
    let mut disassembler = Disassembler::new(symbols);
    let mut stats = Stats::default();
    let config = arguments.raw.config();
    if kind == DumpKind::Stats {
        stats.count_packets(trace, Releaser::new(&mapped), config.errata);
    }
    let is_timed = needs_clock(kind, &stats);
    let clocks = arguments.raw.clocks();
    let mut printer =
        Printer::new(arguments, kind, clocks.is_some(), out, &mut disassembler, &mut stats)
            .with_image(&image);
    let clock = is_timed.then(|| clocks.unwrap_or_default());
    let config = Config { clock, ..config };
    let workers = Options::default().workers;
    let addrs = kind == DumpKind::Insns;
    let raw = RawTrace { bytes: trace, image: &image, config: &config, workers, with_addrs: addrs };
    // On a terminal, the output itself shows the progress.
    let mut bar = if kind == DumpKind::Stats || !io::stdout().is_terminal() {
        Bar::new("decoding")
    } else {
        Bar::hidden()
    };
    let mut releaser = Releaser::new(&mapped);
    let watch = &mut |progress: Progress| {
        bar.show(progress);
        releaser.release_before(usize::try_from(progress.done_bytes).unwrap_or(0));
    };
    visit_result(raw.visit(watch, &mut |visit| printer.visit(&visit)))?;
    drop(bar);
    arguments.check_range(printer.end_index(), "the trace's path")?;
    if kind == DumpKind::Stats {
        stats.print(arguments.json, out)?;
    }
    Ok(())
}

/// Returns true if the decoder has to track the clock. Statistics need it only if the packets that
/// they have counted so far have core clocks; without it TIPs decode three times as fast.
fn needs_clock(kind: DumpKind, stats: &Stats) -> bool {
    kind.is_timed() && (kind != DumpKind::Stats || stats.reports_cycles())
}

/// Prints a recording, the latest for `None`. For anything but the sideband and the log, an exact
/// one is replayed first, unless its path was kept.
fn dump_recording(
    arguments: &Dump,
    kind: DumpKind,
    recording: Option<&Path>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let found = NamedRecording::find(recording)?;
    let reader = Reader::open(found.dir())?;
    if kind == DumpKind::Sideband {
        return dump_sideband(&reader, arguments.json, out);
    }
    if kind == DumpKind::Log {
        return dump_log::print(&reader, arguments, out);
    }
    let reader = path_recording_of(reader)?;
    let tids = wanted_threads(&reader, arguments.thread.map(Tid))?;
    if kind == DumpKind::Packets {
        let ids = traces_to_dump(&reader, &tids, arguments.thread.is_some())?;
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
            print_packets(
                releasing_memory(found, trace.releaser()),
                arguments,
                clocks,
                errata,
                out,
            )?;
        }
        return Ok(());
    }
    let timeline = Timeline::open(reader, Options::default())?;
    report_faults(&timeline);
    let ends = tids.iter().map(|tid| timeline.instructions(*tid));
    arguments.check_range(ends.max().unwrap_or(0), "the path")?;
    dump_threads(arguments, kind, &timeline, &tids, out)
}

/// Returns the thread that the user named, or all threads for `None`. Fails if the recording has no
/// such thread.
fn wanted_threads(reader: &Reader, named: Option<Tid>) -> Result<Vec<Tid>, Failure> {
    let all = reader.threads()?;
    let Some(tid) = named else { return Ok(all) };
    if !all.contains(&tid) {
        let all: Vec<_> = all.iter().map(Tid::to_string).collect();
        return Err(format!("no thread {tid}; the recording has {}", all.join(", ")).into());
    }
    Ok(vec![tid])
}

/// Prints the histories of threads, one after the other and with labels if there are several, or
/// the counts of all of them together, with the packets of all CPUs unless the user named a thread.
fn dump_threads(
    arguments: &Dump,
    kind: DumpKind,
    timeline: &Timeline,
    tids: &[Tid],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut disassembler = Disassembler::new(symbols_of(timeline.images()));
    let mut stats = Stats::default();
    let clocks = timeline.reader().manifest().capture.clocks().is_some();
    let errata = errata_of(timeline.reader().manifest());
    let labels = tids.len() > 1 && !arguments.addresses && kind != DumpKind::Stats;
    for tid in tids {
        if labels && arguments.json {
            writeln!(out, "{}", serde_json::json!({"thread": tid}))?;
        } else if labels {
            writeln!(out, "thread {tid}")?;
        }
        if kind == DumpKind::Stats
            && let Some(trace) = timeline.trace(*tid)
        {
            stats.count_packets(trace.as_ref(), trace.releaser(), errata);
        }
        // The packets of a CPU's trace are not counted yet.
        let is_timed =
            needs_clock(kind, &stats) || kind == DumpKind::Stats && timeline.trace(*tid).is_none();
        let mut printer = Printer::new(arguments, kind, clocks, out, &mut disassembler, &mut stats);
        // The depth of calls is counted from the beginning of the path.
        let from = if kind == DumpKind::Calls { 0 } else { arguments.range().start };
        let print = &mut |visit: Visit<'_>| printer.visit(&visit);
        // For a range, blocks are counted one by one.
        let is_whole = arguments.range() == (0..u64::MAX);
        match (is_timed, kind) {
            (true, _) => visit_result(timeline.visit_timed(*tid, from, print))?,
            (false, DumpKind::Stats) if is_whole => {
                match timeline.count_instructions(*tid, print) {
                    ControlFlow::Continue(totals) => printer.add_totals(totals),
                    ControlFlow::Break(end) => visit_result(ControlFlow::Break(end))?,
                }
            }
            (false, _) => visit_result(timeline.visit(*tid, from, print))?,
        }
    }
    if kind == DumpKind::Stats {
        for trace in timeline.reader().traces()? {
            if let TraceId::Cpu(_) = trace {
                // Which of a CPU's packets are of one thread is unknown.
                if arguments.thread.is_some() {
                    stats.omit_packets();
                    break;
                }
                let trace = timeline.reader().trace(trace)?;
                stats.count_packets(trace.as_ref(), trace.releaser(), errata);
            }
        }
        stats.print(arguments.json, out)?;
    }
    Ok(())
}

/// Returns all traces; if threads are `named`, the traces of the threads `tids`. Fails for named
/// threads if the traces are of CPUs.
fn traces_to_dump(reader: &Reader, tids: &[Tid], named: bool) -> Result<Vec<TraceId>, Failure> {
    let all = reader.traces()?;
    let of_threads = all.iter().all(|trace| matches!(trace, TraceId::Thread(_)));
    match (named, of_threads) {
        (false, _) => Ok(all),
        (true, true) => Ok(tids.iter().copied().map(TraceId::Thread).collect()),
        (true, false) => Err("the traces are of CPUs, not of single threads".into()),
    }
}

/// Prints the records of the sideband, one a line, as text or as JSON.
fn dump_sideband(reader: &Reader, json: bool, out: &mut impl Write) -> Result<(), Failure> {
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
fn visit_result(flow: ControlFlow<Option<io::Error>>) -> io::Result<()> {
    match flow {
        ControlFlow::Break(Some(error)) => Err(error),
        _ => Ok(()),
    }
}
