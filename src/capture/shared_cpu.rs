//! Runs recorder and program on one CPU. They run alternately whenever new code is translated,
//! which is several times as fast on one CPU as on two. A program with one thread begins on the
//! recorder's CPU. Its own CPUs are restored before it can notice: when it asks for them, creates a
//! thread or a process, or is left alone.

use crate::common::Tid;
use crate::tracee::{self, Cpus};

/// The CPUs that program and recorder may use when they do not share one.
#[derive(Clone, Copy, Debug)]
pub(in crate::capture) struct SharedCpu {
    pub(in crate::capture) own: Cpus,
    /// The CPUs for threads of the recorder that encode.
    others: Cpus,
}

impl SharedCpu {
    /// Restricts this thread, and threads and processes that it creates, to its current CPU.
    pub(in crate::capture) fn begin() -> Result<Self, tracee::Error> {
        let own = Cpus::of_this_thread()?;
        let here = Cpus::current()?;
        here.keep_this_thread()?;
        Ok(Self { own, others: own.without(here).unwrap_or(own) })
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
