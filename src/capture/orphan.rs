//! Child processes that must not outlive the thread that starts them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The signal that a child process gets when the thread that started it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanEnd {
    /// SIGKILL.
    Kill,
    /// SIGTERM: a recorder passes it on to its program, and completes its recording.
    Terminate,
}

/// Makes a command's process end with the thread that starts it (`PR_SET_PDEATHSIG` of prctl(2)).
pub fn end_with_parent(command: &mut Command, end: OrphanEnd) {
    let signal = match end {
        OrphanEnd::Kill => libc::SIGKILL,
        OrphanEnd::Terminate => libc::SIGTERM,
    };
    let parent = std::process::id();
    let set = move || {
        // SAFETY: prctl(2) and getppid(2) touch no memory here.
        let (failed, is_orphan) = unsafe {
            (
                libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0,
                libc::getppid().cast_unsigned() != parent,
            )
        };
        match (failed, is_orphan) {
            (true, _) => Err(io::Error::last_os_error()),
            // The parent ended before the signal was set.
            (_, true) => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure allocates nothing, and makes only system calls that are safe between
    // fork(2) and execve(2).
    unsafe { command.pre_exec(set) };
}
