//! The properties of one instruction: its class and length, the memory that it reads, the values
//! that it assigns. Also the registers and the execution mode of a CPU. Knows nothing of traces and
//! processes.

mod apx;
mod assign;
mod decode;
mod mode;
mod registers;
mod touch;

pub use assign::{Assigned, Gpr, assigned, is_syscall};
pub use decode::{Class, FlagsCopy, Insn, MAX_INSN_BYTES, decode};
pub use mode::ExecMode;
pub use registers::Registers;
pub use touch::{may_write, reads, writes};
