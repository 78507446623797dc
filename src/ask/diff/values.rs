//! The values that decided a branch: what the comparison before it compared, and the variables of
//! its line.

use super::Comparison;
use super::stream::Stretch;
use crate::ask::error::Error;
use crate::ask::machine::{StoppedThread, code_at, read_value, seek};
use crate::common::Addr;
use crate::insn::{ExecMode, decode, inputs_of, sets_flags};
use crate::replay::Replay;
use crate::session::Position;
use crate::symbols::FrameRegisters;
use crate::values::{Evaluator, Frame, Question, Shown};
use std::collections::BTreeMap;
use std::fs;

/// The maximum number of bytes of a source file that is read.
const LARGEST_SOURCE_BYTES: u64 = 16 << 20;
/// The maximum number of expressions of a line that are evaluated.
const MOST_NAMES: usize = 16;

/// The instruction that decided a branch: its address, and how many instructions it is before the
/// branch.
struct Deciding {
    addr: Addr,
    before_last: u64,
}

impl Comparison<'_> {
    /// Returns the values that decided the branch at the end of a stretch: each with its name, and
    /// with its text in both runs, first those that differ. Leaves out those known in one run only.
    /// Moves the replays.
    pub(super) fn values(
        &self,
        replays: [&mut Replay; 2],
        at: &[Stretch; 2],
    ) -> Result<Vec<(String, [String; 2])>, Error> {
        let mut known: [BTreeMap<String, String>; 2] = Default::default();
        let mut order: Vec<String> = Vec::new();
        for (side, replay) in replays.into_iter().enumerate() {
            let found = self.values_of(side, replay, &at[side])?;
            for (name, value) in found {
                if !order.contains(&name) {
                    order.push(name.clone());
                }
                known[side].insert(name, value);
            }
        }
        let both = |name: String| {
            let values = [known[0].get(&name)?.clone(), known[1].get(&name)?.clone()];
            Some((name, values))
        };
        let mut values: Vec<_> = order.into_iter().filter_map(both).collect();
        // Values that differ come first: they say more.
        values.sort_by_key(|(_, [good, bad])| good == bad);
        Ok(values)
    }

    /// Moves the replay to the instruction that decided the branch at the end of `at`. Returns the
    /// variables of the branch's line and the inputs of that instruction, as names and texts. Empty
    /// if its position is unknown.
    fn values_of(
        &self,
        side: usize,
        replay: &mut Replay,
        at: &Stretch,
    ) -> Result<Vec<(String, String)>, Error> {
        seek(replay, at.last_position)?;
        let deciding = deciding(replay, at);
        let (moment, instructions) = Position::parts(at.last_position);
        // If a tick is between this instruction and the branch, its position is not known here.
        let Some(instructions) = instructions.checked_sub(deciding.before_last) else {
            return Ok(Vec::new());
        };
        seek(replay, Position::exact(moment, instructions))?;
        let Some(state) = StoppedThread::next(replay) else { return Ok(Vec::new()) };
        let mut values = self.variables(side, at.last, &state);
        let code = code_at(replay, deciding.addr);
        for place in inputs_of(&code, &state.registers) {
            // The length of what a string instruction reads is not known.
            let read = read_value(&state, place).filter(|bytes| !bytes.is_empty());
            let Some(value) = read.map(|bytes| number(&bytes)) else { continue };
            // Most values are also those of variables of the line.
            if !values.iter().any(|(_, known)| *known == value) {
                values.push((place.to_string(), value));
            }
        }
        Ok(values)
    }

    /// Returns the variables that the text of the source line at an address names, each with its
    /// value as text. Leaves out those without a value in `state`. Returns none if the source file
    /// cannot be read.
    fn variables(
        &self,
        side: usize,
        addr: Addr,
        state: &StoppedThread<'_>,
    ) -> Vec<(String, String)> {
        let symbols = &self.runs[side].symbols;
        let Some(text) = symbols.location_at(addr).and_then(|at| line_of(&at.file, at.line)) else {
            return Vec::new();
        };
        let evaluator = Evaluator::new(symbols);
        let registers = FrameRegisters::innermost(state);
        let frame = Frame { registers: &registers, machine: state, is_innermost: true };
        let pc = Addr(state.registers.rip);
        let value = |name: &String| {
            let question = Question::parse(name).ok()?;
            let bound = evaluator.bind(&question, pc).ok()?;
            let shown = evaluator.answer(&bound, &frame).ok()?.into_iter().next()?;
            let is_known = !matches!(shown, Shown::Missing(_));
            is_known.then(|| (name.clone(), shown.to_string()))
        };
        names_in(&text).iter().filter_map(value).collect()
    }
}

