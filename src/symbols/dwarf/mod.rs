//! DWARF of one module: lines, functions and inline frames, at the addresses of its file. Each
//! compilation unit is read on the first query of an address in it. Nothing here recurses or trusts
//! a size, since the file may be hostile.

mod companions;
mod data;
mod lines;
mod origin;
mod query;
mod scopes;
mod sections;
mod units;

pub use companions::{Companions, companions};
pub(super) use query::Dwarf;
pub use query::{Frame, Location};
pub(super) use sections::has_dwarf;

use data::Data as Reader;
