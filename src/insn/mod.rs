//! The properties of one instruction: its class and length, the memory that it reads, the values
//! that it assigns. Also the registers and the execution mode of a CPU. Knows nothing of traces and
//! processes.

mod apx;
mod assign;
mod decode;
mod mode;
mod plain;
mod registers;
mod source;
mod touch;
mod value_place;
pub mod xsave;

pub use assign::{Assigned, Gpr, assigned, is_syscall};
pub use decode::{Class, FlagsCopy, Insn, MAX_INSN_BYTES, decode};
pub use mode::ExecMode;
pub use plain::outside_targets;
pub use registers::Registers;
pub use source::{Origin, Source, inputs_of, is_failed_exchange, sets_flags, source_of};
pub use touch::{may_write, reads, writes};
pub use value_place::{FullRegister, RegisterPart, ValuePlace};
