//! DWARF of one module: lines, functions and inline frames, at the addresses of its file. Each
//! compilation unit is read on the first query of an address in it. Nothing here recurses or trusts
//! a size, since the file may be hostile.

mod companions;
mod data;
mod die;
mod globals;
mod inspect;
mod lines;
mod locate;
mod origin;
mod query;
mod scopes;
mod sections;
mod types;
mod units;
mod variables;

pub use companions::{Companions, companions};
pub(super) use data::Data;
pub(super) use die::EntryId;
pub(super) use locate::LocationDescription;
pub(super) use query::Dwarf;
pub use query::{Frame, Location};
pub(super) use sections::{has_dwarf, section};

/// The reader over which gimli's types are generic here.
use data::Data as Reader;
