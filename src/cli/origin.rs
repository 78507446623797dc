//! `contraflow origin`: where a value came from, step by step backwards.

use super::answer::Answer;
use super::disassembly::disassembled;
use super::rows::{Cell, json_object};
use super::{Failure, ask, ask_arguments, say};
use crate::ask::{FollowedValue, Input, OriginEffect, OriginQuestion, OriginStep, SystemCall};
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::ValuePlace;
use crate::session::Position;
use crate::values::{Question, Shown};
use nix::errno::Errno;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// The names of the columns, in the order of `cells`.
const NAMES: [&str; 11] = [
    "position",
    "thread",
    "address",
    "function",
    "file",
    "line",
    "kind",
    "where",
    "value",
    "instruction",
    "text",
];
/// The maximum number of bytes of a value that are printed.
const SHOWN_BYTES: usize = 32;
/// The lowest result of a system call that is a negated error number.
const LOWEST_ERROR: i64 = -4095;

/// Prints the steps from a value back to its origin.
pub(super) fn run(arguments: &ask_arguments::Origin) -> Result<ExitCode, Failure> {
    let (recording, expression) = match arguments.of.as_slice() {
        [recording, expression] => (Some(Path::new(recording)), expression),
        [expression] => (None, expression),
        _ => {
            return Err(
                "give an expression, and before it a recording if it is not the latest".into()
            );
        }
    };
    let expression = expression.to_str().ok_or("the expression is not UTF-8")?;
    let question = Question::parse(expression)?;
    // Registers are those of the innermost frame.
    let is_register = expression.starts_with('$');
    let value = match arguments.bytes {
        Some(size_bytes) => {
            FollowedValue::Memory(AddrRange::sized(address(expression)?, size_bytes))
        }
        None => FollowedValue::Expression {
            text: &question,
            frame: arguments.frame.or(is_register.then_some(0)),
        },
    };
    let (_found, mut asked) = ask::open(recording)?;
    let at = arguments.at.as_deref().map(|at| asked.position_of(at)).transpose()?;
    let is_exact = asked.is_exact();
    let names = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let answer = Answer::begin(arguments.form, names, arguments.limit, asked.last_position())?;
    // False once only a part of the value is followed: then the size changes from one step in
    // memory to the next.
    let mut is_whole = true;
    // The size of the value in the last step, if that was in memory.
    let mut size = None;
    let mut sink = |step: OriginStep| {
        let position = Position::text(step.position, is_exact);
        let text = step_text(&step, expression);
        if let ValuePlace::Memory(range) = step.at {
            let now = range.size_bytes();
            is_whole &= size.replace(now).is_none_or(|before| before == now);
        } else {
            // In a register the size may change, by an extension of the value.
            size = None;
        }
        Ok(answer.print_row(cells(&step, &position, &text), || line(&step, &position, &text))?)
    };
    let question = OriginQuestion { value, at, thread: arguments.thread.map(Tid) };
    asked.origin(&question, &mut sink, &|| answer.is_interrupted())?;
    if !is_whole {
        say(&"the bytes of the value have several origins; these are those of the last that was \
              written, at each step");
    }
    Ok(answer.end("there is no such value")?)
}

/// Parses an address in hexadecimal, with or without `0x`.
fn address(text: &str) -> Result<Addr, Failure> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let addr = u64::from_str_radix(digits, 16).map(Addr);
    addr.map_err(|_| format!("{text:?} is no address: give one such as 0x404040").into())
}

/// Returns a step to the origin of `expression` as JSON, in the form of a row of `contraflow origin
/// --json`.
pub(super) fn json(step: &OriginStep, expression: &str, is_exact: bool) -> Value {
    let (position, text) = (Position::text(step.position, is_exact), step_text(step, expression));
    json_object(NAMES, cells(step, &position, &text))
}

/// Returns the cells of a step, in the order of [`NAMES`]. The instruction is null where
/// [`is_by_instruction`] is false.
fn cells(step: &OriginStep, position: &str, text: &str) -> Vec<Cell> {
    let (file, line) = step.place.line.clone().unzip();
    vec![
        Cell::text(position),
        Cell::thread(step.tid),
        Cell::text(step.addr.to_string()),
        Cell::or_null(step.place.function.as_deref().map(Cell::text)),
        Cell::or_null(file.as_deref().map(Cell::text)),
        Cell::or_null(line.map(|line| Cell::number(line.into()))),
        Cell::text(effect_name(&step.effect)),
        Cell::text(step.at.to_string()),
        Cell::or_null(step.bytes.as_deref().map(|bytes| Cell::text(hex_text(bytes)))),
        Cell::or_null(
            is_by_instruction(&step.effect)
                .then(|| Cell::text(disassembled(step.addr, &step.code))),
        ),
        Cell::text(text),
    ]
}

/// Returns the line of a step in the text form; `text` has the step in words.
fn line(step: &OriginStep, position: &str, text: &str) -> String {
    let (tid, place) = (step.tid, &step.place);
    let code = if is_by_instruction(&step.effect) {
        format!("  [{}]", disassembled(step.addr, &step.code))
    } else {
        String::new()
    };
    format!("{position:>12}  thread {tid}  {place}  {text}{code}")
}

