//! A process whose code runs translated: what it shares with its tracer, its address space, its
//! code.
//!
//! Knows nothing of recordings, traces or debuggers.

mod address_space;
mod area;
mod code;
mod error;
mod masked;
mod place;
mod seal;
mod shared;
mod vsyscall;
mod window;

pub use address_space::{AddressSpace, visible};
pub use area::{Area, BUFFERS, Busy};
pub use code::{Change, Pages, View};
pub use error::Error;
pub use shared::Shared;
pub use vsyscall::{call_at, make_call};
pub use window::{Window, ZONE_BYTES, checked};
