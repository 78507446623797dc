//! How much of everything a trace holds.

use crate::pt::Packets;
use crate::timeline::Visit;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Write};

/// Counts of what was seen.
#[derive(Debug, Default)]
pub(super) struct Stats {
    bytes: u64,
    packets: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
    blocks: u64,
    instructions: u64,
    gaps: u64,
}

impl Stats {
    /// Counts the packets of a trace.
    pub(super) fn packets(&mut self, trace: &[u8]) {
        self.bytes += trace.len() as u64;
        for (_, packet) in Packets::synced(trace) {
            let name = packet.map_or_else(|_| "error".to_owned(), |packet| variant(&packet));
            *self.packets.entry(name).or_default() += 1;
        }
    }

    /// Counts one item of a history.
    pub(super) fn visit(&mut self, visit: &Visit<'_>) {
        match visit {
            Visit::Block { span, .. } => {
                self.blocks += 1;
                self.instructions += u64::from(span.insns);
            }
            Visit::Event { event, .. } => {
                *self.events.entry(variant(&event.kind)).or_default() += 1;
            }
            Visit::Gap { .. } => self.gaps += 1,
        }
    }

    /// Prints the counts; the last line is `instructions N gaps M`.
    pub(super) fn print(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
        if json {
            let all = json!({
                "bytes": self.bytes, "packets": self.packets, "events": self.events,
                "blocks": self.blocks, "instructions": self.instructions, "gaps": self.gaps,
            });
            return writeln!(out, "{all}");
        }
        writeln!(out, "bytes {}", self.bytes)?;
        writeln!(out, "packets {}", self.packets.values().sum::<u64>())?;
        for (name, count) in &self.packets {
            writeln!(out, "  {name} {count}")?;
        }
        writeln!(out, "events {}", self.events.values().sum::<u64>())?;
        for (name, count) in &self.events {
            writeln!(out, "  {name} {count}")?;
        }
        writeln!(out, "blocks {}", self.blocks)?;
        writeln!(out, "instructions {} gaps {}", self.instructions, self.gaps)
    }
}

/// The name of a value's variant.
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