/// Returns the word for an effect in the column `kind`; for an input, the kind of input.
const fn effect_name(effect: &OriginEffect) -> &'static str {
    match effect {
        OriginEffect::Asked(_) => "value",
        OriginEffect::Copied { .. } => "copied",
        OriginEffect::Constant => "constant",
        OriginEffect::ReturnAddress => "return address",
        OriginEffect::Computed { .. } => "computed",
        OriginEffect::Input(Input::SystemCall(_)) => "system call",
        OriginEffect::Input(Input::AtStart { .. }) => "at start",
        OriginEffect::Input(Input::SetForHandler) => "signal",
        OriginEffect::Input(Input::AtThreadStart) => "at birth",
        OriginEffect::Input(Input::FromKernel) => "kernel",
        OriginEffect::Input(Input::FromProcessor) => "processor",
        OriginEffect::Lost(_) => "lost",
    }
}

/// Returns true if the step's instruction made the value itself. False for inputs by the kernel,
/// for the value that was asked for, and where the search lost it.
const fn is_by_instruction(effect: &OriginEffect) -> bool {
    match effect {
        OriginEffect::Copied { .. }
        | OriginEffect::Constant
        | OriginEffect::ReturnAddress
        | OriginEffect::Computed { .. } => true,
        OriginEffect::Input(input) => matches!(input, Input::FromProcessor),
        OriginEffect::Asked(_) | OriginEffect::Lost(_) => false,
    }
}

/// Returns a step in words. `value` is the expression whose origin is searched; unknown bytes are
/// `?`.
fn step_text(step: &OriginStep, value: &str) -> String {
    let shown = step.bytes.as_deref().map_or_else(|| "?".to_owned(), hex_text);
    match &step.effect {
        OriginEffect::Asked(Shown::Missing(_)) => format!("{shown}, in {}", step.at),
        OriginEffect::Asked(found) => format!("{value} = {found}, in {}", step.at),
        OriginEffect::Copied { from } => format!("{shown} copied to {} from {from}", step.at),
        OriginEffect::Constant => format!("{shown} set in {}: a constant", step.at),
        OriginEffect::ReturnAddress => {
            format!("{shown} put in {} by a call: where it returns to", step.at)
        }
        OriginEffect::Computed { operands } => {
            let of = |(place, bytes): &(ValuePlace, Option<Vec<u8>>)| {
                format!("{place} = {}", bytes.as_deref().map_or_else(|| "?".to_owned(), hex_text))
            };
            let of: Vec<String> = operands.iter().map(of).collect();
            let from = if of.is_empty() { "" } else { " from " };
            format!("{shown} computed in {}{from}{}", step.at, of.join(", "))
        }
        OriginEffect::Input(input) => format!("{shown} {}", input_text(input, step.at)),
        OriginEffect::Lost(why) => format!("{shown} in {}: {why}", step.at),
    }
}

/// Returns an input of the run in words, which follow the bytes that came from it to `at`.
fn input_text(input: &Input, at: ValuePlace) -> String {
    match input {
        Input::SystemCall(call) => system_call_text(call, at),
        Input::AtStart { name, offset: Some(offset) } => {
            format!("is in {name} from offset {offset:#x} on, which was mapped to {at}")
        }
        Input::AtStart { name, offset: None } if name.is_empty() => {
            format!("was in {at} when the recording began")
        }
        Input::AtStart { name, offset: None } => {
            format!("was in {at}, of {name}, when the recording began: arguments, environment")
        }
        Input::SetForHandler => {
            format!("set in {at} by the kernel as the handler of a signal began")
        }
        Input::AtThreadStart => format!("in {at} as the thread began"),
        Input::FromKernel => format!("put in {at} by the kernel"),
        Input::FromProcessor => format!("put in {at} by the processor"),
    }
}

/// Returns in words how a system call wrote or returned a value, which is in `at`.
fn system_call_text(call: &SystemCall, at: ValuePlace) -> String {
    let SystemCall { name, arguments, result, in_argument, file } = call;
    let errno = Some(result).filter(|result| (LOWEST_ERROR..0).contains(*result));
    let errno = errno.and_then(|result| i32::try_from(-result).ok());
    let result = match errno {
        Some(errno) => format!("{:?}", Errno::from_raw(errno)),
        None => result.to_string(),
    };
    let arguments: Vec<String> = arguments.iter().map(|of| format!("{of:#x}")).collect();
    let call = format!("{name}({}) = {result}", arguments.join(", "));
    let file = file.as_ref().map_or_else(String::new, |file| format!(", of {file}"));
    match in_argument {
        Some((number, offset)) => {
            format!("written by {call}{file}: at byte {offset} from argument {}", number + 1)
        }
        None => format!("in {at} by {call}{file}"),
    }
}

/// Returns up to 8 bytes as a little-endian number, and more as hexadecimal bytes in memory order,
/// of which only the first [`SHOWN_BYTES`] are shown. Empty for no bytes.
fn hex_text(bytes: &[u8]) -> String {
    if let 1..=8 = bytes.len() {
        let number = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        return format!("{number:#x}");
    }
    let digits = bytes.iter().take(SHOWN_BYTES).fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    });
    let more = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
    format!("{digits}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_result_of_a_call_is_no_error_number() {
        let call = SystemCall {
            name: "lseek".into(),
            arguments: Vec::new(),
            result: i64::MIN,
            in_argument: None,
            file: None,
        };
        let said = system_call_text(&call, ValuePlace::Memory(AddrRange::sized(Addr(0), 8)));
        assert!(said.contains("lseek() = -9223372036854775808"), "{said}");
    }
}
