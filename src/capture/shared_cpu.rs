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
const SPARE_PERIOD: Duration = Duration::from_millis(150);
/// The unit of the kernel's times of CPUs (`USER_HZ`).
const TICK_MS: u64 = 10;

/// The CPUs of a program that shares one with its recorder.
#[derive(Clone, Copy, Debug)]
pub(in crate::capture) struct SharedCpu {
    /// All CPUs that program and recorder may use when they do not share one.
    pub(in crate::capture) own: Cpus,
    /// The CPU that they share.
    here: Cpus,
    /// The CPUs for threads of the recorder that encode.
    others: Cpus,
}

impl SharedCpu {
    /// Restricts this thread, and threads and processes that it creates, to its current CPU.
    pub(in crate::capture) fn begin() -> Result<Self, tracee::Error> {
        let own = Cpus::of_this_thread()?;
        let here = Cpus::current()?;
        here.keep_this_thread()?;
        Ok(Self { own, here, others: own.without(here).unwrap_or(own) })
    }

    /// Lets a thread run on all of the program's own CPUs again. Failures are ignored: the thread
    /// is gone, or the kernel took these CPUs away, which it does not report to a program either.
    pub(in crate::capture) fn end(self, tid: Tid) {
        let _ = self.own.keep(tid);
    }

    /// Lets this thread, and those that it creates, use all of the program's own CPUs until the
    /// result is dropped.
    pub(in crate::capture) fn spread(self) -> Spread {
        let here = Cpus::of_this_thread().ok();
        // If this fails, recording is only slower.
        let _ = self.own.keep_this_thread();
        Spread { here }
    }

    /// Moves this thread, which encodes, off the CPU that the program runs on.
    pub(in crate::capture) fn make_way(self) {
        // If this fails, recording is only slower.
        let _ = self.others.keep_this_thread();
    }
}

/// Places a thread of the recorder that can wait: on another CPU than the program's where that has
/// time to spare. Where other programs need it, such as the clients of a server, the thread would
/// slow them down, and the program that waits for them.
#[derive(Debug)]
pub(in crate::capture) struct Spare {
    /// The CPU of the program, and the others.
    here: Cpus,
    others: Cpus,
    last: Option<Times>,
}

/// The times of all CPUs and of this thread, up to a moment.
#[derive(Clone, Copy, Debug)]
struct Times {
    at: Instant,
    /// The time for which CPUs were idle, of all CPUs together.
    idle: Duration,
    /// The time for which this thread ran.
    own: Duration,
}

impl Spare {
    pub(in crate::capture) fn of(cpus: &SharedCpu) -> Self {
        Self { here: cpus.here, others: cpus.others, last: None }
    }

    /// Places this thread by the times since the last call.
    pub(in crate::capture) fn place(&mut self) {
        let now = Times::now();
        let to = match (self.last, now) {
            (Some(last), Some(now)) if now.at - last.at < SPARE_PERIOD => return,
            (Some(last), Some(now)) if !now.leaves_enough(&last) => self.here,
            _ => self.others,
        };
        self.last = now;
        // If this fails, recording is only slower.
        let _ = to.keep_this_thread();
    }
}

impl Times {
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

    /// Returns true if half a CPU was idle since `last`, or ran this thread.
    fn leaves_enough(&self, last: &Self) -> bool {
        let spare = (self.idle + self.own).saturating_sub(last.idle + last.own);
        spare * 2 >= self.at - last.at
    }
}

/// A permission of a thread to use all CPUs, until this is dropped.
#[derive(Debug)]
pub(in crate::capture) struct Spread {
    /// The CPUs to which the thread is restricted again; `None` if unknown.
    here: Option<Cpus>,
}

impl Drop for Spread {
    fn drop(&mut self) {
        if let Some(here) = self.here {
            let _ = here.keep_this_thread();
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
        let last = Times { at, idle: ms(1000), own: ms(10) };
        let later = |idle: u64, own: u64| Times {
            at: at + ms(200),
            idle: ms(1000 + idle),
            own: ms(10 + own),
        };
        assert!(later(100, 0).leaves_enough(&last));
        assert!(later(40, 60).leaves_enough(&last));
        assert!(!later(50, 40).leaves_enough(&last));
    }

    #[test]
    fn the_kernel_says_how_long_cpus_were_idle() {
        let before = Times::now().expect("/proc/stat");
        std::thread::sleep(Duration::from_millis(30));
        let after = Times::now().expect("/proc/stat");
        assert!(before.own <= after.own && before.at < after.at);
        assert!(!after.idle.is_zero());
    }
}
