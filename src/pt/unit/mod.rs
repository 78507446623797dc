//! A model of the PT unit: given what a processor executes, it writes the packets that the
//! hardware would. Capture backends write their traces through it; tests and fuzzers drive it.
//!
//! ```
//! use contraflow::common::Addr;
//! use contraflow::pt::unit::{Branch, BranchKind, Config, Unit};
//!
//! let mut unit = Unit::new(Config::user_only());
//! unit.enter(Addr(0x40_1000), 3);
//! let (ip, next, target) = (Addr(0x40_1002), Addr(0x40_1004), Addr(0x40_1010));
//! unit.branch(&Branch { kind: BranchKind::Jcc { taken: true }, ip, next, target, cpl: 3 });
//! unit.flush();
//! let trace = unit.drain();
//! # assert!(trace.starts_with(&contraflow::pt::PSB));
//! ```

mod branch;
mod config;
mod context;
mod ctl;
mod events;
mod filter;
mod generator;
mod overflow;
mod psb;
mod returns;
mod time;
mod tnt;
mod transfer;

pub use branch::{Branch, BranchKind};
pub use config::{Config, CrystalRatio, TntForm};
pub use context::Paging;
pub use ctl::{RtitCtl, RtitStatus};
pub use events::{FlowEvent, PowerEntry};
pub use filter::IpRange;
pub use generator::Unit;

#[cfg(test)]
mod tests;
