//! The path around a position, and the executions of some code.

use super::about::position_text;
use super::clock::seconds;
use super::no_path;
use crate::common::{Addr, Tid, Visible};
use crate::session::{
    ArrivalKind, CodeLocation, Direction, ExecutionSearch, Found, History, Run, Search, SearchEnd,
    Session,
};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The default number of calls before and after the position.
const CALLS: usize = 10;
const CALLS_LIMIT: usize = 10_000;
/// The default number of hits.
const HITS: usize = 100;
const HITS_LIMIT: usize = 100_000;
/// The depth up to which calls are indented.
const INDENT_LIMIT: usize = 60;

/// Parses a count from 1 to `limit`; the default if there is no text. The error is a text for the
/// user.
fn number(text: Option<&str>, default: usize, limit: usize) -> Result<usize, String> {
    let Some(text) = text else { return Ok(default) };
    let count = text.parse().ok().filter(|count| (1..=limit).contains(count));
    count.ok_or_else(|| format!("{text}: give a number from 1 to {limit}\n"))
}

/// Lists up to `count` calls of the current thread before the current position, and as many after
/// it, with a line for the position itself. Returns the error as text if there are none. Calls
/// `goes_on` as [`Run::prepare_path`] does.
pub(super) fn calls_around<R: Run>(
    session: &Session<R>,
    count: Option<&str>,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> String {
    let count = match number(count, CALLS, CALLS_LIMIT) {
        Ok(count) => count,
        Err(why) => return why,
    };
    let run = session.run();
    let Some(here) = run.position().filter(|_| run.is_exact() || run.path_history().is_some())
    else {
        return no_path(session);
    };
    if let Err(error) = run.prepare_path(goes_on) {
        return format!("{error}\n");
    }
    let tid = session.last_stop().thread;
    let calls = run.calls_around(tid, count);
    if calls.is_empty() {
        return format!("thread {tid} has no calls around here\n");
    }
    let mut text = String::new();
    let mut is_before = true;
    // Writes to a string cannot fail.
    for called in calls {
        if is_before && called.position > here.at {
            is_before = false;
            text.push_str(&line_of_position(run, tid, here.at));
        }
        let indent = 2 * called.depth.min(INDENT_LIMIT);
        let how = match called.kind {
            ArrivalKind::Call => "",
            ArrivalKind::Start => "(begins) ",
            ArrivalKind::Return => "(back in) ",
            ArrivalKind::Signal => "(signal) ",
        };
        let at = position_text(called.position, run.is_exact());
        let _ = writeln!(text, "{at:>12}  {:indent$}{how}{}", "", name_of(run, called.ip));
    }
    if is_before {
        text.push_str(&line_of_position(run, tid, here.at));
    }
    text
}

/// Returns the line for the position `at` of a thread, which is the current one, in a list of
/// calls.
fn line_of_position<R: Run>(run: &R, tid: Tid, at: u64) -> String {
    let name = run.pc(tid).map_or_else(|| "unknown".to_owned(), |pc| name_of(run, pc));
    format!("{:>12}  => {name}\n", position_text(at, run.is_exact()))
}

/// Returns the function and the line of the code at `addr`, or the address if they are unknown.
fn name_of<R: Run>(run: &R, addr: Addr) -> String {
    match run.path_history() {
        Some(history) => place_text(history, addr),
        None => named(run.location_of(addr), addr),
    }
}

/// Returns the function and the line of the code at `addr` in a history, or the address if they are
/// unknown.
fn place_text(history: &dyn History, addr: Addr) -> String {
    named(history.location_of(addr), addr)
}

/// Returns the text of a place, with control characters escaped; the address if there is none.
fn named(place: Option<CodeLocation>, addr: Addr) -> String {
    place.map_or_else(|| addr.to_string(), |place| Visible(place.to_string()).to_string())
}

/// Splits the arguments of `find` into the code to find, without quotes around it, and the count at
/// the end, [`HITS`] if there is none. Fails with a text for the user if the count is 0 or too
/// large.
fn parse_find(text: &str) -> Result<(&str, usize), String> {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let (what, count) = match text.rsplit_once(' ') {
        Some((what, count)) if is_number(count) => (what, Some(count)),
        _ => (text, None),
    };
    let quoted = ['\'', '"'].iter().find_map(|q| what.strip_prefix(*q)?.strip_suffix(*q));
    Ok((quoted.unwrap_or(what), number(count, HITS, HITS_LIMIT)?))
}

/// Runs `find WHAT [N]`: lists the last N executions of some code in the whole history, newest
/// first, wherever the session is. `arguments` is `WHAT [N]`. Returns the text for the user: the
/// list so far if it was interrupted, or why there is none.
pub(super) fn find<R: Run>(
    session: &mut Session<R>,
    arguments: &str,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let (what, count) = match parse_find(arguments) {
        Ok(question) => question,
        Err(why) => return why,
    };
    if session.run().is_exact() {
        return find_exactly(session, what, count, interrupted);
    }
    let Some(history) = session.run().path_history() else { return no_path(session) };
    let addrs: BTreeSet<Addr> = history.addresses_of(what).into_iter().collect();
    if addrs.is_empty() {
        return no_code(what);
    }
    let mut list = List::default();
    let mut from = history.total();
    loop {
        let search = Search::beyond(from, 0, Direction::Backward, None, &addrs);
        let at = match history.find(&search, interrupted) {
            Found::At(at) => at,
            Found::Nothing => break,
            Found::Interrupted(at) => {
                let _ = writeln!(list.text, "interrupted at position {at}");
                return list.text;
            }
        };
        if list.hits == count {
            list.text.push_str(&more_of(what, count));
            break;
        }
        list.push(history, at);
        from = at;
    }
    let hits = list.hits;
    list.text.push_str(&total(hits, what, addrs.len()));
    list.text
}

/// Returns the message that `what` names no code.
fn no_code(what: &str) -> String {
    format!("there is no code of {}: give FUNCTION, FILE:LINE or *ADDRESS\n", Visible(what))
}

/// Returns the last line of a list: the number of its hits, and of the addresses of the code.
fn total(hits: usize, what: &str, addresses: usize) -> String {
    let hit = if hits == 1 { "hit" } else { "hits" };
    let address = if addresses == 1 { "address" } else { "addresses" };
    format!("{hits} {hit} of {} at {addresses} {address}\n", Visible(what))
}

/// Returns the line that says how to list more than `count` hits.
fn more_of(what: &str, count: usize) -> String {
    let more = (10 * count).min(HITS_LIMIT);
    format!("and earlier ones: monitor find {} {more}\n", Visible(what))
}

/// Does the work of [`find`] for an exact recording.
fn find_exactly<R: Run>(
    session: &mut Session<R>,
    what: &str,
    count: usize,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let addrs: BTreeSet<Addr> = session.run().addresses_of(what).into_iter().collect();
    if addrs.is_empty() {
        return no_code(what);
    }
    let (search, mut found) = (ExecutionSearch { addrs: &addrs, from: None, count }, Vec::new());
    let mut sink = |_: &dyn Run, execution| found.push(execution);
    let end = match session.run_mut().find_executions(&search, &mut sink, interrupted) {
        Ok(end) => end,
        Err(error) => return format!("{error}\n"),
    };
    let name = |addr| name_of(session.run(), addr);
    let mut text = String::new();
    for execution in &found {
        let (at, tid, pc) = (position_text(execution.at, true), execution.tid, execution.pc);
        let _ = write!(text, "position {at}, thread {tid}: {} ({pc})", name(pc));
        if let Some(next) = execution.returns_to {
            // The call is before its return address.
            let _ = write!(text, ", called at {}", name(Addr(next.0.wrapping_sub(1))));
        }
        text.push('\n');
    }
    match end {
        SearchEnd::Interrupted => return text + "interrupted\n",
        SearchEnd::HasMore => text.push_str(&more_of(what, count)),
        SearchEnd::Complete => {}
    }
    text + &total(found.len(), what, addrs.len())
}

/// Positions of the path as text.
#[derive(Default)]
struct List {
    text: String,
    hits: usize,
    /// The time of the previous position.
    time_ns: Option<u64>,
}

impl List {
    /// Adds a line for a position: its thread, time, place and caller, as far as they are known.
    /// Leaves out a time that is equal to that of the line before.
    fn push(&mut self, history: &dyn History, at: u64) {
        self.hits += 1;
        let _ = write!(self.text, "position {at}");
        let Some(tid) = history.running_at(at) else { return self.text.push('\n') };
        let _ = write!(self.text, ", thread {tid}");
        let time_ns = history.time_ns(at);
        if let Some(new) = time_ns.filter(|_| time_ns != self.time_ns) {
            let _ = write!(self.text, ", {}", seconds(new));
        }
        self.time_ns = time_ns;
        if let Some(pc) = history.pc(tid, at) {
            let _ = write!(self.text, ": {} ({pc})", place_text(history, pc));
        }
        let called = history.call_stack(tid, at).first().and_then(|frame| frame.call_site);
        if let Some(site) = called {
            let _ = write!(self.text, ", called at {}", place_text(history, site));
        }
        self.text.push('\n');
    }
}
