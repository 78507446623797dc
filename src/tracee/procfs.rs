//! Reads the state of a traced process, and the machine's available memory, from `/proc` (proc(5)).

use super::error::Error;
use crate::common::{Pid, Tid};
use crate::sideband::{Mapping, parse_maps};
use std::ffi::OsString;
use std::fs::{self};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the `/proc` directory that describes a process's memory and program: that of its first
/// thread, or of another one if the first has ended (`pthread_exit`). If all have ended, that of
/// the first.
pub(super) fn live_thread_dir(pid: Pid) -> PathBuf {
    let first = PathBuf::from(format!("/proc/{pid}"));
    let lives = |dir: &PathBuf| fs::read_link(dir.join("exe")).is_ok();
    if lives(&first) {
        return first;
    }
    let others = threads(pid).into_iter().map(|tid| first.join(format!("task/{tid}")));
    others.into_iter().find(lives).unwrap_or(first)
}

/// Returns the process's mappings, in the order of their addresses. In a name, bytes that are not
/// UTF-8 are replaced, so such a file cannot be opened by it. Fails if the process is gone, or a
/// line of the list cannot be parsed.
pub fn mappings(pid: Pid) -> Result<Vec<Mapping>, Error> {
    let path = live_thread_dir(pid).join("maps");
    // A file name may be any bytes. The text is for display, so invalid UTF-8 is replaced.
    let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.map_err(|error| Error::Proc { path: path.clone(), error })?;
    parse_maps(&text).map_err(|error| Error::Proc { path, error: io::Error::other(error) })
}

/// Returns the start addresses of the mappings that the process excludes from core dumps
/// (madvise(2), `MADV_DONTDUMP`): secrets, and the shadow memory of sanitizers, which may be
/// terabytes. Empty if the kernel does not report them, or the process is gone.
pub fn undumped_mappings(pid: Pid) -> Vec<u64> {
    let text = fs::read(live_thread_dir(pid).join("smaps")).unwrap_or_default();
    undumped_of(&String::from_utf8_lossy(&text))
}

/// Returns the start addresses of the mappings with the flag `dd` in a text of `smaps`.
fn undumped_of(smaps: &str) -> Vec<u64> {
    let mut start = None;
    let mut found = Vec::new();
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_undumped = flags.split_whitespace().any(|flag| flag == "dd");
            found.extend(start.filter(|_| is_undumped));
        } else if let Some((first, _)) = line.split_once('-') {
            start = u64::from_str_radix(first, 16).ok().or(start);
        }
    }
    found
}

/// Returns a thread's name; empty if it is unknown.
pub fn comm(pid: Pid, tid: Tid) -> String {
    let path = format!("/proc/{pid}/task/{tid}/comm");
    fs::read(path).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).trim().to_owned())
}

/// Returns the arguments of a process (`argv`), as it may have overwritten them, beginning with its
/// own name; one empty string if they are unknown.
pub fn command_line(pid: Pid) -> Vec<OsString> {
    let line = fs::read(live_thread_dir(pid).join("cmdline")).unwrap_or_default();
    let line = line.strip_suffix(&[0]).unwrap_or(&line);
    line.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// A process's signal dispositions, as sets with signal 1 in bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dispositions {
    /// The signals that have a handler.
    pub caught: u64,
    /// The signals that the process ignores.
    pub ignored: u64,
}

/// Reads the signal dispositions of the thread's process (proc(5), "status"). Fails if the thread
/// is gone.
pub fn dispositions(tid: Tid) -> Result<Dispositions, Error> {
    let path = format!("/proc/{tid}/status");
    let text = read_text(&path)?;
    Ok(Dispositions { caught: set_of(&text, "SigCgt:"), ignored: set_of(&text, "SigIgn:") })
}

/// A thread's pending and blocked signals, as sets with signal 1 in bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The signals that are pending for the thread or for its process.
    pub pending: u64,
    /// The signals that the thread blocks.
    pub blocked: u64,
}

/// Reads a thread's pending and blocked signals (proc(5), "status"). Fails if the thread is gone.
pub fn signals(pid: Pid, tid: Tid) -> Result<Signals, Error> {
    let path = format!("/proc/{pid}/task/{tid}/status");
    let text = read_text(&path)?;
    let pending = set_of(&text, "SigPnd:") | set_of(&text, "ShdPnd:");
    Ok(Signals { pending, blocked: set_of(&text, "SigBlk:") })
}

/// Returns true if a fatal signal is ending a thread (`PF_SIGNALED`; proc(5), "flags" of stat);
/// false if none is, or the thread is gone.
pub fn is_being_killed(pid: Pid, tid: Tid) -> bool {
    const PF_SIGNALED: u64 = 0x400;
    // The index of the flags after the name.
    const FLAGS: usize = 6;
    let Ok(text) = read_text(&format!("/proc/{pid}/task/{tid}/stat")) else { return false };
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_whitespace().nth(FLAGS).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_SIGNALED != 0)
}

