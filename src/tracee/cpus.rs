//! The CPUs that a thread may run on (`sched_setaffinity(2)`).

use super::error::Error;
use crate::common::Tid;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid as NixPid;

/// The calling thread, as the kernel's scheduling calls name it.
const CALLING_THREAD: Tid = Tid(0);

/// A set of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(CpuSet);

impl Cpus {
    /// Returns the CPUs that the calling thread may run on. Fails on machines with more than 1024
    /// possible CPUs.
    pub fn of_this_thread() -> Result<Self, Error> {
        let cpus = sched_getaffinity(NixPid::from_raw(CALLING_THREAD.0));
        cpus.map(Self).map_err(|errno| Error::System { call: "sched_getaffinity", errno })
    }

    /// Returns the CPU that the calling thread runs on at the moment, as a set of one.
    pub fn current() -> Result<Self, Error> {
        let mut set = CpuSet::new();
        let current = sched_getcpu().and_then(|cpu| set.set(cpu));
        current.map_err(|errno| Error::System { call: "getcpu", errno })?;
        Ok(Self(set))
    }

    /// Returns these CPUs without those of `others`; `None` if none is left.
    #[must_use]
    pub fn without(self, others: Self) -> Option<Self> {
        let mut rest = self.0;
        let mut any = false;
        for cpu in 0..CpuSet::count() {
            let is_in = |set: &CpuSet| set.is_set(cpu).unwrap_or(false);
            if is_in(&others.0) {
                // The CPU number is within the set's size, so this cannot fail.
                let _ = rest.unset(cpu);
            }
            any |= is_in(&rest);
        }
        any.then_some(Self(rest))
    }

    /// Restricts a thread to these CPUs, and the threads and processes that it creates from then
    /// on. Ignores a thread that is gone. Fails if the kernel allows none of them.
    pub fn pin(self, tid: Tid) -> Result<(), Error> {
        match sched_setaffinity(NixPid::from_raw(tid.0), &self.0) {
            Err(errno) if errno != Errno::ESRCH => {
                Err(Error::System { call: "sched_setaffinity", errno })
            }
            _ => Ok(()),
        }
    }

    /// Restricts the calling thread to these CPUs, as [`Self::pin`] does.
    pub fn pin_this_thread(self) -> Result<(), Error> {
        self.pin(CALLING_THREAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_set() {
        let all = Cpus::of_this_thread().unwrap();
        assert_eq!(all.without(all), None);
        let here = Cpus::current().unwrap();
        if let Some(rest) = all.without(here) {
            assert_eq!(rest.without(here), Some(rest));
            assert_ne!(rest, all);
        }
    }

    #[test]
    fn a_thread_stays_where_it_is_kept() {
        let here = Cpus::current().unwrap();
        here.pin_this_thread().unwrap();
        assert_eq!(Cpus::of_this_thread().unwrap(), here);
    }
}
