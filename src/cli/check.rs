//! `contraflow check`: replays an exact recording to its end, and reports whether the replay is the
//! recorded run. The exit status is that of an error if it is not, and if the user interrupts it.

use super::found::NamedRecording;
use super::open::report_cpu_differences;
use super::{EXIT_ERROR, Failure, arguments, count_text, say};
use crate::capture::Leaving;
use crate::recording::Reader;
use crate::replay::{Replay, Verdict};
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

pub(super) fn run(arguments: &arguments::Recording) -> Result<ExitCode, Failure> {
    let found = NamedRecording::find(arguments.recording.as_deref())?;
    let leaving = Leaving::on_signals();
    let begun = Instant::now();
    let reader = Reader::open(found.dir())?;
    report_cpu_differences(&reader);
    let mut replay = Replay::open(reader)?;
    let verdict = replay.verify(&|| leaving.is_asked())?;
    let seconds = begun.elapsed().as_secs_f64();
    for difference in &verdict.differences {
        say(difference);
    }
    if leaving.is_asked() && !verdict.is_whole && verdict.differences.is_empty() {
        say(&"interrupted: the rest is not compared");
        return Ok(ExitCode::from(EXIT_ERROR));
    }
    let printed = writeln!(stdout(), "{} ({seconds:.2} s)", words(&verdict));
    // The status is that of a difference, also if the words have no reader.
    if !verdict.differences.is_empty() {
        return Ok(ExitCode::from(EXIT_ERROR));
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the verdict as a sentence. A keyframe is a copy of the program's state in the recording;
/// those that are `unusable` cannot be loaded, and are not among the compared `keyframes`.
/// `is_whole` is false if the recording is cut, if the program went on without its recorder, or if
/// the replay was interrupted.
fn words(verdict: &Verdict) -> String {
    let Verdict { entries, ticks, bytes, threads, is_whole, differences, .. } = verdict;
    let compared = match verdict.keyframes {
        1 => "1 keyframe".to_owned(),
        compared => format!("{compared} keyframes"),
    };
    let keyframes = match (verdict.keyframes, verdict.unusable) {
        (0, 0) => String::new(),
        (_, 0) => format!(" and {compared}"),
        (_, unusable) => format!(" and {compared}, without {unusable} that cannot be loaded"),
    };
    let run = format!("{entries} entries and {ticks} ticks{keyframes}");
    match (is_whole, differences.is_empty()) {
        (_, false) => format!("{run} are as recorded, but not the state"),
        (true, true) => format!(
            "the replay is the recorded run: {run}; the registers of {} and {bytes} \
             bytes of memory at the end",
            count_text(*threads, "thread")
        ),
        (false, true) => {
            format!("the replay is the recorded run as far as the recording goes: {run}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_at_a_keyframe_is_not_one_at_the_end() {
        let differences = vec!["the keyframe after entry 7: ...".to_owned()];
        let verdict =
            Verdict { entries: 9, ticks: 20, keyframes: 1, differences, ..Verdict::default() };
        let said = words(&verdict);
        assert_eq!(
            said,
            "9 entries and 20 ticks and 1 keyframe are as recorded, but not the state"
        );
    }
}
