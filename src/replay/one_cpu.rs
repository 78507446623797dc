//! Replay and replayed process on one CPU: they take turns, and on two CPUs each of them would have to wake the
//! other one's. In virtual machines a turn then takes half as long again.

use crate::common::Tid;
use crate::tracee::Cpus;
use std::time::{Duration, Instant};

/// The time after which the kernel places the two anew, as others may be there by then.
const PERIOD: Duration = Duration::from_millis(50);

/// The CPU on which the two take turns.
#[derive(Debug)]
pub(super) struct OneCpu {
    /// The CPUs that the replay's thread may use; `None` if it has no choice.
    all: Option<Cpus>,
    /// The thread that is kept on a CPU.
    kept: Option<(Tid, Cpus)>,
    next_placing: Instant,
}

/// A turn of the replayed process. When it ends, the replay's thread may use all its CPUs again.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn(Option<Cpus>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(all) = self.0 {
            let _ = all.keep_this_thread();
        }
    }
}

impl OneCpu {
    /// Keeps nothing anywhere yet.
    pub(super) fn new() -> Self {
        let all = Cpus::of_this_thread().ok();
        let all = all.filter(|all| Cpus::current().is_ok_and(|here| all.without(here).is_some()));
        Self { all, kept: None, next_placing: Instant::now() }
    }

    /// Begins a turn of a thread of the process. Where the kernel refuses, turns take longer.
    pub(super) fn begin_turn(&mut self, tid: Tid) -> Turn {
        let Some(all) = self.all else { return Turn(None) };
        let now = Instant::now();
        if now >= self.next_placing {
            self.next_placing = now + PERIOD;
            self.let_go(tid);
            return Turn(None);
        }
        let Ok(here) = Cpus::current() else { return Turn(None) };
        if self.kept != Some((tid, here)) {
            self.kept = here.keep(tid).is_ok().then_some((tid, here));
        }
        let is_kept = self.kept.is_some() && here.keep_this_thread().is_ok();
        Turn(is_kept.then_some(all))
    }

    /// Lets the thread use all CPUs, as the two are to run at the same time.
    pub(super) fn let_go(&mut self, tid: Tid) {
        if let Some(all) = self.all.filter(|_| self.kept.take().is_some()) {
            let _ = all.keep(tid);
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
    fn both_are_on_one_cpu_in_a_turn_only() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid(i32::try_from(child.id()).unwrap());
        let (before, own) = (cpus_of(&child), Cpus::of_this_thread().unwrap());
        let mut one = OneCpu::new();
        if one.all.is_some() {
            one.next_placing = Instant::now() + Duration::from_secs(600);
            let turn = one.begin_turn(tid);
            let here = Cpus::of_this_thread().unwrap();
            assert_eq!(one.kept, Some((tid, here)));
            assert!(own.without(here).is_some() && cpus_of(&child).parse::<u32>().is_ok());
            drop(turn);
            assert_eq!(Cpus::of_this_thread().unwrap(), own);
            one.let_go(tid);
        } else {
            println!("SKIPPED: there is one CPU only");
        }
        assert_eq!(cpus_of(&child), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
