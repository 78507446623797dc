//! The addresses at which the calls of a run begin, and to which they return.

use super::opened::Asked;
use super::tracker::{Change, Tracker};
use super::wanted::WantedFunctions;
use crate::common::{Addr, Tid};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// The addresses at which calls begin, and the addresses to which they return.
#[derive(Debug, Default)]
pub(super) struct Sites {
    /// The first instructions of the functions.
    pub(super) starts: BTreeSet<Addr>,
    /// The instructions that the functions return to.
    pub(super) returns: BTreeSet<Addr>,
}

impl Asked {
    /// Walks all paths, and collects where the calls of the wanted functions begin and return to: a
    /// replay has to stop there to read arguments and returned values. If `interrupted` returns
    /// true, some are missing.
    pub(super) fn sites(&self, wanted: &WantedFunctions, interrupted: &dyn Fn() -> bool) -> Sites {
        let mut sites = Sites::default();
        let add = |of_thread: Sites| {
            sites.starts.extend(of_thread.starts);
            sites.returns.extend(of_thread.returns);
        };
        // The ignored result says if some are missing, which the caller knows by `interrupted`.
        self.for_each_thread(
            |tid, is_to_end| self.sites_of(tid, wanted, is_to_end),
            add,
            interrupted,
        );
        sites
    }

    /// Walks the path of a thread; stops early, at the next item, once `is_to_end` is set.
    fn sites_of(&self, tid: Tid, wanted: &WantedFunctions, is_to_end: &AtomicBool) -> Sites {
        let functions = self.functions();
        let mut tracker: Tracker<bool> = Tracker::default();
        let mut sites = Sites::default();
        let _: ControlFlow<()> = self.path(tid).walk(&functions, &mut |item| {
            tracker.process(item, &mut |change| match change {
                Change::Began(begins) => {
                    let is_wanted = wanted.contains(begins.ip);
                    if is_wanted {
                        sites.starts.insert(begins.ip);
                    }
                    Some(is_wanted)
                }
                Change::Ended(open, returned) => {
                    // The call returned to this item: changes come before the item.
                    if open.data && returned.is_some() {
                        sites.returns.extend(item.ip());
                    }
                    None
                }
            });
            if is_to_end.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        sites
    }
}
