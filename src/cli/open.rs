//! Opens a recording for those subcommands that walk it.

use super::progress::Bar;
use super::{Failure, say};
use crate::image::Bytes;
use crate::recording::{Reader, Store};
use crate::session::Recording;
use crate::state::FinalState;
use crate::timeline::{Options, Timeline};
use std::path::Path;

/// The recording that a user named, indexed. Says what is missing from it.
pub(super) fn recording(name: Option<&Path>) -> Result<Recording, Failure> {
    let dir = Store::of_user().find(name)?;
    let reader = Reader::open(&dir)?;
    if reader.is_cut() {
        say(&format!(
            "{}: the recorder was killed or is still at work: the recording is cut, and how the \
             program ended is not known",
            dir.display()
        ));
    }
    let state = final_state(&reader).unwrap_or_else(|fault| {
        say(&format!("{fault}; the registers and memory of the end are not known"));
        FinalState::default()
    });
    let mut bar = Bar::new("indexing");
    let watch = &mut |progress| bar.show(progress);
    let timeline = Timeline::open_watched(reader, Options::default(), watch)?;
    drop(bar);
    // Where it cannot be saved, the next one to open the recording builds it again.
    let _ = timeline.save_index();
    say_what_is_wrong(&timeline);
    Ok(Recording::new(timeline, state))
}

/// Images that are lost, and paths that are not what was recorded.
pub(super) fn say_what_is_wrong(timeline: &Timeline) {
    for lost in timeline.lost_images() {
        say(lost);
    }
    for miscount in timeline.miscounts() {
        say(&miscount);
    }
}

/// The final state of a recording, or nothing known, where its recorder was killed.
pub(super) fn final_state(reader: &Reader) -> Result<FinalState, Failure> {
    let Some(core) = reader.core()? else { return Ok(FinalState::default()) };
    let state = FinalState::of_core(&Bytes::new(core));
    Ok(state.map_err(|error| format!("{}: {error}", reader.dir().join("core").display()))?)
}
