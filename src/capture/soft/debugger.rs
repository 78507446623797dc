//! What a debugger wants of a process: where its threads stop, and how they stand then.

use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::clock::now;
use crate::capture::debug_registers::Slot;
use crate::capture::restart::stand_before_call;
use crate::capture::{Catches, Error, Forks, News};
use crate::common::Tid;
use crate::encode::Item;
use crate::tracee::Signo;
use std::collections::{BTreeMap, BTreeSet};

/// What the debugger of a process wants to stop for.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    pub(super) stops: BTreeSet<u64>,
    /// The thread that executes one instruction.
    pub(super) stepping: Option<Tid>,
    /// The others stand still meanwhile, because the debugger wants it.
    pub(super) steps_alone: bool,
    /// One thread runs alone, and a thread that it makes waits at its birth.
    pub(super) holds_newborns: bool,
    /// Where that one stops behind its instruction, if it runs in the cache.
    pub(super) behind: Option<u64>,
    /// How many single instructions it has executed so, one after the other.
    pub(super) lone_steps: u32,
    /// What the threads' debug registers watch.
    pub(super) slots: Vec<Slot>,
    /// Signals that are delivered without a stop.
    pub(super) passed: u64,
    /// The same of the thread that steps.
    pub(super) passed_to_stepper: u64,
    /// System calls that threads stop at.
    pub(super) catches: Catches,
    /// Births of processes that threads stop at.
    pub(super) forks: Forks,
    /// Threads in a system call that they stop behind: where, and its number.
    pub(super) calling: BTreeMap<Tid, (u64, u64)>,
}

/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;

impl Debugger {
    /// All places where threads leave the cache.
    pub(super) fn stops(&self) -> BTreeSet<u64> {
        let behind_calls = self.calling.values().map(|(ip, _)| ip);
        self.stops.iter().chain(&self.behind).chain(behind_calls).copied().collect()
    }
}

impl Thread {
    /// The thread stands still until the debugger lets it go on.
    pub(super) fn stand(&mut self, news: News) {
        self.doing = Doing::Standing;
        self.pending.news = Some(news);
    }

    /// Lets a thread that stands at a signal have it, or another.
    pub(super) fn deliver(&mut self, signal: Signo, caught: bool) -> Result<(), Error> {
        if caught {
            self.doing = Doing::Diverting;
            self.tracee().step(signal)?;
        } else {
            self.doing = Doing::Running;
            self.tracee().resume(signal)?;
        }
        Ok(())
    }
}

impl Process {
    /// Whether the thread executes one instruction for the debugger.
    pub(super) fn is_stepping(&self, thread: &Thread) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.stepping == Some(thread.tid()))
    }

    /// Whether the debugger wants to stop for a signal.
    pub(super) fn wants(&self, thread: &mut Thread, signal: Signo) -> bool {
        let steps = self.is_stepping(thread);
        self.debugger.as_ref().is_some_and(|debugger| {
            let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
            thread.pending.asks(signal, passed)
        })
    }

    /// The thread has come out of the cache where threads stop, at `ip`.
    pub(super) fn stop_at(&mut self, thread: &mut Thread, ip: u64) -> Result<(), Error> {
        self.tell(thread.tid(), Item::Leave { ip });
        let Some(debugger) = &self.debugger else { return Ok(()) };
        let behind_step = self.is_stepping(thread) && debugger.behind == Some(ip);
        let called = debugger.calling.get(&thread.tid()).filter(|(behind, _)| *behind == ip);
        if let Some((_, number)) = called {
            thread.stand(News::CallReturn(*number));
        } else if debugger.stops.contains(&ip) {
            thread.stand(News::Stop);
        } else if behind_step {
            thread.stand(News::Stepped);
        } else {
            // Another thread's step ends here.
            self.go_on_in_cache(thread)?;
        }
        Ok(())
    }

    /// Whether a thread is to stop at a system call that it is about to make at `ip`: once.
    pub(super) fn catches(&self, thread: &mut Thread, number: u64, ip: u64) -> bool {
        let passes = thread.caught.take().is_some_and(|caught| caught == (ip, number));
        !passes && self.debugger.as_ref().is_some_and(|debugger| debugger.catches.has(number))
    }

    /// The thread has come into the program before a system call, and stands there.
    pub(super) fn stand_at_call(&mut self, thread: &mut Thread, number: u64, ip: u64) {
        self.tell(thread.tid(), Item::Leave { ip });
        thread.caught = Some((ip, number));
        thread.stand(News::Call(number));
    }

    /// System calls that the debugger wants to stop at come to the recorder from now on.
    pub(super) fn catch_calls(&mut self, catches: &Catches) {
        let debugger = self.debugger.get_or_insert_default();
        if debugger.catches == *catches {
            return;
        }
        debugger.catches.clone_from(catches);
        // What is not caught any more goes on stopping, and passes.
        match catches {
            Catches::None => {}
            Catches::Of(numbers) => self.engine.see_calls(numbers.iter().copied()),
            Catches::All => self.engine.see_all_calls(),
        }
    }

    /// Threads that stood before a system call make it, and are to stop behind it.
    pub(super) fn note_calling(&mut self, threads: &BTreeMap<Tid, Thread>) {
        let Some(debugger) = &mut self.debugger else { return };
        debugger
            .calling
            .retain(|tid, _| threads.get(tid).is_some_and(|t| t.doing != Doing::Standing));
        for (tid, thread) in threads.iter().filter(|(_, t)| t.doing == Doing::Standing) {
            if let Some((ip, number)) = thread.caught
                && debugger.catches.has(number)
            {
                debugger.calling.insert(*tid, (ip + SYSCALL_BYTES, number));
            }
        }
    }

    /// A thread is stopped in a system call that its debugger wants to hear the return of. Returns
    /// that, to be reported next; once.
    pub(super) fn take_return(&mut self, tid: Tid) -> Option<News> {
        let (_, number) = self.debugger.as_mut()?.calling.remove(&tid)?;
        Some(News::CallReturn(number))
    }

    /// A thread that stands in the program goes on, even where threads stop.
    pub(super) fn go_on_in_cache(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if thread.waits {
            return thread.wait_for_child();
        }
        let ip = thread.tracee().registers()?.rip;
        self.tell(thread.tid(), Item::Enter { ip, tsc: now().0 });
        self.dispatch_passing(thread)?;
        thread.doing = Doing::Running;
        Ok(thread.tracee().resume(0)?)
    }

    /// The thread, which was told to stop, stands in the program.
    pub(super) fn halt(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.tell(thread.tid(), Item::Leave { ip: registers.rip });
        thread.tracee().set_registers(&stand_before_call(&registers))?;
        thread.doing = Doing::Standing;
        Ok(())
    }
}
