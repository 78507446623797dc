//! `contraflow diff`: where two runs part, and where they meet again.

use super::answer::{Answer, NO_VALUES};
use super::rows::Cell;
use super::{EXIT_ERROR, Failure, ask, ask_arguments, count_text, say};
use crate::ask::{Cause, Compared, Difference, Pair, Place, Step};
use crate::session::Position;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// The names of the columns, in the order of `DifferenceText::cells`.
const NAMES: [&str; 16] = [
    "good_position",
    "bad_position",
    "good_thread",
    "bad_thread",
    "cause",
    "function",
    "file",
    "line",
    "good_next",
    "bad_next",
    "values",
    "good_instructions",
    "bad_instructions",
    "meeting",
    "good_meeting",
    "bad_meeting",
];
/// The exit status if the runs are not the same, as that of diff(1).
const EXIT_DIFFERENT: u8 = 1;

/// Prints the differences. The exit status is [`EXIT_DIFFERENT`] also if all of them are in
/// libraries, or if only one of the runs has some thread; it is that of an error if the user
/// interrupts it.
pub(super) fn run(arguments: &ask_arguments::Diff) -> Result<ExitCode, Failure> {
    let (_good, mut good) = ask::open(Some(&arguments.good))?;
    let (_bad, mut bad) = ask::open(Some(&arguments.bad))?;
    let are_exact = [good.is_exact(), bad.is_exact()];
    if are_exact != [true, true] {
        say(&NO_VALUES);
    }
    let names = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let answer = Answer::begin(arguments.form, names, arguments.limit, good.last_position())?;
    let mut sink = |found: Difference| {
        let texts = DifferenceText { found: &found, are_exact };
        Ok(answer.print_row_of_lines(texts.cells(), || texts.lines())?)
    };
    let with_libraries = arguments.libraries;
    let mut pair = Pair { runs: [&mut good, &mut bad], with_libraries };
    let compared = pair.compare(&mut sink, &|| answer.is_interrupted())?;
    let nothing = if compared.in_libraries == 0 {
        "the runs took the same path".to_owned()
    } else {
        "the runs took the same path in the program's own code".to_owned()
    };
    let code = answer.end(&nothing)?;
    report_rest(&compared);
    let is_same = compared.reported + compared.in_libraries + compared.lone_threads == 0;
    // An error: the user interrupted the comparison.
    Ok(if code == ExitCode::from(EXIT_ERROR) || is_same {
        code
    } else {
        ExitCode::from(EXIT_DIFFERENT)
    })
}

/// Prints messages about the differences and threads that the comparison left out, and about
/// threads that it did not compare to their ends.
fn report_rest(compared: &Compared) {
    if compared.in_libraries > 0 {
        let count = compared.in_libraries;
        say(&format!("{count} in libraries left out: --libraries lists them"));
    }
    if compared.lone_threads > 0 {
        say(&format!("{} in one of the runs only", count_text(compared.lone_threads, "thread")));
    }
    if compared.is_cut {
        say(
            &"where a thread did not meet the other within two million branches, the rest of it is not \
              compared",
        );
    }
}

/// A difference, to be printed as cells or as lines. In pairs, the good run comes first: `side` is
/// 0 for it, and 1 for the bad run.
struct DifferenceText<'a> {
    found: &'a Difference,
    are_exact: [bool; 2],
}

