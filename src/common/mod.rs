//! The values that every room shares: addresses, ids, times, untrusted text. No logic lives here.

mod addr;
mod ids;
mod time;
mod visible;

pub use addr::{Addr, AddrRange};
pub use ids::{Pid, Tid};
pub use time::Tsc;
pub use visible::Visible;
