//! `contraflow info`: the contents of a recording.

use super::found::NamedRecording;
use super::record::size_text;
use super::{EXIT_ERROR, Failure, arguments, list, say};
use crate::common::{Tid, Visible};
use crate::recording::{BackendName, Capture, Error, Manifest, Reader, TraceId};
use crate::timeline::{Options, Timeline};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Prints the contents, also of a damaged recording: then also a message for each damaged file, and
/// the exit status is that of an error.
pub(super) fn run(arguments: &arguments::Recording) -> Result<ExitCode, Failure> {
    let found = NamedRecording::find(arguments.recording.as_deref())?;
    let reader = Reader::open(found.dir())?;
    let damage = reader.find_damage();
    std::io::stdout().lock().write_all(text(&reader, found.user_path(), &damage).as_bytes())?;
    for fault in &damage {
        say(fault);
    }
    Ok(if damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_ERROR) })
}

/// Returns all lines to print. `shown` is the path that the user knows, `damage` the damaged files.
/// Checks the numbers of instructions only if the index is saved and nothing is damaged.
fn text(reader: &Reader, shown: &Path, damage: &[Error]) -> String {
    let manifest = reader.manifest();
    let mut lines = vec![
        format!("recording    {}", shown.display()),
        format!("program      {}", manifest.program),
    ];
    if manifest.capture.import.is_none() {
        lines.push(format!("arguments    {}", manifest.argv.join(" ")));
        lines.push(format!("directory    {}", manifest.cwd));
    }
    lines.push(format!("process      {}", manifest.pid));
    lines.push(format!("cpu          {}", manifest.cpu));
    lines.push(format!(
        "capture      {}, by contraflow {} (format {})",
        capture_text(&manifest.capture),
        manifest.written_by,
        manifest.format
    ));
    if !manifest.capture.filter.is_empty() {
        lines.push(format!("filter       {}", manifest.capture.filter.join(", ")));
    }
    lines.push(format!("end          {}", list::ending_text(reader)));
    if let Some(end) = manifest.end.as_ref().filter(|end| end.duration_ns > 0) {
        let seconds = std::time::Duration::from_nanos(end.duration_ns).as_secs_f64();
        lines.push(format!("time         {seconds:.3} s"));
    }
    lines.extend(history_text(manifest).map(|history| format!("history      {history}")));
    let is_exact = manifest.capture.backend == BackendName::Exact;
    let damaged = |name: &str| damage.iter().any(|fault| fault.path.ends_with(name));
    let state = match reader.has_core() {
        _ if damaged("core") => "damaged",
        true => "core",
        false => "not recorded",
    };
    lines.push(format!("final state  {state}"));
    lines.extend(log_text(reader, &damaged).map(|log| format!("log          {log}")));
    for tid in reader.threads().unwrap_or_default() {
        let traces = reader.traces().unwrap_or_default();
        let own = Some(TraceId::Thread(tid)).filter(|trace| traces.contains(trace) && !is_exact);
        let own = own.map(|trace| trace_text(reader, trace, &damaged));
        let facts: Vec<_> = thread_facts(reader, tid).into_iter().chain(own).collect();
        lines.push(format!("thread       {tid} {}", facts.join(", ")).trim_end().to_owned());
    }
    for trace in reader.traces().unwrap_or_default() {
        if let TraceId::Cpu(cpu) = trace {
            lines.push(format!("cpu trace    {cpu} {}", trace_text(reader, trace, &damaged)));
        }
    }
    if damage.is_empty()
        && reader.saved_index().is_some()
        && let Ok(again) = Reader::open(reader.dir())
        && let Ok(timeline) = Timeline::open(again, Options::default())
    {
        lines
            .extend(timeline.miscounts().iter().map(|miscount| format!("wrong        {miscount}")));
    }
    lines.iter().fold(String::new(), |text, line| text + &Visible(line).to_string() + "\n")
}

/// Returns the kept part of the history in words; `None` if the manifest does not have it.
fn history_text(manifest: &Manifest) -> Option<String> {
    let wanted = Some(&manifest.capture.history).filter(|words| !words.is_empty())?;
    let since = manifest.end.as_ref().and_then(|end| end.ring_since_ns);
    let since = since.map(|ns| {
        let seconds = std::time::Duration::from_nanos(ns).as_secs_f64();
        format!("; that size was reached after {seconds:.3} s")
    });
    Some(format!("{wanted}{}", since.unwrap_or_default()))
}

/// Returns the method of capture in words.
fn capture_text(capture: &Capture) -> String {
    match &capture.import {
        Some(import) => format!("import of the {} {}", import.kind, import.source),
        None if capture.backend == BackendName::Exact => "exact".to_owned(),
        None => {
            format!("{}, a PSB each {}", capture.backend, size_text(capture.psb_period_bytes))
        }
    }
}

/// Returns the name of a thread, its number of instructions and the place of its end; only the name
/// for an exact recording. Empty if the manifest does not have the thread.
fn thread_facts(reader: &Reader, tid: Tid) -> Vec<String> {
    let manifest = reader.manifest();
    let entry = manifest.end.iter().flat_map(|end| &end.threads).find(|t| t.tid == tid);
    let Some(entry) = entry else { return Vec::new() };
    if manifest.capture.backend == BackendName::Exact {
        return vec![entry.name.clone()];
    }
    let name = if entry.name.is_empty() { String::new() } else { format!("{:<16} ", entry.name) };
    let instructions = format!("{name}{} instructions", entry.instructions);
    let end = match entry.final_pc {
        Some(pc) => Some(format!("ended at {pc}")),
        None if manifest.capture.is_of_cpu() => None,
        None => Some("ended at unknown".to_owned()),
    };
    [instructions].into_iter().chain(end).collect()
}

/// Returns the entries, ticks and size of the log as text, or `damaged`; `None` without a log.
/// `damaged` returns true for the name of a damaged file.
fn log_text(reader: &Reader, damaged: &dyn Fn(&str) -> bool) -> Option<String> {
    if damaged("log.bin") {
        return Some("damaged".to_owned());
    }
    let listed = reader.manifest().end.as_ref().and_then(|end| end.log);
    let log = listed.or_else(|| reader.log_totals().ok().flatten())?;
    Some(format!("{} entries, {} ticks, {}", log.entries, log.ticks, size_text(log.size_bytes)))
}

/// Returns the size of a trace as text, or that it is damaged, as it is also if it cannot be read.
fn trace_text(reader: &Reader, trace: TraceId, damaged: &dyn Fn(&str) -> bool) -> String {
    let bytes = reader.listed_trace_bytes(trace);
    let bytes = bytes.or_else(|| Some(reader.trace(trace).ok()?.as_ref().len() as u64));
    match bytes {
        Some(bytes) if !damaged(&format!("trace/{trace}.pt")) => size_text(bytes) + " of trace",
        _ => "damaged trace".to_owned(),
    }
}
