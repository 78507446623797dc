//! `contraflow dump log`: the entries of an exact recording's log, one per line.

use super::Failure;
use super::dump_arguments::Dump;
use super::record::signal_name;
use crate::common::{Addr, Tid, Visible};
use crate::recording::Reader;
use crate::recording::log::{
    Bytes, CallEffects, Content, Entry, LogEvent, MapChange, Mapped, PlaceInTick, Write as Written,
};
use crate::syscalls::Model;
use nix::errno::Errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// The lowest result of a system call that is a negated error number.
const LOWEST_ERROR: i64 = -4095;
/// The lowest result of a system call that is printed as an address.
const FIRST_ADDRESS: i64 = 1 << 32;

/// Prints the entries in the requested range, of the requested thread. Fails if the recording has
/// no log, or if the range begins after the log's end; of a cut recording the end is unknown, and
/// such a range is empty.
pub(super) fn print(reader: &Reader, dump: &Dump, out: &mut impl Write) -> Result<(), Failure> {
    let Some(log) = reader.log()? else {
        let dir = reader.dir().display();
        return Err(format!("{dir}: has no log, as it was not recorded with --exact").into());
    };
    if let Some(totals) = reader.manifest().end.as_ref().and_then(|end| end.log) {
        dump.check_range(totals.entries, "the log")?;
    }
    let range = dump.range();
    let mut printer = Printer::default();
    let mut cursor = log.cursor();
    loop {
        let index = cursor.index();
        let Some(entry) = cursor.read()? else { return Ok(()) };
        let line = printer.line(&entry);
        let is_chosen = dump.thread.is_none_or(|tid| entry.tid == Tid(tid));
        if !is_chosen || !range.contains(&index) {
            continue;
        }
        if dump.json {
            writeln!(out, "{}", line.json(index, &entry))?;
        } else {
            writeln!(out, "{}", Visible(line.text(index, &entry)))?;
        }
    }
}

/// A converter of entries to lines, which gets all entries in their order.
#[derive(Default)]
struct Printer {
    /// The number of each thread's system call that has not returned.
    calls: BTreeMap<Tid, u64>,
}

/// The facts of an entry that are printed, besides its index, thread and ticks.
#[derive(Default)]
struct Line<'a> {
    kind: &'static str,
    /// The name of the system call, and its result if it has returned.
    call: Option<(String, Option<i64>)>,
    /// The address at which the entry happened.
    place: Option<Addr>,
    /// Facts of this kind of entry, in words; may be empty.
    words: String,
    maps: &'a [MapChange],
    writes: &'a [Written],
    sets_registers: bool,
}

impl Printer {
    /// Converts the next entry. Keeps the number of a system call that has not returned, since the
    /// entry of its return does not have it.
    fn line<'a>(&mut self, entry: &'a Entry) -> Line<'a> {
        match &entry.event {
            LogEvent::Start(start) => {
                let words = format!("{}, {} mappings", start.program, start.mappings.len());
                Line { kind: "start", words, ..Line::default() }
            }
            LogEvent::Memory(write) => {
                Line { kind: "memory", writes: std::slice::from_ref(write), ..Line::default() }
            }
            LogEvent::Call { number, effects } => call_line("call", *number, effects),
            LogEvent::Enters { number } => {
                self.calls.insert(entry.tid, *number);
                Line { kind: "enters", call: Some((call_name(*number), None)), ..Line::default() }
            }
            LogEvent::Returns { effects } => {
                let number = self.calls.remove(&entry.tid);
                call_line("returns", number.unwrap_or(u64::MAX), effects)
            }
            LogEvent::Executes { registers, writes, .. } => {
                let after: crate::insn::Registers = (**registers).into();
                let words = format!("to {}", Addr(after.rip));
                Line { kind: "executes", words, writes, ..Line::default() }
            }
            LogEvent::Signal { place, siginfo, handler, writes } => {
                self.calls.remove(&entry.tid);
                let handler = handler.as_ref().map_or_else(
                    || "ends the process".to_owned(),
                    |state| {
                        let registers: crate::insn::Registers = state.registers.into();
                        format!("handler at {}", Addr(registers.rip))
                    },
                );
                let words = format!("{}, {handler}", signal_text(siginfo));
                Line { kind: "signal", words, writes, ..place_line(Some(*place)) }
            }
            LogEvent::Foreign { range } => {
                Line { kind: "foreign", words: range.to_string(), ..Line::default() }
            }
            LogEvent::FinalMemory => Line { kind: "final memory", ..Line::default() },
            LogEvent::Accesses { place, registers, writes, .. } => {
                let after: crate::insn::Registers = (**registers).into();
                let words = format!("to {}", Addr(after.rip));
                Line { kind: "accesses", words, writes, ..place_line(Some(*place)) }
            }
            LogEvent::Switch { place } => Line { kind: "switch", ..place_line(Some(*place)) },
            LogEvent::Born { state, writes } => {
                let registers: crate::insn::Registers = state.registers.into();
                let place = Some(Addr(registers.rip));
                Line { kind: "born", place, writes, ..Line::default() }
            }
            LogEvent::Ends { writes } => Line { kind: "ends", writes, ..Line::default() },
            LogEvent::Finish { place } => Line { kind: "finish", ..place_line(*place) },
            LogEvent::Changed { place, state, writes } => {
                if state.is_some() {
                    self.calls.remove(&entry.tid);
                }
                let sets_registers = state.is_some();
                Line { kind: "changed", writes, sets_registers, ..place_line(Some(*place)) }
            }
        }
    }
}

