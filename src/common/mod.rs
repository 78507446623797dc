//! The nouns that every room shares: addresses, ids, times. No logic lives here.

mod addr;
mod ids;
mod time;

pub use addr::{Addr, AddrRange};
pub use ids::{Pid, Tid};
pub use time::Tsc;
