//! Work on several threads, the workers, with results in order. Memory is bounded: a worker that is
//! too far ahead of the results that were taken waits.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The distribution of work among threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workers {
    /// The number of worker threads.
    pub(super) count: usize,
    /// The number of results per worker that may wait to be taken.
    pub(super) waiting: usize,
}

impl Workers {
    /// Calls `make` for each job on the workers, and passes the results to `take` on the calling
    /// thread, in the order of the jobs, until `take` breaks or all are taken. Returns what `take`
    /// broke with. Each worker calls `state` once, and keeps the result over all of its jobs. With
    /// one worker, all is done on the calling thread.
    pub(super) fn in_order<J: Sync, S, T: Send, B>(
        self,
        jobs: &[J],
        state: impl Fn() -> S + Sync,
        make: impl Fn(&J, &mut S) -> T + Sync,
        mut take: impl FnMut(&J, T) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let count = self.count.clamp(1, jobs.len().max(1));
        if count == 1 {
            let mut state = state();
            return jobs.iter().try_for_each(|job| take(job, make(job, &mut state)));
        }
        let (state, make) = (&state, &make);
        let work = move |worker: usize, results: &SyncSender<T>| {
            let mut state = state();
            for job in jobs.iter().skip(worker).step_by(count) {
                // The receiver is gone, so `take` broke.
                if results.send(make(job, &mut state)).is_err() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            let start = |worker| {
                let (sender, results) = sync_channel(self.waiting);
                scope.spawn(move || work(worker, &sender));
                results
            };
            let results: Vec<Receiver<T>> = (0..count).map(start).collect();
            for (job, results) in jobs.iter().zip(results.iter().cycle()) {
                // A worker that is gone has panicked, which the scope propagates.
                let Ok(result) = results.recv() else { break };
                take(job, result)?;
            }
            ControlFlow::Continue(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_until_nobody_wants_more() {
        let jobs: Vec<u32> = (0..100).collect();
        for count in [1, 2, 7, 200] {
            let workers = Workers { count, waiting: 2 };
            let mut taken = Vec::new();
            let end = workers.in_order(
                &jobs,
                || 0,
                |job, done| {
                    *done += 1;
                    job * 2
                },
                |job, result| {
                    taken.push(result);
                    if *job == 60 {
                        ControlFlow::Break("enough")
                    } else {
                        ControlFlow::Continue(())
                    }
                },
            );
            assert_eq!(end, ControlFlow::Break("enough"));
            assert_eq!(taken, (0..=60).map(|job| job * 2).collect::<Vec<_>>());
        }
    }
}
