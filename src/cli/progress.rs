//! A progress bar on standard error for long operations, if that is a terminal.

use super::record::size_text;
use crate::timeline::Progress;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const WIDTH: usize = 40;
/// The time for which an operation runs before its bar is shown.
const PATIENCE: Duration = Duration::from_millis(300);
/// The minimum time between two drawings of a bar.
const REFRESH: Duration = Duration::from_millis(100);

/// A progress bar; erased on drop.
pub(super) struct Bar {
    /// The name of the operation.
    doing: &'static str,
    enabled: bool,
    /// The time before which the bar is not drawn.
    next: Instant,
    drawn: bool,
}

impl Bar {
    /// Returns a bar for the operation `doing`. It is shown only if standard error is a terminal,
    /// and not before [`PATIENCE`].
    pub(super) fn new(doing: &'static str) -> Self {
        let next = Instant::now() + PATIENCE;
        Self { doing, enabled: stderr().is_terminal(), next, drawn: false }
    }

    /// Returns a bar that is never shown.
    pub(super) fn hidden() -> Self {
        Self { enabled: false, ..Self::new("") }
    }

    /// Shows how much of a trace is done, and the size of the trace.
    pub(super) fn show(&mut self, progress: Progress) {
        let Progress { done_bytes, total_bytes } = progress;
        self.draw(|doing| {
            format!("{} of {}", line(doing, done_bytes, total_bytes), size_text(total_bytes))
        });
    }

    /// Shows how much of something is done, in any unit.
    pub(super) fn show_part(&mut self, done: u64, total: u64) {
        self.draw(|doing| line(doing, done, total));
    }

    /// Draws the bar if it is time to: after [`PATIENCE`], and once per [`REFRESH`]. `line` gets
    /// the name of the operation.
    fn draw(&mut self, line: impl FnOnce(&str) -> String) {
        if self.enabled && Instant::now() >= self.next {
            self.next = Instant::now() + REFRESH;
            self.drawn = true;
            write_to_terminal(&format!("\r{}", line(self.doing)));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn {
            write_to_terminal("\r\x1b[K");
        }
    }
}

/// Writes to the terminal. A missing terminal is not an error.
fn write_to_terminal(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns the bar as text, with a percentage: 0 if `total` is 0, and 100 at most.
fn line(doing: &str, done: u64, total: u64) -> String {
    let part = |whole: u64| done.min(total).saturating_mul(whole) / total.max(1);
    let filled = usize::try_from(part(WIDTH as u64)).unwrap_or(WIDTH);
    let bar = "#".repeat(filled) + &" ".repeat(WIDTH - filled);
    format!("{doing} [{bar}] {:3} %", part(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_nothing_to_all() {
        let at = |done| line("indexing", done, 2000);
        assert_eq!(at(0).matches('#').count(), 0);
        assert_eq!(at(1000).matches('#').count(), WIDTH / 2);
        assert!(at(2000).contains(&"#".repeat(WIDTH)) && at(2000).ends_with("100 %"));
        assert!(line("indexing", 0, 0).ends_with("  0 %"));
    }
}
