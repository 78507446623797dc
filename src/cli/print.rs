//! The items of a history, which a timeline passes to [`Printer::visit`], as text or JSON for
//! `contraflow dump`, one line each. Gaps go to stderr.

use super::disassembly::Disassembler;
use super::dump_arguments::{Dump, DumpKind};
use super::stats::Stats;
use crate::common::{Addr, Visible};
use crate::flow::{Event, Gap, GapReason, Last, Span, Timing};
use crate::image::Image;
use crate::pt::{Clock, ClockConfig, Errata, Packet, PacketError, Packets};
use crate::recording::Releaser;
use crate::timeline::{Arrival, ArrivalKind, BlockCode, CallTrace, Totals, Visit};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};

/// The depth beyond which calls are not indented further.
const INDENT_LIMIT: usize = 120;

/// A printer of one thread's history.
pub(super) struct Printer<'a, W> {
    pub(super) out: &'a mut W,
    pub(super) disassembler: &'a mut Disassembler,
    pub(super) stats: &'a mut Stats,
    kind: DumpKind,
    /// The requested range of instructions.
    range: Range<u64>,
    bare_addresses: bool,
    json: bool,
    /// True to print the time on each line, if the trace's clocks are known.
    shows_times: bool,
    calls: CallTrace,
    /// The image of a raw trace's code, which never changes; `None` for a recording.
    image: Option<&'a Image>,
    /// The index after the last instruction visited.
    end_index: u64,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(
        arguments: &Dump,
        kind: DumpKind,
        shows_times: bool,
        out: &'a mut W,
        disassembler: &'a mut Disassembler,
        stats: &'a mut Stats,
    ) -> Self {
        Self {
            out,
            disassembler,
            stats,
            kind,
            range: arguments.range(),
            bare_addresses: arguments.addresses,
            json: arguments.json,
            shows_times,
            calls: CallTrace::default(),
            image: None,
            end_index: 0,
        }
    }

    /// Returns the printer for the code of a raw trace, which never changes.
    pub(super) fn with_image(self, image: &'a Image) -> Self {
        Self { image: Some(image), ..self }
    }

    /// Returns the index after the last instruction visited, printed or not; 0 before the first
    /// block.
    pub(super) fn end_index(&self) -> u64 {
        self.end_index
    }

    /// Adds blocks and instructions that the timeline counted without visits to the statistics.
    pub(super) const fn add_totals(&mut self, totals: Totals) {
        self.stats.add_totals(totals);
    }

    /// Prints or counts an item of the history. Breaks after the requested range, or with the error
    /// if the output fails.
    pub(super) fn visit(&mut self, visit: &Visit<'_>) -> ControlFlow<Option<io::Error>> {
        match self.print_item(visit) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => ControlFlow::Break(None),
            Err(error) => ControlFlow::Break(Some(error)),
        }
    }

    /// Prints or counts an item. Returns false if it is after the requested range. Gaps are printed
    /// wherever they are.
    fn print_item(&mut self, visit: &Visit<'_>) -> io::Result<bool> {
        if let Visit::Block { index, span, .. } = visit {
            self.end_index = index + u64::from(span.insns);
        }
        if let Visit::Block { index, .. } | Visit::Event { index, .. } = visit
            && *index >= self.range.end
        {
            return Ok(false);
        }
        match (self.kind, visit) {
            (_, Visit::Gap { index, gap, image }) => self.print_gap(*index, gap, *image)?,
            (DumpKind::Events, Visit::Event { index, event, moment })
                if self.range.contains(index) =>
            {
                self.print_event(*index, *event, *moment)?;
            }
            (DumpKind::Blocks, Visit::Block { index, span, code, moment })
                if index + u64::from(span.insns) > self.range.start =>
            {
                self.print_block(*index, span, code.last(), **moment)?;
            }
            (DumpKind::Insns, Visit::Block { index, span, code, .. }) => {
                for (number, addr) in (*index..).zip(code.addrs()) {
                    if self.range.contains(&number) {
                        self.print_insn(number, *addr, span, code)?;
                    }
                }
            }
            _ => {}
        }
        match self.kind {
            DumpKind::Calls => self.print_arrival(visit)?,
            DumpKind::Stats => self.stats.count_item(visit),
            _ => {}
        }
        Ok(true)
    }

    /// Prints a gap to stderr, and as an object among the others for JSON, except for counts.
    fn print_gap(&mut self, index: u64, gap: &Gap, image: Option<&Image>) -> io::Result<()> {
        self.out.flush()?;
        let missing_code_text = missing_code_text(gap, image.or(self.image));
        // Without a stderr there is nowhere to report an error.
        let _ = writeln!(io::stderr(), "gap: {gap}{missing_code_text}");
        if self.json && !matches!(self.kind, DumpKind::Stats) {
            let last_ip = gap.last_ip.map(|ip| format!("{ip}"));
            let reason = format!("{}{missing_code_text}", gap.reason);
            let gap = json!({"offset": gap.offset, "last_ip": last_ip, "reason": reason});
            self.print_json(&json!({"index": index, "gap": gap}))?;
        }
        Ok(())
    }

    /// Prints a JSON object on one line.
    fn print_json(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    /// Prints an event, with its time if times are shown.
    fn print_event(&mut self, index: u64, event: Event, timing: Timing) -> io::Result<()> {
        if self.json {
            let kind = format!("{:x?}", event.kind);
            let event = json!({"index": index, "offset": event.offset, "event": kind});
            return self.print_json(&with_timing(event, timing));
        }
        let time = self.time(timing);
        writeln!(self.out, "{index:>10}  {:08x}  {time}{:x?}", event.offset, event.kind)
    }

    /// Returns the time, a TSC in hexadecimal, as a column: `?` if it is unknown, and empty if
    /// times are not shown.
    fn time(&self, timing: Timing) -> String {
        match timing.time {
            _ if !self.shows_times => String::new(),
            None => format!("{:>14}  ", "?"),
            Some(time) => format!("{:>14x}  ", time.tsc.0),
        }
    }

    /// Prints a block, whose last instruction is `last` if that is known, with its time if times
    /// are shown.
    fn print_block(
        &mut self,
        index: u64,
        span: &Span,
        last: Option<Last>,
        timing: Timing,
    ) -> io::Result<()> {
        let end = last.map_or(span.last, |last| last.end);
        if self.json {
            let (start, end) = (format!("{}", span.ip), format!("{end}"));
            let exit = format!("{:?}", span.exit);
            let block = json!({
                "index": index, "start": start, "end": end, "instructions": span.insns,
                "exit": exit,
            });
            return self.print_json(&with_timing(block, timing));
        }
        let time = self.time(timing);
        let (ip, insns, exit) = (span.ip, span.insns, span.exit);
        writeln!(self.out, "{index:>10}  {time}{ip:x}-{end:x}  {insns:>4}  {exit:?}")
    }

    /// Prints an instruction, disassembled, or its address alone if the user wants bare addresses.
    fn print_insn(
        &mut self,
        index: u64,
        addr: Addr,
        span: &Span,
        code: &BlockCode<'_>,
    ) -> io::Result<()> {
        if self.bare_addresses {
            return self.out.write_all(&address_line(addr));
        }
        let mut bytes = [0; 15];
        code.read(addr, &mut bytes);
        let line = self.disassembler.line(addr, span.mode, bytes);
        if self.json {
            let value = json!({
                "index": index, "address": format!("{addr}"), "function": line.function,
                "place": line.place, "text": line.insn,
            });
            return writeln!(self.out, "{value}");
        }
        writeln!(self.out, "{addr:016x}  {}  {}  {}", line.function, line.place, line.insn)
    }

    /// Prints a line if the item begins where a call, a return or a signal led, or where the path
    /// starts. Follows the calls of all items, also before the range.
    fn print_arrival(&mut self, visit: &Visit<'_>) -> io::Result<()> {
        let arrival = self.calls.visit(visit);
        let Some(Arrival { index, depth, ip, kind }) = arrival else { return Ok(()) };
        if !self.range.contains(&index) {
            return Ok(());
        }
        let function = self.disassembler.function(ip);
        let how = match kind {
            ArrivalKind::Start => "start",
            ArrivalKind::Call => "call",
            ArrivalKind::Return => "return",
            ArrivalKind::Signal => "signal",
        };
        if self.json {
            return self.print_json(&json!({
                "index": index, "depth": depth, "address": format!("{ip}"), "how": how,
                "function": function,
            }));
        }
        // A call leads to a function's beginning; other addresses are shown with their offset.
        let name = function.strip_suffix("+0x0").unwrap_or(&function);
        let indent = (2 * depth).min(INDENT_LIMIT);
        let how = if how == "call" { String::new() } else { format!("{how} ") };
        writeln!(self.out, "{index:>10}  {ip:016x}  {:indent$}{how}{name}", "")
    }
}

