//! Keeps the replay and its process on one CPU. They take turns: while one runs, the other waits
//! for it. On two CPUs, each of them would have to wake the other one's, and in virtual machines a
//! turn then takes half as long again.

use crate::common::Tid;
use crate::tracee::Cpus;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// The time after which the kernel may place the two on another CPU, as this one may be busy by
/// then.
const PERIOD: Duration = Duration::from_millis(50);

thread_local! {
    static THIS_THREAD: RefCell<ThisThread> = const { RefCell::new(ThisThread { spans: 0, own: None }) };
}

/// The state of a thread that replays.
struct ThisThread {
    /// The number of spans that the thread is in, one inside the other.
    spans: u32,
    /// The CPUs that the thread may use after these spans, if it is kept on one now.
    own: Option<Cpus>,
}

impl ThisThread {
    fn let_go(&mut self) {
        if let Some(own) = self.own.take() {
            let _ = own.keep_this_thread();
        }
    }
}

/// A guard: while it exists, this thread may stay pinned to one CPU between its waits for the
/// process. When the outermost guard is dropped, the thread may use all its CPUs again.
#[derive(Debug)]
#[must_use]
pub(super) struct Span(PhantomData<*const ()>);

impl Span {
    /// Begins a span, perhaps inside others. Without one, each turn is a span.
    pub(super) fn begin() -> Self {
        THIS_THREAD.with_borrow_mut(|this| this.spans += 1);
        Self(PhantomData)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        THIS_THREAD.with_borrow_mut(|this| {
            this.spans -= 1;
            if this.spans == 0 {
                this.let_go();
            }
        });
    }
}

/// Keeps the replay's thread and the process's thread on the same CPU.
#[derive(Debug)]
pub(super) struct OneCpu {
    /// True if the two may use more than one CPU.
    has_choice: bool,
    /// The thread that was placed last, and the CPU that it is kept on, if any. A copy of a process
    /// is where its original was kept.
    placed: Option<(Tid, Option<Cpus>)>,
    /// The CPUs that the two may use outside of turns.
    own: Option<Cpus>,
    next_placing: Instant,
}

impl OneCpu {
    /// Returns a state in which no thread is kept on a CPU yet.
    pub(super) fn new() -> Self {
        let own = THIS_THREAD.with_borrow(|this| this.own).or_else(|| Cpus::of_this_thread().ok());
        let is_choice = |own: Cpus| Cpus::current().is_ok_and(|here| own.without(here).is_some());
        let has_choice = own.is_some_and(is_choice);
        Self { has_choice, placed: None, own, next_placing: Instant::now() }
    }

    /// Begins a turn of a thread of the process: keeps both threads on this CPU. If the kernel
    /// refuses, turns take longer.
    pub(super) fn begin_turn(&mut self, tid: Tid) -> Span {
        let span = Span::begin();
        let now = Instant::now();
        if self.has_choice && now >= self.next_placing {
            self.next_placing = now + PERIOD;
            self.let_go(tid);
        } else if self.has_choice {
            self.keep(tid);
        }
        span
    }

    /// Keeps both threads on the current CPU, if the kernel permits it.
    fn keep(&mut self, tid: Tid) {
        let Ok(here) = Cpus::current() else { return };
        if self.placed != Some((tid, Some(here))) {
            self.placed = here.keep(tid).is_ok().then_some((tid, Some(here)));
        }
        let own = self.own.filter(|_| self.placed.is_some());
        THIS_THREAD.with_borrow_mut(|this| {
            if this.own.is_none() && own.is_some() && here.keep_this_thread().is_ok() {
                this.own = own;
            }
        });
    }

    /// Lets both threads use all their CPUs, as they are to be placed anew, or to run at the same
    /// time.
    pub(super) fn let_go(&mut self, tid: Tid) {
        THIS_THREAD.with_borrow_mut(ThisThread::let_go);
        let is_free = !self.has_choice || self.placed == Some((tid, None));
        if let Some(own) = self.own.filter(|_| !is_free) {
            self.placed = own.keep(tid).is_ok().then_some((tid, None));
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
            one.next_placing = Instant::now() + Duration::from_secs(600);
            drop(one.begin_turn(tid));
            assert!(here() == own && cpus_of(&child).parse::<u32>().is_ok());
            let span = Span::begin();
            drop(one.begin_turn(tid));
            let kept = here();
            assert!(own.without(kept).is_some() && one.placed == Some((tid, Some(kept))));
            drop(one.begin_turn(tid));
            assert_eq!(here(), kept);
            one.let_go(tid);
            assert_eq!((here(), cpus_of(&child)), (own, before.clone()));
            drop(one.begin_turn(tid));
            drop(span);
            assert_eq!(here(), own);
            // They are placed anew from time to time.
            one.next_placing = Instant::now();
            let _turn = one.begin_turn(tid);
            assert_eq!((here(), cpus_of(&child)), (own, before));
        } else {
            println!("SKIPPED: there is one CPU only");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
