//! The path around a place, and where it comes to one.

use super::NO_HISTORY;
use super::clock::seconds;
use crate::common::{Addr, Visible};
use crate::session::{Arrived, Direction, Found, History, Run, Search, Session};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Calls before and behind, where nobody says how many.
const CALLS: usize = 10;
const CALLS_LIMIT: usize = 10_000;
/// Hits, where nobody says how many.
const HITS: usize = 1000;
const HITS_LIMIT: usize = 100_000;
/// Deeper calls than this are not indented further.
const INDENT_LIMIT: usize = 60;

fn number(text: Option<&str>, default: usize, limit: usize) -> Result<usize, String> {
    let Some(text) = text else { return Ok(default) };
    let count = text.parse().ok().filter(|count| (1..=limit).contains(count));
    count.ok_or_else(|| format!("{text}: give a number from 1 to {limit}\n"))
}

/// The calls around here, of the thread that is looked at.
pub(super) fn around<R: Run>(session: &Session<R>, count: Option<&str>) -> String {
    let count = match number(count, CALLS, CALLS_LIMIT) {
        Ok(count) => count,
        Err(why) => return why,
    };
    let (Some(history), Some(here)) = (session.run().recorded(), session.run().position()) else {
        return NO_HISTORY.to_owned();
    };
    let tid = session.last_stop().thread;
    let calls = history.calls_around(tid, here.at, count);
    if calls.is_empty() {
        return format!("thread {tid} has no calls around here\n");
    }
    let mut text = String::new();
    let mut is_before = true;
    // Writing to a string cannot fail.
    for called in calls {
        if is_before && called.position > here.at {
            is_before = false;
            text.push_str(&this_is_here(history, tid, here.at));
        }
        let indent = 2 * called.depth.min(INDENT_LIMIT);
        let how = match called.how {
            Arrived::Call => "",
            Arrived::Start => "(begins) ",
            Arrived::Return => "(back in) ",
            Arrived::Signal => "(signal) ",
        };
        let place = place(history, called.ip);
        let _ = writeln!(text, "{:>12}  {:indent$}{how}{place}", called.position, "");
    }
    if is_before {
        text.push_str(&this_is_here(history, tid, here.at));
    }
    text
}

fn this_is_here(history: &dyn History, tid: crate::common::Tid, at: u64) -> String {
    let place = history.pc(tid, at).map_or_else(|| "unknown".to_owned(), |pc| place(history, pc));
    format!("{at:>12}  => {place}\n")
}

fn place(history: &dyn History, addr: Addr) -> String {
    let known = history.place(addr).map(|place| Visible(place.to_string()).to_string());
    known.unwrap_or_else(|| addr.to_string())
}

/// Where the path comes to some code: all hits, in their order.
pub(super) fn find<R: Run>(
    session: &Session<R>,
    what: &str,
    count: Option<&str>,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let count = match number(count, HITS, HITS_LIMIT) {
        Ok(count) => count,
        Err(why) => return why,
    };
    let Some(history) = session.run().recorded() else { return NO_HISTORY.to_owned() };
    let addrs: BTreeSet<Addr> = history.code_of(what).into_iter().collect();
    if addrs.is_empty() {
        return format!(
            "there is no code of {}: give FUNCTION, FILE:LINE or *ADDRESS\n",
            Visible(what)
        );
    }
    let mut text = String::new();
    let mut hits = 0;
    let (mut next, end) = (Some(0), history.total());
    while let Some(from) = next {
        let at = match hit(history, from, end, &addrs, interrupted) {
            Found::At(at) => at,
            Found::Nothing => break,
            Found::Interrupted(at) => {
                let _ = writeln!(text, "interrupted at position {at}");
                return text;
            }
        };
        if hits == count {
            let more = (10 * count).min(HITS_LIMIT);
            let _ = writeln!(text, "and more: monitor find {} {more}", Visible(what));
            break;
        }
        hits += 1;
        text.push_str(&line(history, at));
        next = at.checked_add(1).filter(|next| *next < end);
    }
    let _ = writeln!(text, "{hits} hits of {} at {} addresses", Visible(what), addrs.len());
    text
}

/// The next hit, this position included.
fn hit(
    history: &dyn History,
    from: u64,
    end: u64,
    addrs: &BTreeSet<Addr>,
    interrupted: &dyn Fn() -> bool,
) -> Found {
    let running = history.running_at(from).filter(|_| from < end);
    if running.and_then(|tid| history.pc(tid, from)).is_some_and(|pc| addrs.contains(&pc)) {
        return Found::At(from);
    }
    let until = end.saturating_sub(1);
    history.find(
        &Search { from, until, direction: Direction::Forward, only: None, addrs },
        interrupted,
    )
}

fn line(history: &dyn History, at: u64) -> String {
    let mut text = format!("position {at}");
    let Some(tid) = history.running_at(at) else { return text };
    let _ = write!(text, ", thread {tid}");
    if let Some(time_ns) = history.time_ns(at) {
        let _ = write!(text, ", {}", seconds(time_ns));
    }
    if let Some(pc) = history.pc(tid, at) {
        let _ = write!(text, ": {} ({pc})", place(history, pc));
    }
    text.push('\n');
    text
}
