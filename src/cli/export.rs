//! `contraflow export`: a recording in the format of another tool.

use super::found::NamedRecording;
use super::open::path_recording_of;
use super::record::size_text;
use super::{Failure, arguments, export_calls, export_parquet, quoted, say};
use crate::ask::CallFormat;
use crate::recording::Reader;
use crate::recording::export::export_perf;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Export) -> Result<ExitCode, Failure> {
    use arguments::ExportTo;
    match &arguments.to {
        ExportTo::Perf(perf) => to_perf(perf),
        ExportTo::Perfetto(calls) => export_calls::run(calls, CallFormat::Perfetto),
        ExportTo::Chrome(calls) => export_calls::run(calls, CallFormat::Chrome),
        ExportTo::Speedscope(calls) => export_calls::run(calls, CallFormat::Speedscope),
        ExportTo::Parquet(parquet) => export_parquet::run(parquet),
        ExportTo::Pprof(calls) => export_calls::pprof(calls),
    }
}

/// Exports a recording as perf.data. Fails if the recording is cut. Prints a message about each
/// image whose code the export lacks, also with --quiet.
fn to_perf(perf: &arguments::ExportPerf) -> Result<ExitCode, Failure> {
    let found = NamedRecording::find(perf.recording.as_deref())?;
    let reader = Reader::open(found.dir())?;
    if reader.is_cut() {
        return Err(format!(
            "{}: the recorder was killed or is still running; only complete recordings can be exported",
            found.user_path().display()
        )
        .into());
    }
    let reader = path_recording_of(reader)?;
    let exported = export_perf(&reader, &perf.output, perf.force)?;
    for lost in &exported.lost {
        say(lost);
    }
    if !perf.quiet {
        let (out, symfs) = (perf.output.display(), exported.symfs.display());
        say(&format!(
            "{out}: {} of trace; its code is in {symfs}",
            size_text(exported.trace_bytes)
        ));
        let words = [&perf.output, &exported.symfs].map(|path| quoted::for_user(path.as_os_str()));
        let [out, symfs] = words;
        say(&format!(
            "decode it with: perf script -i {out} --symfs {symfs} --itrace=i0ns -F tid,ip"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
