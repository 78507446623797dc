//! Recorder and program take turns for each stretch of new code, which is several times as fast on
//! one CPU as on two. A program with one thread begins on the recorder's CPU. It gets its own CPUs
//! back before it can notice: when it asks for them, creates a thread or a process, or is left
//! alone.

use crate::common::Tid;
use crate::tracee::{self, Cpus};

/// The CPUs of program and recorder without turns.
#[derive(Clone, Copy, Debug)]
pub(in crate::capture) struct Turns {
    pub(in crate::capture) own: Cpus,
    /// The CPUs for encoders.
    others: Cpus,
}

impl Turns {
    /// Keeps this thread, and those that it creates, on its current CPU.
    pub(in crate::capture) fn begin() -> Result<Self, tracee::Error> {
        let own = Cpus::of_this_thread()?;
        let here = Cpus::current()?;
        here.keep_this_thread()?;
        Ok(Self { own, others: own.without(here).unwrap_or(own) })
    }

    /// Moves a thread to the program's CPUs. Fails if it is gone, and if the kernel took these CPUs
    /// away, which it does not report to a program either.
    pub(in crate::capture) fn end(self, tid: Tid) {
        let _ = self.own.keep(tid);
    }

    /// Lets this thread, and those that it creates, use all of the program's CPUs until the result
    /// is dropped.
    pub(in crate::capture) fn spread(self) -> Spread {
        let here = Cpus::of_this_thread().ok();
        // If this fails, it is slower.
        let _ = self.own.keep_this_thread();
        Spread { here }
    }

    /// Moves this thread, which encodes, off the program's CPU.
    pub(in crate::capture) fn make_way(self) {
        // If this fails, it is slower.
        let _ = self.others.keep_this_thread();
    }
}

/// A time in which a thread may use all CPUs.
#[derive(Debug)]
pub(in crate::capture) struct Spread {
    /// The CPUs that it returns to.
    here: Option<Cpus>,
}

impl Drop for Spread {
    fn drop(&mut self) {
        if let Some(here) = self.here {
            let _ = here.keep_this_thread();
        }
    }
}
