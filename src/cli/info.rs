//! `contraflow info`: what a recording holds.

use super::record::size;
use super::{EXIT_ERROR, Failure, arguments, list, say};
use crate::common::Visible;
use crate::recording::{Error, Reader, Store};
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Recording) -> Result<ExitCode, Failure> {
    let dir = Store::of_user().find(arguments.recording.as_deref())?;
    let reader = Reader::open(&dir)?;
    let damage = reader.damage();
    std::io::stdout().lock().write_all(text(&reader, &damage).as_bytes())?;
    for fault in &damage {
        say(fault);
    }
    Ok(if damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_ERROR) })
}

fn text(reader: &Reader, damage: &[Error]) -> String {
    let manifest = reader.manifest();
    let cpu = &manifest.cpu;
    let mut lines = vec![
        format!("recording    {}", reader.dir().display()),
        format!("program      {}", manifest.program),
        format!("arguments    {}", manifest.argv.join(" ")),
        format!("directory    {}", manifest.cwd),
        format!("process      {}", manifest.pid),
        format!("cpu          {} {}/{}/{}", cpu.vendor, cpu.family, cpu.model, cpu.stepping),
        format!(
            "capture      {}, a PSB each {}, by contraflow {} (format {})",
            manifest.capture.backend,
            size(manifest.capture.psb_period_bytes),
            manifest.written_by,
            manifest.format
        ),
        format!("end          {}", list::ending(reader)),
    ];
    if let Some(end) = &manifest.end {
        let seconds = std::time::Duration::from_nanos(end.duration_ns).as_secs_f64();
        lines.push(format!("time         {seconds:.3} s"));
    }
    let damaged = |name: &str| damage.iter().any(|fault| fault.path.ends_with(name));
    let state = match reader.has_core() {
        _ if damaged("core") => "damaged",
        true => "core",
        false => "not known",
    };
    lines.push(format!("final state  {state}"));
    for tid in reader.threads().unwrap_or_default() {
        let entry = manifest.end.iter().flat_map(|end| &end.threads).find(|t| t.tid == tid);
        let what = entry.map_or_else(String::new, |thread| {
            let at = thread.final_pc.map_or_else(|| "unknown".to_owned(), |pc| pc.to_string());
            format!("{:<16} {} instructions, ended at {at}, ", thread.name, thread.instructions)
        });
        let bytes = entry.map(|thread| thread.trace_bytes);
        let bytes = bytes.or_else(|| Some(reader.trace(tid).ok()?.as_ref().len() as u64));
        let trace = match bytes {
            Some(bytes) if !damaged(&format!("trace/{tid}.pt")) => size(bytes) + " of trace",
            _ => "damaged trace".to_owned(),
        };
        lines.push(format!("thread       {tid} {what}{trace}"));
    }
    lines.iter().fold(String::new(), |text, line| text + &Visible(line).to_string() + "\n")
}
