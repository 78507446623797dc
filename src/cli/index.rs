//! `contraflow index`: builds and saves the index of a recording, so that a large one opens faster.

use super::open::{path_recording_of, report_faults};
use super::progress::Bar;
use super::{Failure, arguments, count_text};
use crate::common::Visible;
use crate::recording::{Reader, Store};
use crate::timeline::{Options, Timeline};
use std::io::Write;
use std::num::NonZero;
use std::process::ExitCode;

/// Builds and saves the index, or loads a saved one unless --force is given, and prints its size.
/// Fails if the index must not be saved.
pub(super) fn run(arguments: &arguments::Index) -> Result<ExitCode, Failure> {
    let dir = Store::of_user().find(arguments.recording.as_deref())?;
    let reader = Reader::open(&dir)?;
    let reader = path_recording_of(reader)?;
    let mut options = Options { use_saved_index: !arguments.force, ..Options::default() };
    if let Some(jobs) = arguments.jobs {
        options.workers = NonZero::get(jobs);
    }
    let mut bar = Bar::new("indexing");
    let watch = &mut |progress| bar.show(progress);
    let timeline = Timeline::open_with_progress(reader, options, watch)?;
    drop(bar);
    report_faults(&timeline);
    if !timeline.save_index()? {
        let why = if timeline.missing_images().is_empty() {
            "still growing or cut: it has no index"
        } else {
            "damaged: its index is not saved"
        };
        return Err(format!("{}: {why}", dir.display()).into());
    }
    let segments: usize = timeline.threads().map(|tid| timeline.segments(tid)).sum();
    let segments = count_text(segments as u64, "segment");
    let threads = count_text(timeline.threads().count() as u64, "thread");
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: {} instructions in {segments} of {threads}",
        Visible(dir.display()),
        timeline.total()
    )?;
    Ok(ExitCode::SUCCESS)
}