/// Returns an address of 16 digits and a newline. Formatting by `std::fmt` took most of the time of
/// a list of addresses.
fn address_line(addr: Addr) -> [u8; 17] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = [b'\n'; 17];
    let (mut rest, mut at) = (addr.0, 16);
    while at > 0 {
        at -= 1;
        line[at] = DIGITS[(rest & 15) as usize];
        rest >>= 4;
    }
    line
}

/// Returns the end of a gap's message, which begins with a comma: the mapping whose code is
/// missing, or that nothing is mapped there. Empty for other gaps, or without an image.
fn missing_code_text(gap: &Gap, image: Option<&Image>) -> String {
    let (GapReason::NoCode(addr), Some(image)) = (gap.reason, image) else { return String::new() };
    let Some(section) = image.section_at(addr) else { return ", nothing is mapped there".into() };
    let (range, name) = (section.range, Visible(&section.name));
    if section.name.is_empty() {
        return format!(", in the memory at {:x}-{:x}", range.start, range.end);
    }
    format!(", in {name} at {:x}-{:x}", range.start, range.end)
}

/// Adds the time with its bounds, and the pace, to a JSON object if they are known.
fn with_timing(mut object: Value, timing: Timing) -> Value {
    if let Some(time) = timing.time {
        object["tsc"] = json!(time.tsc.0);
        object["earliest"] = json!(time.earliest.0);
        object["latest"] = json!(time.latest.map(|latest| latest.0));
    }
    if let Some(pace) = timing.pace {
        object["pace"] = json!({"instructions": pace.insns, "cycles": pace.cycles});
    }
    object
}

