//! Watchpoints. Translated code accesses memory at the program's own addresses, so debug registers
//! work in the cache as they do outside.

use super::exact::Exactness;
use super::process::Process;
use super::thread::Thread;
use crate::capture::{Error, Report};
use crate::common::Addr;
use crate::encode::TraceItem;
use crate::tracee::Stop;

impl Process {
    /// Handles the stop of a thread in the cache after an access to the memory that is watched at
    /// `watch`: moves it out of the cache, and stops it for the debugger. Returns another stop if
    /// that came first, which the caller has to handle; the access is reported later then.
    pub(super) fn handle_watchpoint(
        &mut self,
        thread: &mut Thread,
        watch: Addr,
    ) -> Result<Option<Stop>, Error> {
        self.engine.restore_signal_state(&mut thread.translated, libc::SIGTRAP)?;
        if let Exactness::Disturbed(stop) = self.make_exact(thread)? {
            // The access is reported later.
            thread.pending.unreported = Some(Report::Watch(watch));
            return Ok(Some(stop));
        }
        let ip = thread.tracee().registers()?.rip;
        self.send(thread.tid(), TraceItem::EnterKernel { ip });
        thread.stop_with(Report::Watch(watch));
        Ok(None)
    }
}