impl DifferenceText<'_> {
    /// Returns the position of a step of the run `side` as text.
    fn position(&self, side: usize, step: &Step) -> String {
        Position::text(step.position, self.are_exact[side])
    }

    /// Returns the number of instructions that each run executed after the difference and before
    /// the meeting, from `next` on; `None` if the runs do not meet again, or if one has no next
    /// instruction.
    fn instructions(&self) -> Option<[u64; 2]> {
        let meeting = self.found.meeting.as_ref()?;
        let next = |side: usize| self.found.next[side].as_ref().map(|next| next.index);
        let count = |side: usize| Some(meeting[side].index.saturating_sub(next(side)?));
        Some([count(0)?, count(1)?])
    }

    /// Returns the values that decided a branch as text, `a = 1, b = 2 | 3`: both values of a name
    /// if they differ. Empty if they are unknown.
    fn values(&self) -> String {
        let mut text = String::new();
        for (name, [good, bad]) in &self.found.values {
            let between = if text.is_empty() { "" } else { ", " };
            // Writes to a string cannot fail.
            let _ = if good == bad {
                write!(text, "{between}{name} = {good}")
            } else {
                write!(text, "{between}{name} = {good} | {bad}")
            };
        }
        text
    }

    /// Returns the cells, in the order of [`NAMES`]. Function, file and line are those of the good
    /// run.
    fn cells(&self) -> Vec<Cell> {
        let Self { found, .. } = self;
        let (file, line) = found.at[0].place.line.clone().unzip();
        let step = |side: usize, step: Option<&Step>| {
            Cell::or_null(step.map(|step| Cell::text(self.position(side, step))))
        };
        let next = |side: usize| {
            let place = found.next[side].as_ref().map(place);
            Cell::or_null(place.map(Cell::text))
        };
        let meeting = |side: usize| found.meeting.as_ref().map(|meeting| &meeting[side]);
        let count = |side: usize| {
            Cell::or_null(self.instructions().map(|counts| Cell::number(counts[side])))
        };
        let value = |(name, [good, bad]): &(String, [String; 2])| json!({ "name": name, "good": good, "bad": bad });
        let values: Vec<Value> = found.values.iter().map(value).collect();
        vec![
            step(0, Some(&found.at[0])),
            step(1, Some(&found.at[1])),
            Cell::thread(found.threads[0]),
            Cell::thread(found.threads[1]),
            Cell::text(cause(found.cause)),
            Cell::or_null(found.at[0].place.function.as_deref().map(Cell::text)),
            Cell::or_null(file.as_deref().map(Cell::text)),
            Cell::or_null(line.map(|line| Cell::number(line.into()))),
            next(0),
            next(1),
            Cell { text: self.values(), json: Value::from(values) },
            count(0),
            count(1),
            Cell::or_null(meeting(0).map(|step| Cell::text(place(step)))),
            step(0, meeting(0)),
            step(1, meeting(1)),
        ]
    }

    /// Returns the lines in the text form: the place, which is the good run's, and the cause; where
    /// each run goes on; the values, if any are known; and where they meet again.
    fn lines(&self) -> Vec<String> {
        let Self { found, .. } = self;
        let at = |side: usize, step: &Step| self.position(side, step);
        let next = |side: usize| match &found.next[side] {
            Some(next) => place(next),
            None => "its end".to_owned(),
        };
        let [[good, bad], [good_thread, bad_thread]] = [
            [0, 1].map(|side| at(side, &found.at[side])),
            found.threads.map(|tid| tid.to_string()),
        ];
        let here = place(&found.at[0]);
        let mut lines = vec![
            format!(
                "{good} | {bad}  thread {good_thread} | {bad_thread}  {here}: {}",
                cause(found.cause)
            ),
            format!("    goes on to {} | {}", next(0), next(1)),
        ];
        if !found.values.is_empty() {
            lines.push(format!("    {}", self.values()));
        }
        lines.push(match (&found.meeting, self.instructions()) {
            (Some([good, bad]), Some([goods, bads])) => format!(
                "    after {goods} | {bads} instructions they meet at {}, {} | {}",
                place(good),
                at(0, good),
                at(1, bad)
            ),
            _ => "    they do not meet again".to_owned(),
        });
        lines
    }
}

/// Returns the function and line of an instruction, or its address where there are no symbols.
fn place(step: &Step) -> String {
    if *step.place == Place::default() { step.addr.to_string() } else { step.place.to_string() }
}

/// Returns a cause as a word.
const fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Branch => "branch",
        Cause::Target => "target",
        Cause::Event => "event",
        Cause::Beginning => "beginning",
    }
}
