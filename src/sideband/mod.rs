//! Records of the operating system's actions while the program ran: mappings, exec, fork, threads,
//! signals, system calls. Written by the launcher or converted from perf records, and merged by
//! time. Does not decode PT and does no I/O.

mod maps;
pub mod perf_data;
mod perf_switches;
mod record;

pub use maps::{Mapping, MappingSet, ParseMapsError, parse_maps};
pub use perf_switches::{BadSwitches, Switch, SwitchKind, perf_switches};
pub use record::{Backing, Event, FileId, ImageId, Protection, Record};
