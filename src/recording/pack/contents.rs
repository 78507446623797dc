//! The list of files at the start of a packed recording, and the names that it may have.

use super::super::error::ErrorKind;
use super::super::format::{
    CHECKSUMS, CORE, DEBUG_DIR, IMAGE_DIR, KEYFRAME_DIR, MANIFEST, PLACES, SIDEBAND, SOURCE_DIR,
    STARTING, TRACE_DIR, first_entry_in_name,
};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The name of the archive's first file, which lists the others.
pub(super) const CONTENTS: &str = "contents";
/// The first words of the list, before its version.
const TITLE: &str = "contraflow packed recording ";
/// The version of packed recordings that this program reads and writes.
const VERSION: u32 = 1;

/// The maximum length of a component of a path (`NAME_MAX` of the kernel).
const COMPONENT_LIMIT_BYTES: usize = 255;
/// A length that hexadecimal names must not reach: a component has room for them and an extension.
const HEXADECIMAL_END_CHARS: usize = COMPONENT_LIMIT_BYTES - 8;
/// The maximum length of a file's path in a recording: with a directory before it, less than
/// `PATH_MAX`.
const NAME_LIMIT_BYTES: usize = 3000;
/// Characters of a SHA-256 in hexadecimal.
const IMAGE_NAME_CHARS: usize = 64;
/// The maximum number of digits in a name.
const NUMBER_CHARS: usize = 20;

/// A file of a packed recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The file's path in the recording.
    pub(super) name: String,
    pub(super) size_bytes: u64,
}

/// Returns the list as text: the version, then size and name of each file.
pub(super) fn text(members: &[Member]) -> String {
    members.iter().fold(format!("{TITLE}{VERSION}\n"), |mut text, member| {
        // Writes to a string cannot fail.
        let _ = writeln!(text, "{} {}", member.size_bytes, member.name);
        text
    })
}

/// Parses the list. Accepts only what [`text`] returns for the files of one recording: names that a
/// recording can have, none of them twice, with a manifest as the last.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Member>, ErrorKind> {
    let list = std::str::from_utf8(bytes).map_err(|_| ErrorKind::NotPacked)?;
    let mut lines = list.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(TITLE)?.parse().ok());
    match version {
        Some(VERSION) => {}
        Some(found) => return Err(ErrorKind::PackVersion { found, expected: VERSION }),
        None => return Err(ErrorKind::NotPacked),
    }
    let mut members = Vec::new();
    let mut names = BTreeSet::new();
    for line in lines {
        let member = member(line).ok_or(ErrorKind::PackDamaged)?;
        if !is_known(&member.name) || !names.insert(member.name.clone()) {
            return Err(ErrorKind::PackName(member.name));
        }
        members.push(member);
    }
    // The last file is the manifest, or the starting one of an unfinished recording; never both.
    let ends_with_manifest =
        members.last().is_some_and(|last| [MANIFEST, STARTING].contains(&&*last.name))
            && !(names.contains(MANIFEST) && names.contains(STARTING));
    let is_own_text = text(&members) == list;
    if ends_with_manifest && is_own_text { Ok(members) } else { Err(ErrorKind::PackDamaged) }
}

fn member(line: &str) -> Option<Member> {
    let (size, name) = line.split_once(' ')?;
    Some(Member { name: name.to_owned(), size_bytes: size.parse().ok()? })
}

/// Returns true if a recording can have a file with this path in it, so that unpacking may write
/// it.
pub(super) fn is_known(name: &str) -> bool {
    let Some((dir, file)) = name.split_once('/') else {
        let is_log = first_entry_in_name(name).is_some();
        return is_log || [MANIFEST, STARTING, CHECKSUMS, SIDEBAND, PLACES, CORE].contains(&name);
    };
    match dir {
        TRACE_DIR => is_trace(file),
        IMAGE_DIR => file.len() == IMAGE_NAME_CHARS && is_hexadecimal(file),
        KEYFRAME_DIR => file.strip_suffix(".bin").is_some_and(is_number),
        DEBUG_DIR => file.strip_suffix(".debug").is_some_and(is_hexadecimal),
        SOURCE_DIR => name.len() <= NAME_LIMIT_BYTES && file.split('/').all(is_plain),
        _ => false,
    }
}

fn is_trace(file: &str) -> bool {
    let stem = file.strip_suffix(".pt").or_else(|| file.strip_suffix(".sum"));
    stem.map(|stem| stem.strip_prefix("cpu").unwrap_or(stem)).is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit();
    (1..=NUMBER_CHARS).contains(&text.len()) && text.bytes().all(is_digit)
}

fn is_hexadecimal(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (1..HEXADECIMAL_END_CHARS).contains(&text.len()) && text.bytes().all(is_digit)
}

/// Returns true if a component of a path is a plain name, not `.` or `..`, and fits in a line of
/// the list.
fn is_plain(component: &str) -> bool {
    (1..=COMPONENT_LIMIT_BYTES).contains(&component.len())
        && component != "."
        && component != ".."
        && !component.chars().any(char::is_control)
}
