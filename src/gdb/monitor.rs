//! The `monitor` commands: questions and seeks that the protocol has no packet for. The answers
//! are text for people.

use crate::common::Visible;
use crate::session::{Run, Session};
use std::fmt::Write;

const HELP: &str = "\
when                show where in the history this is
seek N | +N | -N    go to position N, or N instructions later or earlier
seek begin | end    go to the beginning or the end of the history
info                show what was recorded and how it ended
gaps                list the holes in the history
help                show this
After a seek gdb still shows what it read before: type `maintenance flush register-cache` and
`maintenance flush dcache`, or use the command cf-seek of contraflow's gdb script.
";

/// Answers one command.
pub(super) fn answer<R: Run>(session: &mut Session<R>, command: &str) -> String {
    let mut words = command.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (None | Some("help"), None, _) => HELP.to_owned(),
        (Some("when"), None, _) => when(session),
        (Some("info"), None, _) => info(session),
        (Some("gaps"), None, _) => gaps(session),
        (Some("seek"), Some(to), None) => seek(session, to),
        (Some("seek"), ..) => "seek where? For example: monitor seek 1000\n".to_owned(),
        _ => format!("no such command: {}; try: monitor help\n", command.trim()),
    }
}

fn when<R: Run>(session: &Session<R>) -> String {
    let thread = session.last_stop().thread;
    let Some(position) = session.run().position() else {
        return format!("thread {thread}, live\n");
    };
    let mut text = format!("position {} of {}, thread {thread}", position.at, position.total);
    if let Some(time_ns) = session.run().time_ns() {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {}", seconds(time_ns));
    }
    if position.at == position.total {
        let _ = write!(text, "; the end: {}", session.run().describe().ending);
    }
    text.push('\n');
    text
}

fn seconds(time_ns: u64) -> String {
    format!("{}.{:09} s", time_ns / 1_000_000_000, time_ns % 1_000_000_000)
}

fn info<R: Run>(session: &Session<R>) -> String {
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
        line("history", format!("{} instructions", position.total));
    }
    for thread in run.threads() {
        line("thread", format!("{} {}", thread.tid, thread.name));
    }
    line("gaps", run.gaps().len().to_string());
    text
}

fn gaps<R: Run>(session: &Session<R>) -> String {
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

fn seek<R: Run>(session: &mut Session<R>, to: &str) -> String {
    let Some(here) = session.run().position() else {
        return "this run is live: it has no history to seek in\n".to_owned();
    };
    let digits = to.trim_start_matches(['+', '-']);
    let target = match (to, digits.parse::<u64>()) {
        ("begin", _) => Some(0),
        ("end", _) => Some(here.total),
        (_, Ok(count)) if to.starts_with('+') => here.at.checked_add(count),
        (_, Ok(count)) if to.starts_with('-') => here.at.checked_sub(count),
        (_, Ok(position)) => Some(position),
        (_, Err(_)) => return format!("not a position: {to}; try: monitor help\n"),
    };
    let Some(target) = target else { return "that position is outside the history\n".to_owned() };
    match session.seek(target) {
        Ok(_) => when(session),
        Err(error) => format!("{error}\n"),
    }
}
