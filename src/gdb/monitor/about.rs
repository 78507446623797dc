//! Commands about the run as a whole and the current position.

use super::clock::{date, seconds};
use super::{NO_HISTORY, no_path};
use crate::common::Visible;
use crate::session::{History, Position, Run, Session};
use std::fmt::Write;

/// Describes the current position: its number, thread and time, and its share of the history. Adds
/// the times between which the order of threads is unknown, and at the end, how the run ended.
pub(super) fn when<R: Run>(session: &Session<R>) -> String {
    let thread = session.last_stop().thread;
    let Some(position) = session.run().position() else {
        return NO_HISTORY.to_owned();
    };
    let is_exact = session.run().is_exact();
    let number = |at| position_text(at, is_exact);
    let (at, total) = (number(position.at), number(position.total));
    let mut text = format!("position {at} of {total}, thread {thread}");
    if is_exact {
        text.push_str(", exact");
    }
    let history = session.run().path_history();
    // Writes to a string cannot fail.
    if let Some(history) = history {
        let index = history.index_of(thread, position.at);
        let _ = write!(text, " instruction {index}");
    }
    let time_ns = session.run().time_ns();
    if let Some(time_ns) = time_ns {
        let _ = write!(text, ", {}", seconds(time_ns));
    }
    let started = history.and_then(History::started_unix_ns);
    if let (Some(time_ns), Some(started)) = (time_ns, started) {
        let _ = write!(text, ", {}", date(started.saturating_add(time_ns)));
    }
    let _ = write!(text, ", {} of the history", percentage(position.at, position.total));
    if let Some(unordered) = unordered(session) {
        text.push_str(&unordered);
    }
    if position.at == position.total {
        let _ = write!(text, "; the end: {}", session.run().describe().ending);
    }
    text.push('\n');
    text
}

/// Returns the number of a position as text; in an exact recording as `MOMENT` or
/// `MOMENT.INSTRUCTIONS`: the number of log entries and ticks before it (see docs/architecture.md),
/// and of the instructions since then, if not 0.
pub(crate) fn position_text(at: u64, is_exact: bool) -> String {
    Position::text(at, is_exact)
}

/// Describes the time range around the current position in which the order of the threads'
/// instructions is unknown; `None` if the order is known, without a path, or at the end.
fn unordered<R: Run>(session: &Session<R>) -> Option<String> {
    let thread = session.last_stop().thread;
    let at = session.run().position().filter(|position| position.at < position.total)?.at;
    let (from_ns, to_ns) = session.run().path_history()?.overlap_ns(thread, at)?;
    let time = |ns: Option<u64>, unknown: &str| ns.map_or_else(|| unknown.to_owned(), seconds);
    let (from, to) = (time(from_ns, "the start"), time(to_ns, "the end"));
    Some(format!("; from {from} to {to} the order between threads is not known"))
}

/// Returns a share in percent, rounded down, with two decimals; 0 of 0 is 0.
fn percentage(part: u64, whole: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Describes the program, its ending and its recording, in a line for each known fact, and the
/// number of gaps.
pub(super) fn info<R: Run>(session: &Session<R>) -> String {
    let run = session.run();
    let about = run.describe();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "{:<10} {}", format!("{name}:"), Visible(value));
        }
    };
    line("program", about.program);
    line("arguments", about.arguments.join(" "));
    line("ending", about.ending.to_string());
    line("cpu", about.cpu);
    line("captured", about.backend);
    if let Some(position) = run.position() {
        let unit = if run.is_exact() { "moments" } else { "instructions" };
        line("history", format!("{} {unit}", position_text(position.total, run.is_exact())));
    }
    for thread in run.threads() {
        line("thread", format!("{} {}", thread.tid, thread.name));
    }
    line("gaps", run.gaps().len().to_string());
    text
}

/// Lists the gaps in the history, the parts where the path is lost, or says that there are none.
pub(super) fn gaps<R: Run>(session: &Session<R>) -> String {
    let gaps = session.run().gaps();
    if gaps.is_empty() {
        return "no gaps: the history is whole\n".to_owned();
    }
    let mut text = String::new();
    for gap in gaps {
        let last_ip = gap.last_ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string());
        let _ = writeln!(
            text,
            "position {}, thread {}: {} (trace offset {:#x}, last ip {last_ip})",
            gap.position, gap.tid, gap.reason, gap.offset_bytes
        );
    }
    text
}

/// Describes the size of the history, in total and per thread, in instructions and in bytes of
/// trace. Returns the reason if the run has no path.
pub(super) fn stats<R: Run>(session: &Session<R>) -> String {
    let (Some(history), Some(position)) = (session.run().path_history(), session.run().position())
    else {
        return no_path(session);
    };
    let total = position.total;
    let threads = history.threads();
    let gaps = history.gaps().len();
    let mut text = format!("{total} instructions, {} threads, {gaps} gaps", threads.len());
    if let Some(time_ns) = history.time_ns(total) {
        let _ = write!(text, ", {}", seconds(time_ns));
    }
    text.push('\n');
    for thread in threads {
        let count = history.index_of(thread.tid, total);
        let _ = write!(text, "thread {}: {count} instructions", thread.tid);
        let _ = write!(text, " ({}), from position {}", percentage(count, total), thread.first);
        if let Some(size) = history.trace_size(thread.tid) {
            let hundredths = u128::from(size.bytes) * 800 / u128::from(count.max(1));
            let _ = write!(
                text,
                ", {} bytes of trace in {} segments, {}.{:02} bits an instruction",
                size.bytes,
                size.segments,
                hundredths / 100,
                hundredths % 100
            );
        }
        if !thread.name.is_empty() {
            let _ = write!(text, ", {}", Visible(&thread.name));
        }
        text.push('\n');
    }
    text
}
