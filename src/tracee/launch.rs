//! Starts a program under ptrace and stops it at its first instruction.

use super::error::Error;
use super::ptrace::Tracee;
use super::stop::{PtraceEvent, Stop};
use super::wait::wait_for;
use crate::common::{Pid, Tid};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, fork, pipe2};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The settings of a new program, which inherits standard input, output and error, signal mask and
/// CPUs from the calling thread.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The file to execute, which is not searched in `PATH`. A relative path starts at `directory`.
    pub program: &'a Path,
    /// The program's arguments (`argv`), beginning with its own name.
    pub argv: &'a [OsString],
    /// The program's environment: names and values of variables.
    pub env: &'a [(OsString, OsString)],
    /// The program's working directory; `None` for that of this process.
    pub directory: Option<&'a Path>,
    /// True to keep address space randomization, false to disable it.
    pub aslr: bool,
}

/// The data that the child needs after the fork, where it must not allocate.
struct Prepared {
    program: CString,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    directory: Option<CString>,
    aslr: bool,
    // The pointers above point into these.
    _strings: Vec<CString>,
}

impl Launch<'_> {
    /// Starts the program, traced by the calling thread, and blocks until it is stopped at its
    /// first instruction (that of its dynamic loader, if it has one). SIGPIPE has its default
    /// action there. If the kernel refuses to trace or execute it, no process is left.
    pub fn start(&self) -> Result<Pid, Error> {
        let prepared = self.prepare()?;
        let (go_read, go_write) = pipe()?;
        let (error_read, error_write) = pipe()?;
        // SAFETY: the child calls only async-signal-safe functions (`run_child`).
        match unsafe { fork() }.map_err(|errno| Error::System { call: "fork", errno })? {
            ForkResult::Child => {
                // If the parent is killed, the child's wait ends.
                drop((go_write, error_read));
                run_child(&prepared, go_read.as_raw_fd(), error_write.as_raw_fd())
            }
            ForkResult::Parent { child } => {
                drop((go_read, error_write));
                self.adopt(Pid(child.as_raw()), go_write, error_read)
            }
        }
    }

    /// Converts the settings to C strings, before the fork.
    fn prepare(&self) -> Result<Prepared, Error> {
        let variable = |(name, value): &(OsString, OsString)| {
            let mut text = name.clone();
            text.push("=");
            text.push(value);
            c_string(&text)
        };
        let argv = self.argv.iter().map(|a| c_string(a)).collect::<Result<Vec<_>, _>>()?;
        let env = self.env.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        Ok(Prepared {
            program: c_string(self.program.as_os_str())?,
            argv: pointers(&argv),
            env: pointers(&env),
            directory: self.directory.map(|dir| c_string(dir.as_os_str())).transpose()?,
            aslr: self.aslr,
            _strings: argv.into_iter().chain(env).collect(),
        })
    }

    /// Attaches to the child, lets it execute the program by a byte through `go`, and waits until
    /// it has. The child reports a failure through `errors`.
    fn adopt(&self, pid: Pid, go: OwnedFd, errors: OwnedFd) -> Result<Pid, Error> {
        let tracee = Tracee(Tid(pid.0));
        if let Err(error) = tracee.seize() {
            Tracee::kill_process(pid);
            // Reap the child. Report only the refusal, which is what the user needs.
            let _ = wait_for(tracee.0);
            return Err(match error {
                Error::Ptrace { errno, .. } => Error::Refused { errno },
                other => other,
            });
        }
        File::from(go).write_all(b"!").map_err(|error| io_error("write", &error))?;
        loop {
            match wait_for(tracee.0)? {
                Stop::Event(PtraceEvent::Exec) => return Ok(pid),
                Stop::Signal(signal) => tracee.resume(signal)?,
                Stop::Group(_) | Stop::Event(PtraceEvent::Stop) => tracee.resume(0)?,
                _ => break,
            }
        }
        // The child is in its exit stop, which `Tracee::seize` requests, or gone. Its error, if
        // any, is in the pipe.
        kill_and_reap(pid);
        let mut errno = [0; 4];
        let has_errno = has_data(&errors) && File::from(errors).read_exact(&mut errno).is_ok();
        let program = self.program.to_owned();
        Err(if has_errno {
            Error::Exec { program, errno: Errno::from_raw(i32::from_ne_bytes(errno)) }
        } else {
            Error::EndedEarly { program }
        })
    }
}

