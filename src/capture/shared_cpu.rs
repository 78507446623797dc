//! Runs recorder and program on one CPU. They run alternately whenever new code is translated,
//! which is several times as fast on one CPU as on two. A program with one thread begins on the
//! recorder's CPU. Its own CPUs are restored before it can notice: when it asks for them, creates a
//! thread or a process, or is left alone.

use crate::common::Tid;
use crate::tracee::{self, Cpus};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs;
use std::time::{Duration, Instant};

/// The minimum time between two decisions about the CPU of a thread that can wait.
const CHOICE_PERIOD: Duration = Duration::from_millis(150);
/// The unit of the kernel's times of CPUs (`USER_HZ`).
const TICK_MS: u64 = 10;

/// The CPUs of a program that shares one with its recorder.
#[derive(Clone, Copy, Debug)]
pub(in crate::capture) struct SharedCpu {
    /// All CPUs that program and recorder may use when they do not share one.
    pub(in crate::capture) all: Cpus,
    /// The CPU that they share.
    shared: Cpus,
    /// The CPUs for threads of the recorder that encode.
    others: Cpus,
}

impl SharedCpu {
    /// Restricts this thread, and threads and processes that it creates from now on, to the CPU on
    /// which it runs now. The recorder calls this before it launches the program.
    pub(in crate::capture) fn pin_this_thread() -> Result<Self, tracee::Error> {
        let all = Cpus::of_this_thread()?;
        let shared = Cpus::current()?;
        shared.pin_this_thread()?;
        Ok(Self { all, shared, others: all.without(shared).unwrap_or(all) })
    }

    /// Lets a thread of the program run on all of the program's CPUs again. Failures are ignored:
    /// the thread is gone, or the kernel took these CPUs away, which it does not report to a
    /// program either.
    pub(in crate::capture) fn unpin(self, tid: Tid) {
        let _ = self.all.pin(tid);
    }

    /// Lets this thread, and those that it creates, use all CPUs again until the result is
    /// dropped.
    pub(in crate::capture) fn use_all(self) -> AllCpus {
        let before = Cpus::of_this_thread().ok();
        // If this fails, recording is only slower.
        let _ = self.all.pin_this_thread();
        AllCpus { before }
    }

    /// Moves this thread, which encodes, off the CPU that the program runs on, if there are others.
    pub(in crate::capture) fn move_off(self) {
        // If this fails, recording is only slower.
        let _ = self.others.pin_this_thread();
    }
}

/// The choice of the CPU for a helper thread of the recorder, whose work can wait: another CPU than
/// the program's where one has time to spare. Where other programs need it, such as the clients of
/// a server, the thread would slow them down, and the program that waits for them.
#[derive(Debug)]
pub(in crate::capture) struct HelperPlacement {
    /// The CPU that program and recorder share.
    shared: Cpus,
    /// The other CPUs.
    others: Cpus,
    /// The times at the last choice; `None` before the first.
    last: Option<CpuTimes>,
}

/// The times of all CPUs and of this thread, up to a moment.
#[derive(Clone, Copy, Debug)]
struct CpuTimes {
    at: Instant,
    /// The time for which CPUs were idle, of all CPUs together.
    idle: Duration,
    /// The time for which this thread ran.
    own: Duration,
}

impl HelperPlacement {
    /// Returns the choice for the helper threads of a recorder that shares these CPUs. Moves no
    /// thread.
    pub(in crate::capture) fn of(cpus: &SharedCpu) -> Self {
        Self { shared: cpus.shared, others: cpus.others, last: None }
    }

    /// Moves the calling thread to the shared CPU or to the others, by their idle times since the
    /// last choice. Does nothing if that was less than [`CHOICE_PERIOD`] ago. Chooses the others at
    /// first, and if the times are unknown.
    pub(in crate::capture) fn choose_cpu(&mut self) {
        let now = CpuTimes::now();
        let to = match (self.last, now) {
            (Some(last), Some(now)) if now.at - last.at < CHOICE_PERIOD => return,
            (Some(last), Some(now)) if !now.had_spare_time_since(&last) => self.shared,
            _ => self.others,
        };
        self.last = now;
        // If this fails, recording is only slower.
        let _ = to.pin_this_thread();
    }
}

impl CpuTimes {
    /// Reads the times as of now; `None` if the kernel does not report them.
    fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        // The first line has the sums of all CPUs: user, nice, system, idle (proc_stat(5)).
        let ticks: u64 = text.lines().next()?.split_ascii_whitespace().nth(4)?.parse().ok()?;
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let own = [usage.user_time(), usage.system_time()].map(|time| {
            let (seconds, micros) = (time.tv_sec().cast_unsigned(), time.tv_usec().cast_unsigned());
            Duration::from_secs(seconds) + Duration::from_micros(micros)
        });
        let idle = Duration::from_millis(ticks * TICK_MS);
        Some(Self { at: Instant::now(), idle, own: own[0] + own[1] })
    }

    /// Returns true if since `last`, the time for which CPUs were idle or ran this thread is at
    /// least half of a CPU's time.
    fn had_spare_time_since(&self, last: &Self) -> bool {
        let spare = (self.idle + self.own).saturating_sub(last.idle + last.own);
        spare * 2 >= self.at - last.at
    }
}

/// A permission of a thread to use all CPUs, until this is dropped.
#[derive(Debug)]
pub(in crate::capture) struct AllCpus {
    /// The CPUs to which the thread is restricted again; `None` if unknown.
    before: Option<Cpus>,
}

impl Drop for AllCpus {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = before.pin_this_thread();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_cpu_is_enough() {
        let at = Instant::now();
        let ms = Duration::from_millis;
        let last = CpuTimes { at, idle: ms(1000), own: ms(10) };
        let later = |idle: u64, own: u64| CpuTimes {
            at: at + ms(200),
            idle: ms(1000 + idle),
            own: ms(10 + own),
        };
        assert!(later(100, 0).had_spare_time_since(&last));
        assert!(later(40, 60).had_spare_time_since(&last));
        assert!(!later(50, 40).had_spare_time_since(&last));
    }

    #[test]
    fn the_kernel_says_how_long_cpus_were_idle() {
        let before = CpuTimes::now().expect("/proc/stat");
        std::thread::sleep(Duration::from_millis(30));
        let after = CpuTimes::now().expect("/proc/stat");
        assert!(before.own <= after.own && before.at < after.at);
        assert!(!after.idle.is_zero());
    }
}
