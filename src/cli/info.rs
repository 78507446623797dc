//! `contraflow info`: what a recording holds.

use super::record::size;
use super::{Failure, arguments, list};
use crate::recording::{Reader, Store};
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Recording) -> Result<ExitCode, Failure> {
    let dir = Store::of_user().find(arguments.recording.as_deref())?;
    let reader = Reader::open(&dir)?;
    std::io::stdout().lock().write_all(text(&reader)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text(reader: &Reader) -> Result<String, Failure> {
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
    lines.push(format!("final state  {}", if reader.core()?.is_some() { "core" } else { "lost" }));
    for tid in reader.threads()? {
        let bytes = reader.trace(tid)?.as_ref().len() as u64;
        let entry = manifest.end.iter().flat_map(|end| &end.threads).find(|t| t.tid == tid);
        let what = entry.map_or_else(String::new, |thread| {
            let at = thread.final_pc.map_or_else(|| "unknown".to_owned(), |pc| pc.to_string());
            format!("{:<16} {} instructions, ended at {at}, ", thread.name, thread.instructions)
        });
        lines.push(format!("thread       {tid} {what}{} of trace", size(bytes)));
    }
    Ok(lines.join("\n") + "\n")
}
