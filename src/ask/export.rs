//! The calls of a run for other tools: Perfetto, Chrome's JSON, speedscope, pprof.

use super::chrome::Chrome;
use super::error::Error;
use super::opened::Asked;
use super::perfetto::Perfetto;
use super::profile::Profile;
use super::proto::Message;
use super::slices::SliceSink;
use super::speedscope::Speedscope;
use std::collections::HashMap;
use std::io::Write;

/// A file format of another tool, for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFormat {
    /// A trace of Perfetto.
    Perfetto,
    /// The JSON of Chrome's tracing.
    Chrome,
    /// A file of speedscope.
    Speedscope,
}

impl Asked {
    /// Writes the calls of the whole run, thread by thread, and the system calls and gaps if the
    /// format is not speedscope's. Calls `goes_on` now and then with the number of instructions so
    /// far and that of the run; if it returns false, the output ends there, readable but not whole,
    /// and this returns false. Fails if `out` does.
    pub fn export_calls(
        &self,
        format: CallFormat,
        out: &mut dyn Write,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, Error> {
        let program = self.timeline.reader().manifest().program.clone();
        let text = |position| self.text_of(position);
        match format {
            CallFormat::Perfetto => {
                let mut sink = Perfetto::begin(out, &program, &text)?;
                self.slices(&mut sink, goes_on)
            }
            CallFormat::Chrome => {
                let mut sink = Chrome::begin(out, &text)?;
                let is_whole = self.slices(&mut sink as &mut dyn SliceSink, goes_on)?;
                sink.end()?;
                Ok(is_whole)
            }
            CallFormat::Speedscope => {
                let mut sink = Speedscope::begin(out, &program)?;
                let is_whole = self.slices(&mut sink as &mut dyn SliceSink, goes_on)?;
                sink.end()?;
                Ok(is_whole)
            }
        }
    }
}

impl Profile {
    /// Returns the profile in the format of pprof (profile.proto of google/pprof), not compressed:
    /// its stacks of functions, without the lines.
    pub fn to_pprof(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut message = Message::default();
        // The first string has to be empty.
        strings.number("");
        let (kind, unit) = (strings.number("instructions"), strings.number("count"));
        // sample_type: ValueType { type, unit }.
        message.message(1, |value| {
            value.number(1, kind).number(2, unit);
        });
        let mut functions: HashMap<&str, u64> = HashMap::new();
        for (stack, count) in &self.stacks {
            let ids = stack.iter().rev().map(|name| {
                let next = functions.len() as u64 + 1;
                *functions.entry(name).or_insert(next)
            });
            let ids: Vec<u64> = ids.collect();
            // sample: Sample { location_id, value }.
            message.message(2, |sample| {
                sample.packed(1, &ids).packed(2, &[*count]);
            });
        }
        let mut functions: Vec<(&str, u64)> = functions.into_iter().collect();
        functions.sort_by_key(|(_, id)| *id);
        for (name, id) in functions {
            let name = strings.number(name);
            // Each function has one location, with the same ID.
            // location: Location { id, line: Line { function_id } };
            // function: Function { id, name }.
            message.message(4, |location| {
                location.number(1, id).message(4, |line| {
                    line.number(1, id);
                });
            });
            message.message(5, |function| {
                function.number(1, id).number(2, name).number(3, name);
            });
        }
        for text in &strings.list {
            message.text(6, text);
        }
        message.bytes().to_vec()
    }
}

/// The string table of a pprof profile, without duplicates.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Strings {
    /// Returns the index of a string. Adds the string if it is new.
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}
