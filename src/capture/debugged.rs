//! A program under a debugger, as all backends have it: which threads are looked at, and what the
//! debugger hears of them. How threads run and stop is each backend's own business.

use super::Error;
use super::culprit::Culprit;
use super::live::{Go, News};
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::recording::Exit;
use crate::tracee::Signo;
use std::collections::BTreeMap;

/// What the debugger is to hear of a thread.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// What it has not been told yet.
    pub(super) news: Option<News>,
    /// What it is to hear as soon as the thread is to go on: that a step is done in whose midst a
    /// child was born; or of that child, where the step was told first.
    pub(super) owed: Option<News>,
    /// A signal that it sent the thread, and is not asked about.
    pub(super) sent: Signo,
}

impl Pending {
    /// Whether the debugger is asked about a signal that comes, where it passes some.
    pub(super) fn asks(&mut self, signal: Signo, passed: u64) -> bool {
        if self.sent == signal {
            self.sent = 0;
            return false;
        }
        passed & 1 << (signal - 1).clamp(0, 63) == 0
    }

    /// Nobody is to hear of children.
    fn forget_births(&mut self) {
        self.news.take_if(|news| news.is_birth());
        self.owed.take_if(|news| news.is_birth());
    }
}

/// A thread of a program under a debugger.
pub(super) trait DebuggedThread {
    fn process(&self) -> Pid;
    fn pending(&mut self) -> &mut Pending;

    /// Stands at its end.
    fn is_at_end(&self) -> bool;

    /// What is executed next, of a thread that stands in the program.
    fn next_ip(&self) -> Option<Addr>;

    /// Its registers, and the signal that it stands at.
    fn state(&self) -> Option<core::Thread>;
}

/// The program, and what is recorded beside it.
pub(super) trait Debugged {
    type Thread: DebuggedThread;

    fn program(&self) -> Pid;
    fn threads(&self) -> &BTreeMap<Tid, Self::Thread>;
    fn threads_mut(&mut self) -> &mut BTreeMap<Tid, Self::Thread>;

    /// Who ended the program, as far as that is known; none where it is gone.
    fn culprit(&self) -> Option<Culprit>;

    /// How it ended, once it is gone.
    fn exit(&self) -> Option<Exit>;

    /// All its threads stand at their end: lets them.
    fn let_end(&mut self) -> Result<(), Error>;

    /// It goes on by itself from where all its threads stand, and its recording ends here.
    fn part_from_program(&mut self) -> Result<(), Error>;

    fn is_gone(&self) -> bool {
        self.culprit().is_none()
    }

    fn tids(&self) -> Vec<Tid> {
        let of_program = |(tid, thread): (&Tid, &Self::Thread)| {
            (thread.process() == self.program()).then_some(*tid)
        };
        self.threads().iter().filter_map(of_program).collect()
    }

    fn is_at_end(&self) -> bool {
        let tids = self.tids();
        let at_end = |tid| self.threads().get(tid).is_some_and(Self::Thread::is_at_end);
        !tids.is_empty() && tids.iter().all(at_end)
    }

    /// The threads of what stands beside the program, and is recorded.
    fn tids_beside(&self) -> impl Iterator<Item = (Tid, Pid)> {
        let all = self.threads().iter().map(|(tid, thread)| (*tid, thread.process()));
        all.filter(|(_, pid)| *pid != self.program())
    }

    /// The end of a program that there is nothing more to hear of: it is gone, or stands at its end
    /// and is let go.
    fn end(&mut self) -> Result<Option<(Tid, News)>, Error> {
        if !self.is_gone() {
            if !self.is_at_end() {
                return Ok(None);
            }
            self.let_end()?;
        }
        Ok(Some(self.gone()))
    }

    fn gone(&self) -> (Tid, News) {
        (Tid(self.program().0), News::Ended(self.exit()))
    }

    /// What a thread owes the debugger, where it is told so instead of going on.
    fn take_owed(&mut self, go: &Go) -> Option<(Tid, News)> {
        let owed = self.threads_mut().get_mut(&go.thread)?.pending().owed.take()?;
        (go.step && go.signal == 0 || owed.is_birth()).then_some((go.thread, owed))
    }

    /// What another thread came to while all were being stopped, or stands at now.
    fn news_of_others(&mut self, go: &Go) -> Option<(Tid, News)> {
        let program = self.program();
        let others = self.threads_mut().iter_mut();
        for (tid, thread) in others.filter(|(tid, t)| t.process() == program && **tid != go.thread)
        {
            if let Some(birth) = thread.pending().owed.take_if(|owed| owed.is_birth()) {
                return Some((*tid, birth));
            }
            match thread.pending().news.take() {
                Some(News::Stop) | None => {
                    if thread.next_ip().is_some_and(|ip| go.stops.contains(&ip)) {
                        return Some((*tid, News::Stop));
                    }
                }
                Some(News::Stepped) => {}
                Some(news) => return Some((*tid, news)),
            }
        }
        None
    }

    /// What there is to tell; of `first` rather than of others, which may wait. `alone`: of no
    /// other.
    fn take_news(&mut self, first: Tid, alone: bool) -> Option<(Tid, News)> {
        let Some(culprit) = self.culprit() else { return Some(self.gone()) };
        let program = self.program();
        if self.is_at_end() {
            let known = culprit.known().map(|(tid, _)| tid);
            let known = known.filter(|tid| self.threads().contains_key(tid));
            return Some((known.unwrap_or(Tid(program.0)), News::Ending));
        }
        let threads = self.threads_mut().iter_mut();
        let ran = threads.filter(|(tid, t)| t.process() == program && (!alone || **tid == first));
        let told = ran.filter_map(|(tid, t)| t.pending().news.is_some().then_some((*tid, t)));
        let (tid, thread) = told.min_by_key(|(tid, _)| *tid != first)?;
        thread.pending().news.take().map(|news| (tid, news))
    }

    /// What is told now that all threads stand still: what came meanwhile, rather than a thread
    /// that is gone.
    fn settled(&self, (tid, news): (Tid, News)) -> (Tid, News) {
        match news {
            News::Ended(_) => (tid, news),
            _ if self.is_gone() => self.gone(),
            _ if self.threads().contains_key(&tid) => (tid, news),
            _ => (self.tids().first().copied().unwrap_or(tid), news),
        }
    }

    /// Nobody is to hear of the children that there are.
    fn forget_births(&mut self) {
        self.threads_mut().values_mut().for_each(|thread| thread.pending().forget_births());
    }

    /// Leaves the program, all of whose threads stand still.
    fn leave_program(&mut self) -> Result<(), Error> {
        match (self.is_gone(), self.is_at_end()) {
            (true, _) => Ok(()),
            (_, true) => self.let_end(),
            _ => self.part_from_program(),
        }
    }
}
