//! The model of Linux system calls on x86-64: which memory of its caller the kernel writes in a
//! call, and what else a recorder must know of it.
//!
//! The model is a table with one line per call (`table`), and one for `ioctl` requests (`ioctl`).
//! It makes no system calls itself and looks at memory only through [`CallerMemory`].
//!
//! A recorder asks twice. Before the call, [`Call::begin`] reads the lengths, vectors and headers
//! that the kernel may overwrite. After it, [`OpenCall::end`] returns the ranges:
//!
//! ```
//! use contraflow::common::{Addr, AddrRange};
//! use contraflow::syscalls::{Call, Effects};
//!
//! // read(0, 0x1000, 64), which returns 5.
//! let memory = |_: Addr, _: &mut [u8]| 0;
//! let open = Call { number: 0, args: [0, 0x1000, 64, 0, 0, 0] }.begin(&memory);
//! let written = AddrRange::sized(Addr(0x1000), 5);
//! assert_eq!(open.end(5, &memory), Effects::Known(vec![written]));
//! ```
//!
//! Not in the model: signal frames and `struct rseq`, which the kernel writes when it returns to
//! the program, and mappings of files that change (see [`Property::WritesFiles`]).

mod area;
mod call;
mod errno;
mod ioctl;
mod memory;
mod message;
mod model;
mod registered;
mod resolve;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use call::{Call, Effects, FUTEX_WAITERS, OpenCall};
pub use errno::is_refused;
pub use ioctl::{IoctlRequest, ioctl_requests};
pub use memory::CallerMemory;
pub use model::{Model, Property, models};
pub use registered::Registered;
