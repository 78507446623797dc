//! `contraflow dump`: each rung of the ladder as text, of a recording or of a raw trace.

use super::disassembly::Disassembler;
use super::dump_arguments::{Dump, What};
use super::print::{Printer, packets};
use super::stats::Stats;
use super::{Failure, raw, say, source};
use crate::common::{Tid, Visible};
use crate::pt::Packets;
use crate::recording::{Reader, Store};
use crate::timeline::{Options, Timeline, visit_trace};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub(super) fn run(arguments: &Dump) -> Result<ExitCode, Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let (what, recording) = arguments.subject()?;
    match (&arguments.raw.pt, recording) {
        (Some(_), Some(recording)) => {
            let recording = recording.display();
            return Err(format!("{recording}: give a raw trace or a recording, not both").into());
        }
        (Some(pt), None) => of_trace(arguments, what, pt, &mut out)?,
        (None, recording) => of_recording(arguments, what, recording.as_deref(), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn of_trace(
    arguments: &Dump,
    what: What,
    path: &Path,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let trace = raw::open(path)?;
    if what == What::Sideband {
        return Err("a raw trace has no sideband".into());
    }
    if what == What::Packets {
        arguments.check_range(trace.len() as u64, "the trace")?;
        packets(Packets::synced(&trace), arguments, arguments.raw.clocks(), out)?;
        return Ok(());
    }
    let image = Arc::new(arguments.raw.image()?);
    let stored = image.sections().map(|s| (s.name.as_ref().to_owned(), s.bytes.clone()));
    let stored: HashMap<_, _> = stored.filter(|(name, _)| !name.is_empty()).collect();
    let symbols = source::of_images(stored, std::iter::once(&*image));
    let mut disassembler = Disassembler::new(symbols);
    let mut stats = Stats::default();
    let mut printer = Printer::new(arguments, what, out, &mut disassembler, &mut stats);
    let config = arguments.raw.config();
    finish(visit_trace(&trace, &image.reader(), config, &mut |visit| printer.visit(&visit)))?;
    arguments.check_range(printer.end(), "the trace's path")?;
    if what == What::Stats {
        stats.packets(&trace);
        stats.print(arguments.json, out)?;
    }
    Ok(())
}

fn of_recording(
    arguments: &Dump,
    what: What,
    recording: Option<&Path>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let dir = Store::of_user().find(recording)?;
    let reader = Reader::open(&dir)?;
    if what == What::Sideband {
        return sideband(&reader, arguments.json, out);
    }
    let tids = wanted_threads(&reader, arguments.thread.map(Tid))?;
    if what == What::Packets {
        let traces = tids.iter().map(|tid| reader.trace(*tid)).collect::<Result<Vec<_>, _>>()?;
        let sizes = traces.iter().map(|trace| trace.as_ref().len() as u64);
        arguments.check_range(sizes.max().unwrap_or(0), "the trace")?;
        for trace in traces {
            packets(Packets::new(trace.as_ref()), arguments, None, out)?;
        }
        return Ok(());
    }
    let timeline = Timeline::open(reader, Options::default())?;
    for lost in timeline.lost_images() {
        say(lost);
    }
    let ends = tids.iter().map(|tid| timeline.instructions(*tid));
    arguments.check_range(ends.max().unwrap_or(0), "the path")?;
    threads(arguments, what, &timeline, &tids, out)
}

/// The one that the user named, if it is there, or all.
fn wanted_threads(reader: &Reader, named: Option<Tid>) -> Result<Vec<Tid>, Failure> {
    let all = reader.threads()?;
    let Some(tid) = named else { return Ok(all) };
    if !all.contains(&tid) {
        let all: Vec<_> = all.iter().map(Tid::to_string).collect();
        return Err(format!("no thread {tid}; the recording has {}", all.join(", ")).into());
    }
    Ok(vec![tid])
}

fn threads(
    arguments: &Dump,
    what: What,
    timeline: &Timeline,
    tids: &[Tid],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut disassembler = Disassembler::new(source::symbols(timeline.images()));
    let mut stats = Stats::default();
    let labels = tids.len() > 1 && !arguments.addresses && what != What::Stats;
    for tid in tids {
        if labels && arguments.json {
            writeln!(out, "{}", serde_json::json!({"thread": tid}))?;
        } else if labels {
            writeln!(out, "thread {tid}")?;
        }
        if what == What::Stats {
            stats.packets(timeline.reader().trace(*tid)?.as_ref());
        }
        let mut printer = Printer::new(arguments, what, out, &mut disassembler, &mut stats);
        // Depth is counted from the beginning.
        let from = if what == What::Calls { 0 } else { arguments.range().start };
        finish(timeline.visit(*tid, from, &mut |visit| printer.visit(&visit)))?;
    }
    if what == What::Stats {
        stats.print(arguments.json, out)?;
    }
    Ok(())
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

fn finish(flow: ControlFlow<Option<io::Error>>) -> io::Result<()> {
    match flow {
        ControlFlow::Break(Some(error)) => Err(error),
        _ => Ok(()),
    }
}