impl Line<'_> {
    /// Returns the entry's line in the text form: the index, thread, ticks and kind, and the known
    /// facts.
    fn text(&self, index: u64, entry: &Entry) -> String {
        let call = self.call.iter().map(|(name, result)| match result {
            Some(result) => format!("{name} = {}", result_text(*result)),
            None => name.clone(),
        });
        let words = Some(&self.words).filter(|words| !words.is_empty()).cloned();
        let place = self.place.map(|place| format!("at {place}"));
        let maps = self.maps.iter().map(map_text);
        let registers = self.sets_registers.then(|| "sets all registers".to_owned());
        let parts = call.chain(words).chain(place).chain(maps).chain(writes_text(self.writes));
        let details: Vec<String> = parts.chain(registers).collect();
        let (tid, ticks, kind) = (entry.tid, entry.ticks, self.kind);
        let line = format!("{index:>8}  {tid:>7}  {ticks:>11}  {kind:<8}  {}", details.join("; "));
        line.trim_end().to_owned()
    }

    /// Returns the entry's line as JSON. Of a write it has the address and size, not the bytes; it
    /// does not say whether registers are set.
    fn json(&self, index: u64, entry: &Entry) -> Value {
        let write = |write: &Written| json!({"address": format!("{}", write.addr), "bytes": write.bytes.0.len()});
        let mut value = json!({
            "index": index, "thread": entry.tid, "ticks": entry.ticks, "kind": self.kind,
            "check": entry.check,
            "maps": self.maps.iter().map(map_text).collect::<Vec<_>>(),
            "writes": self.writes.iter().map(write).collect::<Vec<_>>(),
        });
        if let Some((name, result)) = &self.call {
            value["call"] = json!(name);
            value["result"] = json!(result);
        }
        if let Some(place) = self.place {
            value["place"] = json!(format!("{place}"));
        }
        if !self.words.is_empty() {
            value["text"] = json!(self.words);
        }
        value
    }
}

/// Returns a line with only a place, and without a kind; the caller adds the rest.
fn place_line(place: Option<PlaceInTick>) -> Line<'static> {
    Line { place: place.map(|place| place.ip), ..Line::default() }
}

/// Returns the line of a system call that has returned.
fn call_line<'a>(kind: &'static str, number: u64, effects: &'a CallEffects) -> Line<'a> {
    Line {
        kind,
        call: Some((call_name(number), Some(effects.result))),
        maps: &effects.maps,
        writes: &effects.writes,
        sets_registers: effects.state.is_some(),
        ..Line::default()
    }
}

/// Returns the name of a system call, or `call NUMBER` if it has none here. The number is
/// `u64::MAX` if it is unknown: `a call`.
fn call_name(number: u64) -> String {
    match Model::by_number(number) {
        Some(model) => model.name.to_owned(),
        None if number == u64::MAX => "a call".to_owned(),
        None => format!("call {number}"),
    }
}

/// Returns the result of a system call as text: an error as `-2 ENOENT`, a number from
/// [`FIRST_ADDRESS`] on in hexadecimal, and others in decimal.
fn result_text(result: i64) -> String {
    match result {
        LOWEST_ERROR..0 => {
            let number = i32::try_from(-result).unwrap_or(0);
            match Errno::from_raw(number) {
                Errno::UnknownErrno => format!("{result}"),
                errno => format!("{result} {errno:?}"),
            }
        }
        FIRST_ADDRESS.. => format!("{result:#x}"),
        _ => format!("{result}"),
    }
}

/// Returns the name of the signal in a `siginfo_t`, which begins with its number.
fn signal_text(siginfo: &Bytes) -> String {
    let number = siginfo.0.first_chunk().map_or(0, |number| i32::from_le_bytes(*number));
    signal_name(number)
}

/// Returns the writes to memory in words; `None` if there are none.
fn writes_text(writes: &[Written]) -> Option<String> {
    let bytes: usize = writes.iter().map(|write| write.bytes.0.len()).sum();
    match writes {
        [] => None,
        [write] => Some(format!("writes {bytes} bytes at {}", write.addr)),
        writes => Some(format!("writes {bytes} bytes in {} places", writes.len())),
    }
}

