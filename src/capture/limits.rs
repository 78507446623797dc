//! Texts about the limits of recordings, for notes to the user.

/// Clauses of notes and errors, for acts of a process that end an exact recording, though
/// recordings of the path allow them.
pub const ONLY_IN_PATHS: [&str; 4] =
    [SHARES_MEMORY, MIXES_MAPPINGS, CHANGES_BY_32_BIT_CALL, FILLED_AT_ANY_TIME];

/// The note on a recording whose ring was too small for the whole run.
pub const OLDER_IS_OVERWRITTEN: &str = "the history begins where the ring of records does";

/// The end of the note on a trace that has gaps because of a slow disk.
pub const SLOW_DISK: &str = "the program was faster than the disk";

/// The beginning of the note on a recording whose buffers are smaller than requested.
pub const SMALL_BUFFER: &str = "the kernel allows a buffer of";

pub(super) const MAKES_UNTRACED: &str = "makes a process that must not be traced (CLONE_UNTRACED)";
pub(super) const SHARES_MEMORY: &str = "makes a process that shares all of its memory,";
pub(super) const MIXES_MAPPINGS: &str = "maps a file privately that it also maps to write to it";
pub(super) const CHANGES_BY_32_BIT_CALL: &str =
    "changes mappings, processes or signals by a 32-bit system call";
pub(super) const FILLED_AT_ANY_TIME: &str = "the kernel writes to its memory at any time";