/// Finds the instruction that decided the branch at the end of a stretch: the last one before it
/// that sets a flag of it, or else the branch itself.
fn deciding(replay: &Replay, at: &Stretch) -> Deciding {
    let mut found = Deciding { addr: at.last, before_last: 0 };
    let branch = code_at(replay, at.last);
    let mut addr = at.first;
    for index in at.index..at.last_index {
        let code = code_at(replay, addr);
        let Some(insn) = decode(&code, addr, ExecMode::Bits64) else { break };
        if sets_flags(&code, &branch) {
            found = Deciding { addr, before_last: at.last_index - index };
        }
        addr = addr.wrapping_add(insn.len.into());
    }
    found
}

/// Returns a little-endian integer as text: in signed decimal if its magnitude is below 2^24, else
/// in hexadecimal. Values of more than 8 bytes are printed as bytes in memory order.
fn number(bytes: &[u8]) -> String {
    let mut word = [0; 8];
    let Some(to) = word.get_mut(..bytes.len()) else {
        return bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    };
    to.copy_from_slice(bytes);
    let (value, bits) = (u64::from_le_bytes(word), 64 - 8 * bytes.len().min(8));
    let signed = (value << bits).cast_signed() >> bits;
    if signed.unsigned_abs() < 1 << 24 { signed.to_string() } else { format!("{value:#x}") }
}

/// Returns a line of a source file; `None` if the file is too large or cannot be read, or has no
/// such line.
fn line_of(path: &str, line: u32) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > LARGEST_SOURCE_BYTES {
        return None;
    }
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let index = usize::try_from(line).ok()?.checked_sub(1)?;
    text.lines().nth(index).map(str::to_owned)
}

/// Returns the variables that a line of C, C++ or Rust may name, with their members and elements,
/// at most [`MOST_NAMES`]. They include keywords, but no called functions.
fn names_in(line: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let bytes = line.as_bytes();
    let is_start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    let is_part = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'"' || byte == b'\'' {
            let end = bytes[at + 1..].iter().position(|c| *c == byte);
            at += end.map_or(bytes.len(), |end| end + 2);
            continue;
        }
        if !is_start(byte) || at > 0 && is_part(bytes[at - 1]) {
            at += 1;
            continue;
        }
        let mut end = at;
        loop {
            while end < bytes.len() && is_part(bytes[end]) {
                end += 1;
            }
            let rest = &bytes[end..];
            let step = match rest {
                [b'-', b'>', c, ..] if is_start(*c) => 2,
                [b'.', c, ..] if is_start(*c) => 1,
                [b'[', ..] => match rest.iter().position(|c| *c == b']') {
                    Some(close) => close + 1,
                    None => break,
                },
                _ => break,
            };
            end += step;
        }
        let name = &line[at..end];
        let is_call = line[end..].trim_start().starts_with('(');
        if !is_call && !names.iter().any(|known| known == name) && names.len() < MOST_NAMES {
            names.push(name.to_owned());
        }
        at = end.max(at + 1);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_variables() {
        assert_eq!(names_in("    if (n > limit)"), ["n", "limit"]);
        let names = names_in("while (a->list[i].size < count(x, \"n o\") && x != 'c')");
        assert_eq!(names, ["a->list[i].size", "x"]);
        assert_eq!(names_in("for (int i = 0; i < v[n"), ["int", "i", "v", "n"]);
        assert!(names_in("").is_empty());
    }

    #[test]
    fn numbers_are_read_easily() {
        assert_eq!(number(&[255, 255, 255, 255]), "-1");
        assert_eq!(number(&[3, 0, 0, 0]), "3");
        assert_eq!(number(&0x7fff_f7dd_1000_u64.to_le_bytes()), "0x7ffff7dd1000");
        assert_eq!(number(&[1; 16]), "01".repeat(16));
    }
}
