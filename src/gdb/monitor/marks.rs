//! Positions to which the user has given names.

use super::NO_HISTORY;
use super::about::position_text;
use crate::common::Visible;
use crate::session::{Run, Session};
use std::fmt::Write;

/// The maximum size of a mark's name.
const NAME_LIMIT_BYTES: usize = 100;
const MARKS_LIMIT: usize = 10_000;

/// Names the current position, and returns text for the user. A mark of that name moves here.
/// Refuses a bad name ([`is_name`]), and a new one after [`MARKS_LIMIT`].
pub(super) fn mark<R: Run>(session: &mut Session<R>, name: &str) -> String {
    let Some(position) = session.run().position() else { return NO_HISTORY.to_owned() };
    if !is_name(name) {
        return format!(
            "a mark has a name that begins with a letter or `_`, has at most {NAME_LIMIT_BYTES} \
             bytes, and is neither `start`, `begin` nor `end`\n"
        );
    }
    if session.marks().len() >= MARKS_LIMIT && !session.marks().contains_key(name) {
        return "there are too many marks: `monitor unmark NAME` removes one\n".to_owned();
    }
    let is_exact = session.run().is_exact();
    let here = position_text(position.at, is_exact);
    let shown = Visible(name);
    match session.mark(name, Some(position.at)) {
        Some(before) if before != position.at => {
            let before = position_text(before, is_exact);
            format!("mark {shown}: position {here}, no longer {before}\n")
        }
        _ => format!("mark {shown}: position {here}\n"),
    }
}

/// Returns true if a mark may have this name: it begins with a letter or `_`, is no longer than
/// [`NAME_LIMIT_BYTES`], and is none of the words that `seek` takes instead of a mark.
fn is_name(name: &str) -> bool {
    let begins = name.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_');
    let taken = matches!(name, "start" | "begin" | "end");
    begins && !taken && name.len() <= NAME_LIMIT_BYTES
}

/// Removes a mark, and returns text for the user, also if there is no such mark.
pub(super) fn unmark<R: Run>(session: &mut Session<R>, name: &str) -> String {
    match session.mark(name, None) {
        Some(_) => format!("mark {} is removed\n", Visible(name)),
        None => format!("there is no mark {}\n", Visible(name)),
    }
}

/// Returns a line for each mark with its position, or how to set one if there are none.
pub(super) fn list<R: Run>(session: &Session<R>) -> String {
    if session.marks().is_empty() {
        return "no marks: `monitor mark NAME` sets one here\n".to_owned();
    }
    let mut text = String::new();
    for (name, position) in session.marks() {
        // Writes to a string cannot fail.
        let position = position_text(*position, session.run().is_exact());
        let _ = writeln!(text, "{}: position {position}", Visible(name));
    }
    text
}