/// The offset of a packet in the trace, and the packet or the error in its place.
pub(super) type PacketAt = (u64, Result<Packet, PacketError>);

/// Returns the same packets. Each packet that is read releases the memory of the mapped trace
/// before it: such a trace can be read only once.
pub(super) fn releasing_memory<'a>(
    packets: Packets<'a>,
    mut releaser: Releaser<'a>,
) -> impl Iterator<Item = PacketAt> + 'a {
    packets
        .inspect(move |(offset, _)| releaser.release_before(usize::try_from(*offset).unwrap_or(0)))
}

/// Prints the packets of a trace in the requested range of offsets, each with the time if the
/// clocks are known; the time is `?` (null in JSON) until the trace shows it. Reads those before
/// the range for the time, and stops after it.
pub(super) fn print_packets(
    trace: impl Iterator<Item = PacketAt>,
    arguments: &Dump,
    clocks: Option<ClockConfig>,
    errata: Errata,
    out: &mut impl Write,
) -> io::Result<()> {
    let range = arguments.range();
    let mut clock = clocks.map(|clocks| Clock::new(clocks).with_errata(errata));
    for (offset, packet) in trace {
        if let (Some(clock), Ok(packet)) = (&mut clock, &packet) {
            clock.packet(packet);
        }
        if offset >= range.end {
            break;
        }
        if offset < range.start {
            continue;
        }
        let now = clock.as_ref().and_then(Clock::now).map(|now| now.tsc.0);
        let text = match packet {
            Ok(packet) => format!("{packet:x?}"),
            Err(error) => format!("error: {error}"),
        };
        if arguments.json {
            writeln!(out, "{}", json!({"offset": offset, "tsc": now, "packet": text}))?;
        } else if clock.is_some() {
            let now = now.map_or_else(|| "?".to_owned(), |now| format!("{now:x}"));
            writeln!(out, "{offset:08x}  {now:>14}  {text}")?;
        } else {
            writeln!(out, "{offset:08x}  {text}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_all_their_digits() {
        for addr in [0, 1, 0x10, 0x0123_4567_89ab_cdef, 0x7fff_ffff_f000, u64::MAX] {
            assert_eq!(address_line(Addr(addr)), *format!("{addr:016x}\n").as_bytes());
        }
    }
}
