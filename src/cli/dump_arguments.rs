//! The arguments of `contraflow dump`.

use super::raw_arguments::Raw;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Gaps, where the path is lost, go to stderr. They are data: the exit \
                        status is 0 with them, and 2 for an error. `dump stats` counts them.")]
pub(super) struct Dump {
    /// The rung to print, and a recording's directory or name (the latest if not given), in any
    /// order
    #[arg(
        required = true,
        num_args = 1..=2,
        value_name = "packets|events|blocks|insns|calls|stats|sideband|log|REC"
    )]
    names: Vec<OsString>,
    #[command(flatten)]
    pub(super) raw: Raw,
    /// Print only this thread
    #[arg(long, value_name = "TID", conflicts_with = "pt")]
    pub(super) thread: Option<i32>,
    /// Print bare addresses, 16 hexadecimal digits each
    #[arg(long)]
    pub(super) addresses: bool,
    /// Start at this instruction of the thread; for packets, at this trace offset in bytes; for the
    /// log, at this entry
    #[arg(long, value_name = "N")]
    pub(super) from: Option<u64>,
    /// Stop before this instruction of the thread; for packets, before this trace offset; for the
    /// log, before this entry
    #[arg(long, value_name = "N")]
    pub(super) to: Option<u64>,
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "addresses")]
    pub(super) json: bool,
}

impl Dump {
    /// Returns the kind of dump, and the recording if one is given, in either order. Of two names
    /// of kinds, the second is a recording. Fails if no name is a kind.
    pub(super) fn subject(&self) -> Result<(DumpKind, Option<PathBuf>), String> {
        let kind_of = |name: &OsString| DumpKind::from_str(name.to_str()?, false).ok();
        let (wanted, others): (Vec<_>, Vec<_>) =
            self.names.iter().partition(|name| kind_of(name).is_some());
        match (wanted.first().and_then(|name| kind_of(name)), others.as_slice()) {
            (Some(kind), []) => Ok((kind, wanted.get(1).map(PathBuf::from))),
            (Some(kind), [recording]) => Ok((kind, Some(PathBuf::from(recording)))),
            _ => {
                Err("say what to print: packets, events, blocks, insns, calls, stats, sideband or \
                      log"
                .to_owned())
            }
        }
    }

    /// Fails if the range is reversed, or begins after `end`, the end of the thing that `subject`
    /// names in the error. A range that begins at `end`, and one that goes on after it, is fine.
    pub(super) fn check_range(&self, end: u64, subject: &str) -> Result<(), String> {
        let range = self.range();
        if range.start > range.end {
            return Err(format!("--from {} is after --to {}", range.start, range.end));
        }
        if range.start > end {
            return Err(format!("--from {}: {subject} ends at {end}", range.start));
        }
        Ok(())
    }

    /// Returns the requested range: of instructions, trace offsets or entries. Without `--from` it
    /// begins at 0, and without `--to` it ends at `u64::MAX`.
    pub(super) fn range(&self) -> std::ops::Range<u64> {
        self.from.unwrap_or(0)..self.to.unwrap_or(u64::MAX)
    }
}

/// A kind of dump: a rung of the ladder, or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DumpKind {
    /// Intel PT packets, with their offsets
    Packets,
    /// The meaning of the packets, with the number of the next instruction
    Events,
    /// Instructions executed in a straight line
    Blocks,
    /// Each instruction
    Insns,
    /// Each called function, indented by depth
    Calls,
    /// Counts of everything
    Stats,
    /// The events of the operating system
    Sideband,
    /// The inputs of an exact recording
    Log,
}

impl DumpKind {
    /// Returns true if the items of a timeline are shown or counted with times and paces. False for
    /// packets, which are no such items and get their times elsewhere.
    pub(super) const fn is_timed(self) -> bool {
        matches!(self, Self::Events | Self::Blocks | Self::Stats)
    }
}
