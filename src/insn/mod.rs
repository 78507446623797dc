//! What an instruction is: its class and length, the memory that it reads, the values that it
//! assigns; and the registers and the mode that it is executed with. Knows nothing of traces and
//! processes.

mod apx;
mod assign;
mod decode;
mod mode;
mod registers;
mod touch;

pub use assign::{Assigned, Gpr, assigned, is_syscall};
pub use decode::{Class, Insn, MAX_INSN_BYTES, decode};
pub use mode::ExecMode;
pub use registers::Registers;
pub use touch::reads;
