//! A model of the PT unit: from the events that a processor executes, it generates the packets that
//! the hardware would. [`Rtit`] adds the model-specific registers and the output memory. Capture
//! backends write their traces through [`Unit`]; tests and fuzzers drive it.
//!
//! ```
//! use contraflow::common::Addr;
//! use contraflow::pt::unit::{Branch, BranchKind, Config, Unit};
//!
//! let mut unit = Unit::new(Config::user_only());
//! // At privilege level 3: user code.
//! unit.enter(Addr(0x40_1000), 3);
//! let (ip, next, target) = (Addr(0x40_1002), Addr(0x40_1004), Addr(0x40_1010));
//! unit.branch(&Branch { kind: BranchKind::Jcc { taken: true }, ip, next, target, cpl: 3 });
//! unit.flush();
//! let trace = unit.drain();
//! # assert!(trace.starts_with(&contraflow::pt::PSB));
//! ```

mod branch;
mod capabilities;
mod circle;
mod config;
mod context;
mod ctl;
mod events;
mod filter;
mod generator;
mod memory;
mod output;
mod overflow;
mod psb;
mod registers;
mod returns;
mod rtit;
mod time;
mod tnt;
mod topa;
mod transfer;

pub use branch::{Branch, BranchKind};
pub use capabilities::{Capabilities, Capability};
pub use config::{Config, TntForm};
pub use context::Paging;
pub use ctl::{RtitCtl, RtitStatus};
pub use events::{FlowEvent, PowerEntry};
pub use filter::IpRange;
pub use generator::Unit;
pub use memory::{Memory, OnRestricted};
pub use output::OperationalError;
pub use registers::{
    GeneralProtection, IA32_RTIT_ADDR0_A, IA32_RTIT_CR3_MATCH, IA32_RTIT_CTL,
    IA32_RTIT_OUTPUT_BASE, IA32_RTIT_OUTPUT_MASK_PTRS, IA32_RTIT_STATUS,
};
pub use rtit::{At, Rtit};
pub use topa::TopaEntry;

#[cfg(test)]
mod tests;
