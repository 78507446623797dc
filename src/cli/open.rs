//! Opens a recording for the subcommands that walk it. A recording is of the path (the control
//! flow, as packets), or exact (the inputs, from which a replay can make the path).

use super::progress::Bar;
use super::{Failure, say};
use crate::capture::Leaving;
use crate::capture::host::{host_cpu, lacking};
use crate::common::Visible;
use crate::recording::{BackendName, Reader};
use crate::replay;
use crate::session::{Recording, Replayed, final_state};
use crate::state::FinalState;
use crate::timeline::{Options, Timeline};
use std::path::Path;

/// An open recording that a debugger can walk.
pub(super) enum DebuggableRecording {
    /// A recording of the path, with the values of its end.
    Path(Box<Recording>),
    /// An exact recording, which is replayed.
    Exact(Box<Replayed>),
}

/// Opens the recording in `dir` for a debugger, at its end, and prints progress and messages about
/// its faults. An exact one is replayed to its end, or to the place where the replay fails, which
/// may take long.
pub(super) fn for_debugger(dir: &Path) -> Result<DebuggableRecording, Failure> {
    let reader = Reader::open(dir)?;
    if reader.log()?.is_none() {
        return Ok(DebuggableRecording::Path(Box::new(open_path_recording(reader)?)));
    }
    report_if_cut(&reader);
    report_cpu_differences(&reader);
    let mut bar = Bar::new("replaying");
    let (run, failure) = Replayed::at_end(reader, &mut |done, total| bar.show_part(done, total))?;
    drop(bar);
    if let Some(failure) = failure {
        say(&failure);
    }
    Ok(DebuggableRecording::Exact(Box::new(run)))
}

/// Prints a message if this CPU lacks extensions of the recorded one, or is of another maker.
pub(super) fn report_cpu_differences(reader: &Reader) {
    let (recorded, here) = (&reader.manifest().cpu.vendor, host_cpu().vendor);
    if !recorded.is_empty() && *recorded != here {
        say(&format!(
            "{}: recorded on a CPU of another maker ({}; this one is {here}): some results, such as those \
             of RCPPS, RSQRTPS and FSIN, may be others here, and the replay ends where they are seen",
            reader.dir().display(),
            Visible(recorded),
        ));
    }
    let lacking = lacking(&reader.manifest().features);
    if !lacking.is_empty() {
        say(&format!(
            "{}: recorded on a CPU with {}, which this one does not have: where the program used \
             that, the replay ends",
            reader.dir().display(),
            lacking.join(", ")
        ));
    }
}

/// Opens a recording of the path: reads its final state, loads its index or builds and saves it,
/// and prints messages about missing parts.
fn open_path_recording(reader: Reader) -> Result<Recording, Failure> {
    report_if_cut(&reader);
    let state = final_state(&reader).unwrap_or_else(|fault| {
        say(&format!("{fault}; the final registers and memory are unknown"));
        FinalState::default()
    });
    let mut bar = Bar::new("indexing");
    let watch = &mut |progress| bar.show(progress);
    let timeline = Timeline::open_with_progress(reader, Options::default(), watch)?;
    drop(bar);
    // If it cannot be saved, the next open builds it again.
    let _ = timeline.save_index();
    report_faults(&timeline);
    Ok(Recording::new(timeline, state))
}

/// Returns the recording of a run's path: the recording itself, unless it is exact. For an exact
/// one, a replay makes it on first use, which Ctrl-C ends with an error, and it is kept in the
/// directory of the exact one.
pub(super) fn path_recording_of(reader: Reader) -> Result<Reader, Failure> {
    if reader.manifest().capture.backend != BackendName::Exact {
        return Ok(reader);
    }
    if let Some(path) = reader.kept_path() {
        return Ok(path);
    }
    report_cpu_differences(&reader);
    let leaving = Leaving::on_signals();
    let mut bar = Bar::new("replaying");
    let goes_on = &mut |done, total| {
        bar.show_part(done, total);
        !leaving.is_asked()
    };
    Ok(replay::path_of(&reader, goes_on)?)
}

/// Prints a message if a recording has no end.
fn report_if_cut(reader: &Reader) {
    if reader.is_cut() {
        say(&format!(
            "{}: the recorder was killed or is still running: the recording is cut, and the \
             program's ending is unknown",
            reader.dir().display()
        ));
    }
}

/// Prints messages about missing images, and about threads whose path has another number of
/// instructions than were recorded.
pub(super) fn report_faults(timeline: &Timeline) {
    for missing in timeline.missing_images() {
        say(missing);
    }
    for miscount in timeline.miscounts() {
        say(&miscount);
    }
}
