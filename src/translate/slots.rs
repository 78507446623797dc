//! The layout of a thread's area, which translated code addresses through GS: the thread's own
//! slots first, then the tables that all threads share.

/// Where the next record goes, while R11 is the program's or the thread is in the kernel.
pub const TRACE_POINTER: u32 = 0x00;
/// The program's RCX while a stub uses the register.
pub const RCX: u32 = 0x08;
/// The program's RDX while a stub uses the register.
pub const RDX: u32 = 0x10;
/// The program's RAX while the time is read.
pub const RAX: u32 = 0x18;
/// The program's R11 while the register is the trace pointer.
pub const R11: u32 = 0x20;
/// The address that an indirect branch goes to, for a request.
pub const TARGET: u32 = 0x28;
/// What the thread asks for: the number of an edge, [`INDIRECT`], or 0 for nothing.
pub const REQUEST: u32 = 0x30;
/// Where in the cache the thread goes on.
pub const RESPONSE: u32 = 0x38;
/// A jump's destination when no register is free for it.
pub const JUMP: u32 = 0x40;

/// In [`REQUEST`]: the target in [`TARGET`] has no superblock yet.
pub const INDIRECT: u64 = u64::MAX;

/// Bytes of a thread's own slots.
pub const PRIVATE_BYTES: u32 = 0x1000;
/// A byte for each system call's number (its low 16 bits); not 0: the tracer wants to see it.
pub const SYSCALL_CLASSES: u32 = PRIVATE_BYTES;
/// A cache address for each value of the low 16 bits of an indirect branch's target.
pub const TARGETS: u32 = SYSCALL_CLASSES + 0x1_0000;
/// Bytes of the tables that all threads share.
pub const SHARED_BYTES: u32 = 0x1_0000 + 0x1_0000 * 8;
/// Bytes of an area.
pub const AREA_BYTES: u32 = PRIVATE_BYTES + SHARED_BYTES;
