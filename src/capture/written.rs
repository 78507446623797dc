//! Reports the amount written by a running recorder to a callback. Prints nothing.

use std::time::{Duration, Instant};

/// The time of the first report, from the start. Each later report comes at twice the time of the
/// one before, until [`LONGEST`] limits the interval.
const FIRST: Duration = Duration::from_secs(4);
/// The maximum time between two reports.
const LONGEST: Duration = Duration::from_secs(60);

/// The amount that a recorder has written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The number of bytes of traces, sideband and log, over all recordings.
    pub bytes: u64,
    /// The time since the recorder started.
    pub elapsed: Duration,
    /// True if a recording has reached its size limit, and keeps only the end from there on.
    pub is_ring: bool,
}

/// The callback for reports, and the times at which it is called.
#[derive(Debug)]
pub(super) struct ProgressReports {
    report: Option<fn(&Written)>,
    start: Instant,
    /// The time of the next report, from the start.
    next: Duration,
}

impl ProgressReports {
    /// Returns reports of a recorder that starts now, to a callback if there is one.
    pub(super) fn new(report: Option<fn(&Written)>) -> Self {
        Self { report, start: Instant::now(), next: FIRST }
    }

    /// Calls the callback if there is one and a report is due, with the result of `written`: the
    /// values of [`Written::bytes`] and [`Written::is_ring`]. Otherwise does not call `written`.
    pub(super) fn report_if_due(&mut self, written: impl FnOnce() -> (u64, bool)) {
        let elapsed = self.start.elapsed();
        if let Some(report) = self.report.filter(|_| elapsed >= self.next) {
            self.next = time_of_next_after(elapsed);
            let (bytes, is_ring) = written();
            report(&Written { bytes, elapsed, is_ring });
        }
    }
}

/// Returns the time, from the start, of the report that follows one at `elapsed`.
fn time_of_next_after(elapsed: Duration) -> Duration {
    elapsed + elapsed.min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_rare() {
        let mut at = FIRST;
        let mut times = Vec::new();
        while times.len() < 8 {
            times.push(at.as_secs());
            at = time_of_next_after(at);
        }
        assert_eq!(times, [4, 8, 16, 32, 64, 124, 184, 244]);
    }

    #[test]
    fn nothing_is_reported_before_its_time() {
        let mut reports = ProgressReports::new(Some(|_| ()));
        reports.report_if_due(|| unreachable!("at once"));
        assert_eq!(reports.next, FIRST);
        reports.next = Duration::ZERO;
        let mut asked = false;
        reports.report_if_due(|| {
            asked = true;
            (7, false)
        });
        assert!(asked);
    }
}
