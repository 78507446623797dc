//! Counts of the contents of a trace, for `contraflow dump stats`.

use super::print::releasing_memory;
use crate::flow::{EventKind, Pace, Timing};
use crate::pt::{Errata, Packet, Packets};
use crate::recording::Releaser;
use crate::timeline::{Totals, Visit};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Write};
use std::mem::{Discriminant, discriminant};

/// Counts of packets, events and instructions.
#[derive(Debug, Default)]
pub(super) struct Stats {
    bytes: u64,
    packets: VariantCounts<Packet>,
    /// The number of places where a packet cannot be decoded.
    errors: u64,
    /// True if there are CYC packets, the only ones with core clocks.
    has_cyc: bool,
    /// True if the packets are unknown: bytes and packets are not printed.
    omits_packets: bool,
    events: VariantCounts<EventKind>,
    blocks: u64,
    instructions: u64,
    gaps: u64,
    /// The instructions with known core clocks, and the number of these clocks.
    pace: Pace,
}

impl Stats {
    /// Counts the packets of a mapped trace, and releases its memory as it is read.
    pub(super) fn count_packets(&mut self, trace: &[u8], releaser: Releaser<'_>, errata: Errata) {
        self.bytes += trace.len() as u64;
        for (_, packet) in releasing_memory(Packets::synced(trace).with_errata(errata), releaser) {
            match packet {
                Ok(packet) => {
                    self.has_cyc |= matches!(packet, Packet::Cyc(_));
                    self.packets.count(&packet);
                }
                Err(_) => self.errors += 1,
            }
        }
    }

    /// Returns true if a packet that was counted so far is CYC, the only one with core clocks.
    pub(super) const fn reports_cycles(&self) -> bool {
        self.has_cyc
    }

    /// Makes [`Self::print`] leave out the bytes and packets.
    pub(super) const fn omit_packets(&mut self) {
        self.omits_packets = true;
    }

    /// Counts one item of a history.
    pub(super) fn count_item(&mut self, visit: &Visit<'_>) {
        match visit {
            Visit::Block { span, moment, .. } => {
                self.add_pace(**moment);
                self.blocks += 1;
                self.instructions += u64::from(span.insns);
            }
            Visit::Event { event, moment, .. } => {
                self.add_pace(*moment);
                self.events.count(&event.kind);
            }
            Visit::Gap { .. } => self.gaps += 1,
        }
    }

    /// Adds blocks and instructions that were counted without visits.
    pub(super) const fn add_totals(&mut self, totals: Totals) {
        self.blocks += totals.blocks;
        self.instructions += totals.insns;
    }

    /// Adds the instructions and core clocks of an item, if they are known.
    fn add_pace(&mut self, moment: Timing) {
        let Some(pace) = moment.pace else { return };
        self.pace.insns = self.pace.insns.saturating_add(pace.insns);
        self.pace.cycles = self.pace.cycles.saturating_add(pace.cycles);
    }

    /// Returns the instructions per core clock; `None` if no counted item has core clocks.
    fn ipc(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let ratio = self.pace.insns as f64 / self.pace.cycles as f64;
        (self.pace.cycles > 0).then_some(ratio)
    }

    /// Prints the counts: as text, of which the last line is `instructions N gaps M`, or as one
    /// JSON object.
    pub(super) fn print(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
        let mut packets = self.packets.by_name();
        if self.errors > 0 {
            packets.insert("error", self.errors);
        }
        let events = self.events.by_name();
        if json {
            let mut all = json!({
                "bytes": self.bytes, "packets": packets, "events": events,
                "blocks": self.blocks, "instructions": self.instructions, "gaps": self.gaps,
            });
            if let Some(all) = all.as_object_mut().filter(|_| self.omits_packets) {
                all.retain(|name, _| name != "bytes" && name != "packets");
            }
            if let Some(ipc) = self.ipc() {
                let Pace { insns, cycles } = self.pace;
                all["pace"] = json!({"instructions": insns, "cycles": cycles, "ipc": ipc});
            }
            return writeln!(out, "{all}");
        }
        if !self.omits_packets {
            writeln!(out, "bytes {}", self.bytes)?;
            writeln!(out, "packets {}", packets.values().sum::<u64>())?;
            for (name, count) in &packets {
                writeln!(out, "  {name} {count}")?;
            }
        }
        writeln!(out, "events {}", events.values().sum::<u64>())?;
        for (name, count) in &events {
            writeln!(out, "  {name} {count}")?;
        }
        writeln!(out, "blocks {}", self.blocks)?;
        if let Some(ipc) = self.ipc() {
            let Pace { insns, cycles } = self.pace;
            writeln!(out, "instructions per cycle {ipc:.2} ({insns} in {cycles})")?;
        }
        writeln!(out, "instructions {} gaps {}", self.instructions, self.gaps)
    }
}

/// The number of values of each variant of an enum. There may be billions of values, but few
/// variants.
#[derive(Debug)]
struct VariantCounts<T>(Vec<(Discriminant<T>, String, u64)>);

impl<T> Default for VariantCounts<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Debug> VariantCounts<T> {
    /// Counts a value by its variant, whatever the variant's fields are.
    fn count(&mut self, value: &T) {
        let kind = discriminant(value);
        match self.0.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., count)) => *count += 1,
            None => self.0.push((kind, variant_name(value), 1)),
        }
    }

    /// Returns the counts by the names of the variants.
    fn by_name(&self) -> BTreeMap<&str, u64> {
        self.0.iter().map(|(_, name, count)| (name.as_str(), *count)).collect()
    }
}

/// Returns the name of a value's variant.
fn variant_name(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
