//! Encodes and writes the records so far, periodically, while the program runs.
//!
//! No thread is stopped for it: the records of a running thread are known up to its last system
//! call at least. They are sent to the encoder, which runs on another thread; the packets that it
//! makes of them are written at the next saving.

use super::engine::Engine;
use super::process::Process;
use crate::capture::Error;

impl Engine {
    /// Sends the records of all threads so far to the encoder, except those in rings, and writes
    /// the packets encoded by now. Reports the amount written if a report is due. Stops no thread.
    pub(super) fn save_so_far(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut() {
            if let Some(process) = self.processes.get_mut(&thread.pid()) {
                process.save_so_far(thread);
            }
        }
        self.processes.values_mut().try_for_each(Process::write_packets)?;
        let Self { reports, processes, finished, .. } = self;
        reports.report_if_due(|| {
            let ended = finished.iter().map(|(.., bytes)| bytes).sum::<u64>();
            let live = processes.values().map(|process| process.recorder.written_bytes());
            let is_ring = processes.values().any(Process::has_become_ring);
            (ended + live.sum::<u64>(), is_ring)
        });
        Ok(())
    }
}
