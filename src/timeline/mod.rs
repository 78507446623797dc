//! A recording as a line that can be walked in both directions: segments from PSB to PSB, an
//! index of them, a bounded cache of decoded ones, and one order of all threads' instructions.
//!
//! The only join of flow, sideband and recording. Handles no signals and prints nothing.

mod calls;
mod error;
mod images;
mod index;
mod line;
mod order;
mod search;
mod segment;
mod stack;
mod visit;
mod walk;

pub use error::Error;
pub use images::{Epoch, Images};
pub use line::{Options, Timeline};
pub use search::{Direction, Found, Search};
pub use stack::Frame;
pub use visit::Visit;
