//! Limits of recordings, in the words of their notes.

/// Acts of a process that an exact recording ends before, and that a recording of the path has no
/// difficulty with: clauses of notes and errors.
pub const ONLY_IN_PATHS: [&str; 4] =
    [SHARES_MEMORY, MIXES_MAPPINGS, CHANGES_BY_32_BIT_CALL, FILLED_AT_ANY_TIME];

/// The note of a recording whose ring was too small for all of it.
pub const OLDER_IS_OVERWRITTEN: &str = "the history begins where the ring of records does";

/// The end of the note of a trace with gaps that a slow disk made.
pub const SLOW_DISK: &str = "the program was faster than the disk";

/// The beginning of the note of a recording whose buffers are smaller than asked for.
pub const SMALL_BUFFER: &str = "the kernel allows a buffer of";

pub(super) const MAKES_UNTRACED: &str = "makes a process that must not be traced (CLONE_UNTRACED)";
pub(super) const SHARES_MEMORY: &str = "makes a process that shares all of its memory,";
pub(super) const MIXES_MAPPINGS: &str = "maps a file privately that it also maps to write to it";
pub(super) const CHANGES_BY_32_BIT_CALL: &str =
    "changes mappings, processes or signals by a 32-bit system call";
pub(super) const FILLED_AT_ANY_TIME: &str = "the kernel writes to its memory at any time";