/// Returns a change of the mappings in words.
fn map_text(change: &MapChange) -> String {
    match change {
        MapChange::Map(mapped) => {
            let Mapped { range, protection, content, name, .. } = mapped;
            let name = if name.is_empty() { String::new() } else { format!(" {name}") };
            let offset = match content {
                Content::File { offset, .. } => format!(" from {offset:#x}"),
                Content::Zeros => String::new(),
            };
            format!("maps {range} {protection}{name}{offset}")
        }
        MapChange::Unmap(range) => format!("unmaps {range}"),
        MapChange::Protect { range, protection } => format!("protects {range} {protection}"),
        MapChange::Move { from, to } => format!("moves {from} to {to}"),
        MapChange::Discard(range) => format!("discards {range}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::AddrRange;
    use crate::recording::log::{ThreadState, Words};
    use crate::sideband::Protection;

    fn text(event: LogEvent) -> String {
        text_after(&mut Printer::default(), event)
    }

    fn text_after(printer: &mut Printer, event: LogEvent) -> String {
        let entry = Entry { tid: Tid(7), ticks: 5, check: 1, event };
        let line = printer.line(&entry).text(3, &entry);
        let details = line.strip_prefix("       3        7            5  ").unwrap();
        details.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn effects(result: i64) -> CallEffects {
        CallEffects { result, writes: Vec::new(), maps: Vec::new(), state: None }
    }

    fn state(rip: u64) -> ThreadState {
        let registers = crate::insn::Registers { rip, ..Default::default() };
        ThreadState { registers: Words::from(registers), extended: Bytes::default() }
    }

    fn write(addr: u64, size: usize) -> Written {
        Written { addr: Addr(addr), bytes: Bytes(vec![0; size]) }
    }

    #[test]
    fn calls_have_their_names_results_and_effects() {
        let call = |number, effects| text(LogEvent::Call { number, effects });
        assert_eq!(
            call(0, CallEffects { writes: vec![write(16, 5)], ..effects(5) }),
            "call read = 5; writes 5 bytes at 0x10"
        );
        assert_eq!(call(2, effects(-2)), "call open = -2 ENOENT");
        assert_eq!(call(2, effects(-4000)), "call open = -4000");
        assert_eq!(call(9999, effects(1)), "call call 9999 = 1");
        let range = AddrRange::sized(Addr(0x1000), 0x1000);
        let protection = Protection { read: true, ..Protection::default() };
        let mapped = Mapped {
            range,
            protection,
            grows_down: false,
            content: Content::Zeros,
            name: "[heap]".to_owned(),
            shared: None,
        };
        let maps = vec![MapChange::Map(mapped), MapChange::Unmap(range)];
        assert_eq!(
            call(
                9,
                CallEffects { maps, state: Some(Box::new(state(1))), ..effects(0x7000_0000_0000) }
            ),
            "call mmap = 0x700000000000; maps 0x1000-0x2000 r--p [heap]; unmaps 0x1000-0x2000; \
             sets all registers"
        );
    }

    #[test]
    fn a_call_that_returns_later_keeps_its_name() {
        let printer = &mut Printer::default();
        assert_eq!(text_after(printer, LogEvent::Enters { number: 202 }), "enters futex");
        assert_eq!(
            text_after(printer, LogEvent::Returns { effects: effects(0) }),
            "returns futex = 0"
        );
        assert_eq!(
            text_after(printer, LogEvent::Returns { effects: effects(0) }),
            "returns a call = 0"
        );
    }

    #[test]
    fn signals_say_where_they_came() {
        let place = PlaceInTick { ip: Addr(0x40), rcx: 0 };
        let siginfo = || Bytes(vec![11, 0, 0, 0, 0]);
        let fatal = LogEvent::Signal { place, siginfo: siginfo(), handler: None, writes: vec![] };
        assert_eq!(text(fatal), "signal SIGSEGV, ends the process; at 0x40");
        let caught = LogEvent::Signal {
            place,
            siginfo: siginfo(),
            handler: Some(Box::new(state(0x99))),
            writes: vec![write(1, 2), write(9, 3)],
        };
        assert_eq!(
            text(caught),
            "signal SIGSEGV, handler at 0x99; at 0x40; writes 5 bytes in 2 places"
        );
        assert_eq!(text(LogEvent::Finish { place: None }), "finish");
        assert_eq!(text(LogEvent::Switch { place }), "switch at 0x40");
    }

    #[test]
    fn json_has_the_same_facts() {
        let event = LogEvent::Call {
            number: 0,
            effects: CallEffects { writes: vec![write(16, 5)], ..effects(5) },
        };
        let entry = Entry { tid: Tid(7), ticks: 5, check: 1, event };
        let json = Printer::default().line(&entry).json(3, &entry);
        let expected = json!({
            "index": 3, "thread": 7, "ticks": 5, "kind": "call", "check": 1, "call": "read",
            "result": 5, "maps": [], "writes": [{"address": "0x10", "bytes": 5}],
        });
        assert_eq!(json, expected);
    }
}