/// Reads a file about a thread as text. Bytes that are not UTF-8 are replaced.
fn read_text(path: &str) -> Result<String, Error> {
    // A thread's name may be any bytes.
    let bytes = fs::read(path).map_err(|error| Error::Proc { path: path.into(), error })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the signal set on the line of a status file that begins with `label`, such as `SigBlk:`;
/// 0 if there is no such line, or it has no number.
fn set_of(status: &str, label: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(label));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// Returns the auxiliary vector as the kernel keeps it; empty if it is unknown.
pub fn auxv(pid: Pid) -> Vec<u8> {
    fs::read(live_thread_dir(pid).join("auxv")).unwrap_or_default()
}

/// The type of the auxiliary vector's entry with the address of the program interpreter
/// (include/uapi/linux/auxvec.h).
pub const AT_BASE: u64 = 7;
/// The type of the auxiliary vector's entry with the program's entry point.
pub const AT_ENTRY: u64 = 9;

/// Returns the value of an entry of an auxiliary vector; `None` if there is none, or if it is 0.
pub fn auxv_value(vector: &[u8], kind: u64) -> Option<u64> {
    let entry = vector.chunks_exact(16).find(|entry| entry.starts_with(&kind.to_le_bytes()))?;
    let value = u64::from_le_bytes(entry[8..].try_into().ok()?);
    Some(value).filter(|value| *value != 0)
}

/// Returns the path of the file that the process executes (`/proc/PID/exe`). It ends in `
/// (deleted)` if the file was deleted. Fails if the process is gone, or may not be examined.
pub fn executable(pid: Pid) -> Result<PathBuf, Error> {
    let path = live_thread_dir(pid).join("exe");
    fs::read_link(&path).map_err(|error| Error::Proc { path, error })
}

/// The fields of `/proc/PID/status` that decide whether a process or thread can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The letter of `State`: R, S, D, T, t, Z, X, I.
    pub letter: char,
    /// The number of the tracing thread (`TracerPid`); 0 if the process is not traced.
    pub tracer: i32,
    /// The number of seccomp filters of the process (`Seccomp_filters`). Kernels before 5.9 do not
    /// report it: then 1 if the process has any.
    pub filters: u32,
}

