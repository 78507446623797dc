//! Keeps the replay's thread and its process on one CPU: *pins* them to it. They take turns: while
//! one runs, the other waits for it. On two CPUs, each of them would have to wake the other one's,
//! and in virtual machines a turn then takes half as long again.
//!
//! [`OneCpu::begin_turn`] pins both threads. The [`PinGuard`] that it returns unpins the replay's
//! thread when it is dropped, unless an outer guard exists: then the pin stays for further turns.
//! The process's thread stays pinned, since it only runs in turns.

use crate::common::Tid;
use crate::tracee::Cpus;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// The time after which both are unpinned for one turn, so that the kernel may place them on
/// another CPU: this one may be busy by then.
const REPIN_PERIOD: Duration = Duration::from_millis(50);

thread_local! {
    static THIS_THREAD: RefCell<ThisThread> = const { RefCell::new(ThisThread { guards: 0, unpinned: None }) };
}

/// The state of a thread of the tracer that replays.
struct ThisThread {
    /// The number of guards that exist.
    guards: u32,
    /// The CPUs that the thread may use when it is unpinned, if it is pinned now.
    unpinned: Option<Cpus>,
}

impl ThisThread {
    /// Lets the calling thread use all its CPUs again. Does nothing if it is not pinned.
    fn unpin(&mut self) {
        if let Some(all) = self.unpinned.take() {
            let _ = all.pin_this_thread();
        }
    }
}

/// A guard: while it exists, the calling thread stays pinned to one CPU from one turn of the
/// process to the next. When the outermost guard is dropped, the thread may use all its CPUs again.
#[derive(Debug)]
#[must_use]
pub(super) struct PinGuard(PhantomData<*const ()>);

impl PinGuard {
    /// Returns a guard for several turns. It pins nothing: the turns do. Guards may exist inside
    /// others.
    pub(super) fn begin() -> Self {
        THIS_THREAD.with_borrow_mut(|this| this.guards += 1);
        Self(PhantomData)
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        THIS_THREAD.with_borrow_mut(|this| {
            this.guards -= 1;
            if this.guards == 0 {
                this.unpin();
            }
        });
    }
}

/// Keeps the replay's thread and the process's thread on the same CPU.
#[derive(Debug)]
pub(super) struct OneCpu {
    /// True if the two may use more than one CPU.
    has_choice: bool,
    /// The thread of the process that was pinned or unpinned last, and the CPU that it is pinned
    /// to, if it is. A copy of a process is pinned like its original.
    pinned: Option<(Tid, Option<Cpus>)>,
    /// The CPUs that the two may use when they are not pinned.
    unpinned: Option<Cpus>,
    next_unpin: Instant,
}

impl OneCpu {
    /// Returns a state in which the process's thread is not pinned yet.
    pub(super) fn new() -> Self {
        let before_pin = THIS_THREAD.with_borrow(|this| this.unpinned);
        let unpinned = before_pin.or_else(|| Cpus::of_this_thread().ok());
        let is_choice = |all: Cpus| Cpus::current().is_ok_and(|here| all.without(here).is_some());
        let has_choice = unpinned.is_some_and(is_choice);
        Self { has_choice, pinned: None, unpinned, next_unpin: Instant::now() }
    }

    /// Begins a turn of the process's thread `tid`: pins it and the calling thread to the CPU that
    /// the latter is on, or, every 50 ms, unpins both for one turn. The turn ends when the guard is
    /// dropped. Pins nothing on a single CPU, or if the kernel refuses: then turns take longer.
    pub(super) fn begin_turn(&mut self, tid: Tid) -> PinGuard {
        let guard = PinGuard::begin();
        let now = Instant::now();
        if self.has_choice && now >= self.next_unpin {
            self.next_unpin = now + REPIN_PERIOD;
            self.unpin(tid);
        } else if self.has_choice {
            self.pin(tid);
        }
        guard
    }

    /// Pins both threads to the current CPU, if the kernel permits it.
    fn pin(&mut self, tid: Tid) {
        let Ok(here) = Cpus::current() else { return };
        if self.pinned != Some((tid, Some(here))) {
            self.pinned = here.pin(tid).is_ok().then_some((tid, Some(here)));
        }
        let unpinned = self.unpinned.filter(|_| self.pinned.is_some());
        THIS_THREAD.with_borrow_mut(|this| {
            if this.unpinned.is_none() && unpinned.is_some() && here.pin_this_thread().is_ok() {
                this.unpinned = unpinned;
            }
        });
    }

    /// Lets both threads use all their CPUs, even while guards exist: the kernel is to choose
    /// another CPU for them, or they are to run at the same time.
    pub(super) fn unpin(&mut self, tid: Tid) {
        THIS_THREAD.with_borrow_mut(ThisThread::unpin);
        let is_free = !self.has_choice || self.pinned == Some((tid, None));
        if let Some(all) = self.unpinned.filter(|_| !is_free) {
            self.pinned = all.pin(tid).is_ok().then_some((tid, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn cpus_of(child: &Child) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
        line.unwrap().split_whitespace().last().unwrap().to_owned()
    }

    #[test]
    fn both_are_on_one_cpu_in_a_span_only() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid(i32::try_from(child.id()).unwrap());
        let (before, own) = (cpus_of(&child), Cpus::of_this_thread().unwrap());
        let mut one = OneCpu::new();
        if one.has_choice {
            let here = || Cpus::of_this_thread().unwrap();
            one.next_unpin = Instant::now() + Duration::from_secs(600);
            drop(one.begin_turn(tid));
            assert!(here() == own && cpus_of(&child).parse::<u32>().is_ok());
            let span = PinGuard::begin();
            drop(one.begin_turn(tid));
            let kept = here();
            assert!(own.without(kept).is_some() && one.pinned == Some((tid, Some(kept))));
            drop(one.begin_turn(tid));
            assert_eq!(here(), kept);
            one.unpin(tid);
            assert_eq!((here(), cpus_of(&child)), (own, before.clone()));
            drop(one.begin_turn(tid));
            drop(span);
            assert_eq!(here(), own);
            // They are unpinned from time to time.
            one.next_unpin = Instant::now();
            let _turn = one.begin_turn(tid);
            assert_eq!((here(), cpus_of(&child)), (own, before));
        } else {
            println!("SKIPPED: there is one CPU only");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
