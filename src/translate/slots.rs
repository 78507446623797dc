//! The layout of a thread's area, which translated code addresses through GS: first the thread's
//! private slots, then the tables that all threads share.

/// The address for the next record, or the budget in code that counts ticks, while R11 holds the
/// program's value or the thread is in the kernel.
pub const TRACE_POINTER: u32 = 0x00;
/// The program's RCX while a stub uses the register.
pub const RCX: u32 = 0x08;
/// The program's RDX while a stub uses the register.
pub const RDX: u32 = 0x10;
/// The program's RAX while glue reads the time.
pub const RAX: u32 = 0x18;
/// The program's R11 while the register holds the trace pointer.
pub const R11: u32 = 0x20;
/// The target of an indirect branch, for a request.
pub const TARGET: u32 = 0x28;
/// The thread's request to the tracer: the number of an edge, [`INDIRECT`], or 0 for none.
pub const REQUEST: u32 = 0x30;
/// The cache address at which the thread resumes.
pub const RESPONSE: u32 = 0x38;
/// A jump's destination if no register is free for it.
pub const JUMP: u32 = 0x40;
/// In code that counts ticks: the number of the edge of the last indirect branch, or of the edge
/// after an instruction that is logged or answered.
pub const EDGE: u32 = 0x48;
/// In code that logs or answers system calls: the address of the next record of the log.
pub const LOG: u32 = 0x50;
/// In code that logs system calls: the bytes of the log that would be free after one more record of
/// the largest size; negative if it does not fit. In code that answers them: the number of answers
/// after the next one; negative if there is no next one.
pub const LOG_ROOM: u32 = 0x58;
/// R11 at a request: the budget, in code that counts ticks.
pub const COUNTER: u32 = 0x60;
/// In code that answers system calls: the address of the next answer.
pub const ANSWER: u32 = 0x68;

/// The word by which the thread of a replay asks its tracer at a stop, and the tracer answers
/// ([`super::GLANCE_POSTED`]).
pub const GLANCE: u32 = 0x70;
/// 1 while the tracer waits for glances; else the thread does not ask.
pub const WANTS_GLANCES: u32 = 0x78;
/// The program's RSP while glue uses the register.
pub const RSP: u32 = 0x80;
/// The address of [`GLANCE_END`] in the traced process: the stack of a glance's glue.
pub const GLANCE_STACK: u32 = 0x88;
/// 32 bytes that hold an action for `rt_sigaction` while the tracer makes a stopped thread execute
/// that call.
pub const ACTION: u32 = 0x90;
/// The offset at which the registers of a glance end: they are pushed downwards from here.
pub const GLANCE_END: u32 = 0x200;

/// Value of [`REQUEST`]: the target in [`TARGET`] has no superblock yet.
pub const INDIRECT: u64 = u64::MAX;

/// Bytes of a thread's private slots.
pub const PRIVATE_BYTES: u32 = 0x1000;
/// A byte for each system call number (its low 16 bits). In recording code, nonzero stops the
/// thread before the call; in logging and counting code, zero does, and other values are a
/// `LoggedClass`.
pub const SYSCALL_CLASSES: u32 = PRIVATE_BYTES;
/// A cache address for each value of the low 16 bits of an indirect branch's target.
pub const TARGETS: u32 = SYSCALL_CLASSES + 0x1_0000;
/// Bytes of the tables shared by all threads.
pub const SHARED_BYTES: u32 = 0x1_0000 + 0x1_0000 * 8;
/// Bytes of a whole area.
pub const AREA_BYTES: u32 = PRIVATE_BYTES + SHARED_BYTES;