/// Returns the process that a thread belongs to (`Tgid`); `None` if there is no such thread.
pub fn process_of(tid: Tid) -> Option<Pid> {
    let status = read_text(&format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().map(Pid)
}

/// Returns true if a task is a thread of the given process, and not reaped.
pub fn is_thread_of(tid: Tid, pid: Pid) -> bool {
    Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Reads the status of a process or thread; `None` if there is none with this number.
pub fn process_status(pid: Pid) -> Option<ProcessStatus> {
    let status = read_text(&format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or("", str::trim)
    };
    // Strict mode has a mode, but no filters.
    let mode: u32 = field("Seccomp").parse().unwrap_or(0);
    let count = field("Seccomp_filters").parse().unwrap_or(0);
    Some(ProcessStatus {
        letter: field("State").chars().next().unwrap_or('?'),
        tracer: field("TracerPid").parse().unwrap_or(0),
        filters: mode.min(1).max(count),
    })
}

/// Returns true if a process has more seccomp filters than `other`: it installed some itself. Both
/// may have those of their container, for instance. A process that is gone counts as having none.
pub fn has_more_filters(pid: Pid, other: Pid) -> bool {
    let filters = |pid| process_status(pid).map_or(0, |state| state.filters);
    filters(pid) > filters(other)
}

/// Returns the real user ID of a process; `None` if there is no such process.
pub fn real_user_id(pid: Pid) -> Option<u32> {
    real_id(pid, "Uid:")
}

/// Returns the real group ID of a process; `None` if there is no such process.
pub fn real_group_id(pid: Pid) -> Option<u32> {
    real_id(pid, "Gid:")
}

/// Returns the first ID, the real one, on the line of a status file that begins with `label`.
fn real_id(pid: Pid, label: &str) -> Option<u32> {
    let status = read_text(&format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the time at which a process was started, in clock ticks since boot (proc(5), "starttime"
/// of stat); `None` if there is no such process.
pub fn start_time(pid: Pid) -> Option<u64> {
    // The index of the time in the fields after the name.
    const START_TIME: usize = 19;
    let stat = read_text(&format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(START_TIME)?.parse().ok()
}

/// Returns true if a process's first thread is gone, or the whole process. The kernel does not
/// report that to the tracer while other threads live: a first thread killed at or near its exit
/// stop ends silently.
pub fn is_first_thread_gone(pid: Pid) -> bool {
    process_status(pid).is_none_or(|state| matches!(state.letter, 'Z' | 'X'))
}

/// The kernel's work for a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelWork {
    /// The number of page faults that needed no disk. First writes to pages after fork(2) are among
    /// them.
    pub faults: u64,
    /// The CPU time that the process spent in the kernel, in whole clock ticks (mostly 10 ms).
    pub time: Duration,
}

/// Returns the kernel's work for a process (proc(5), "stat"); `None` if there is no such process.
pub fn kernel_work(pid: Pid) -> Option<KernelWork> {
    let text = read_text(&format!("/proc/{pid}/stat")).ok()?;
    // SAFETY: it reads a number of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    work_of(&text, u64::try_from(ticks_per_second).ok().filter(|ticks| *ticks > 0)?)
}

/// Parses the kernel's work from the text of a stat file; `None` if a field is missing.
fn work_of(stat: &str, ticks_per_second: u64) -> Option<KernelWork> {
    // The indexes of `minflt` and `stime` in the fields after the name.
    const MINOR_FAULTS: usize = 7;
    const SYSTEM_TIME: usize = 12;
    // The name may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let field = |number| fields.split_whitespace().nth(number)?.parse::<u64>().ok();
    let time = Duration::from_millis(field(SYSTEM_TIME)?.saturating_mul(1000) / ticks_per_second);
    Some(KernelWork { faults: field(MINOR_FAULTS)?, time })
}

/// Returns the share of the machine's memory that is available without swapping, in percent
/// (proc(5), `MemAvailable`); `None` if the kernel does not report it.
pub fn available_memory_percent() -> Option<u64> {
    available_percent(&read_text("/proc/meminfo").ok()?)
}

/// Parses the share of available memory, in percent, from the text of /proc/meminfo; `None` if a
/// field is missing.
fn available_percent(text: &str) -> Option<u64> {
    let field = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    field("MemAvailable:")?.saturating_mul(100).checked_div(field("MemTotal:")?)
}

/// Returns true if the calling thread traces the given thread; false if that is gone.
pub fn is_traced_here(tid: Tid) -> bool {
    let tracer = nix::unistd::gettid().as_raw();
    process_status(Pid(tid.0)).is_some_and(|state| state.tracer == tracer)
}

/// Returns the number of the system call that a thread is in (proc(5), "syscall"); `None` if it is
/// in none, is gone, or still runs after a second. Blocks while the thread runs, for at most that
/// time: it is then about to leave the kernel or to sleep in it.
pub fn current_call(pid: Pid, tid: Tid) -> Option<u64> {
    const TRIES: u32 = 1000;
    const PAUSE: Duration = Duration::from_millis(1);
    for _ in 0..TRIES {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        match text.split_whitespace().next() {
            Some("running") => std::thread::sleep(PAUSE),
            number => return number?.parse().ok(),
        }
    }
    None
}

/// Returns the threads of a process, in no certain order; empty if it is gone. A first thread that
/// has ended is among them while others live.
pub fn threads(pid: Pid) -> Vec<Tid> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_dumped() {
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me dd \n\
                     2000-3000 r--p 00000000 00:00 0 /a-b\nVmFlags: rd mr mw me \n\
                     7f0000000000-7f0000001000 rw-p 0 00:00 0 [add-on]\nVmFlags: rd dd\n";
        assert_eq!(undumped_of(smaps), [0x1000, 0x7f00_0000_0000]);
    }

    #[test]
    fn kernel_work_of_a_process() {
        let stat = "12 (a) b) R 1 12 12 0 -1 4194304 345 0 0 0 900 250 0 0 20 0 1 0 5 6";
        let work = KernelWork { faults: 345, time: Duration::from_millis(2500) };
        assert_eq!(work_of(stat, 100), Some(work));
        assert_eq!(work_of("12 (a", 100), None);
        assert!(kernel_work(Pid(std::process::id().cast_signed())).is_some_and(|w| w.faults > 0));
    }

    #[test]
    fn the_share_of_available_memory() {
        let text = "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:    4000 kB\n";
        assert_eq!(available_percent(text), Some(25));
        assert_eq!(available_percent("MemTotal: 1 kB"), None);
        assert_eq!(available_percent("MemTotal: 0 kB\nMemAvailable: 0 kB"), None);
        assert!(available_memory_percent().is_some_and(|percent| percent <= 100));
    }

    #[test]
    fn signals_of_a_status() {
        let status = "Name:\tx\nSigPnd:\t0000000000000010\nSigBlk:\tfffffffe7ffbfeff\n";
        assert_eq!(set_of(status, "SigPnd:"), 0x10);
        assert_eq!(set_of(status, "SigBlk:"), 0xffff_fffe_7ffb_feff);
        assert_eq!(set_of(status, "ShdPnd:"), 0);
    }
}