/// Kills a stopped single-threaded process that the calling thread traces, and blocks until it is
/// reaped. Does nothing if it was reaped before: its number may be another process's by now.
pub fn kill_and_reap(pid: Pid) {
    if !is_unreaped(pid) {
        return;
    }
    let tracee = Tracee(Tid(pid.0));
    Tracee::kill_process(pid);
    loop {
        // A signal does not wake a thread in its exit stop. The thread may also be gone by now.
        let _ = tracee.resume(0);
        if matches!(wait_for(tracee.0), Ok(Stop::Exited(_) | Stop::Killed { .. }) | Err(_)) {
            break;
        }
    }
}

/// Returns true if a process, running or ended, is a child of this one or traced by it, and not
/// reaped.
fn is_unreaped(pid: Pid) -> bool {
    let number = libc::id_t::try_from(pid.0).unwrap_or(0);
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `siginfo_t` is plain data, of which zeros are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: waitid(2) writes to `info` and nothing else.
    unsafe { libc::waitid(libc::P_PID, number, &raw mut info, flags) == 0 }
}

/// Creates a pipe, and returns its ends for reading and writing. An execve(2) closes them.
fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    pipe2(OFlag::O_CLOEXEC).map_err(|errno| Error::System { call: "pipe2", errno })
}

/// Returns true if the pipe has data to read now. Does not block.
fn has_data(pipe: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::ZERO);
    let readable = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN));
    ready.is_ok_and(|count| count > 0) && readable
}

/// Returns a text as a C string. Fails if it has a zero byte.
fn c_string(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.as_bytes()).map_err(|_| Error::ZeroByte)
}

fn io_error(call: &'static str, error: &std::io::Error) -> Error {
    Error::System { call, errno: Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)) }
}

/// Runs in the child: gives SIGPIPE its default action, disables address space randomization if
/// requested, enters the working directory, waits for a byte from `go`, and executes the program.
/// If it cannot enter the directory or execute the program, writes the error number to `errors`.
fn run_child(prepared: &Prepared, go: RawFd, errors: RawFd) -> ! {
    let mut byte = 0_u8;
    // SAFETY: async-signal-safe calls on descriptors and memory that the fork copied. The pointer
    // arrays end in null, and their strings live in `prepared`.
    unsafe {
        // The Rust runtime ignores SIGPIPE; the program must not inherit that.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if !prepared.aslr {
            let current = libc::personality(0xffff_ffff);
            let wanted = current | libc::ADDR_NO_RANDOMIZE;
            libc::personality(libc::c_ulong::from(wanted.cast_unsigned()));
        }
        let is_in_directory =
            prepared.directory.as_ref().is_none_or(|dir| libc::chdir(dir.as_ptr()) == 0);
        if libc::read(go, (&raw mut byte).cast(), 1) == 1 && is_in_directory {
            libc::execve(prepared.program.as_ptr(), prepared.argv.as_ptr(), prepared.env.as_ptr());
        }
        let errno = *libc::__errno_location();
        libc::write(errors, (&raw const errno).cast(), size_of::<i32>());
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_of_others_is_not_killed() {
        // The shell's own child, which outlives it.
        let script = "sleep 60 >/dev/null 2>&1 & echo $!";
        let started = Command::new("sh").args(["-c", script]).output().unwrap();
        let pid: i32 = String::from_utf8(started.stdout).unwrap().trim().parse().unwrap();
        kill_and_reap(Pid(pid));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(!status.contains("State:\tZ"), "{status}");
        Tracee::kill_process(Pid(pid));
    }
}
