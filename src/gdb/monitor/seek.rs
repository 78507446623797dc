//! Moves to a position of the history.

use super::about::{position_text, when};
use super::clock::{decimal, duration_ns, seconds};
use super::{NO_HISTORY, no_path};
use crate::common::{Addr, AddrRange};
use crate::session::{
    Action, Direction, Edge, History, LastChange, Order, Position, Run, Session, StopReason,
};

/// The maximum size of the memory whose last change is searched for.
const LARGEST_BYTES: u64 = 1 << 30;

/// Moves to the position that `to` names ([`parse_target`]), or steps there by `+N` or `-N` in an
/// exact recording. Returns text for the user: the new position, or why there is none.
pub(super) fn seek<R: Run>(
    session: &mut Session<R>,
    to: &str,
    interrupted: &dyn Fn() -> bool,
) -> String {
    if session.run().is_exact()
        && let Some((direction, count)) = parse_steps(to)
    {
        return step(session, direction, count, interrupted);
    }
    let target = match parse_target(session, to) {
        Ok(target) => target,
        Err(why) => return why,
    };
    match session.seek(target) {
        Ok(_) => when(session),
        Err(error) => format!("{error}\n"),
    }
}

/// Parses `+N` or `-N`; `None` for other texts.
fn parse_steps(to: &str) -> Option<(Direction, u64)> {
    let forward = to.strip_prefix('+').map(|count| (Direction::Forward, count));
    let (direction, count) =
        forward.or_else(|| to.strip_prefix('-').map(|count| (Direction::Backward, count)))?;
    Some((direction, count.parse().ok()?))
}

/// Steps the current thread of an exact recording by `count` instructions: positions there do not
/// number instructions. Stops early at the edges of the history, if interrupted, once a live program
/// is gone, and if the session refuses a step. Returns text for the user: the new position, after
/// the reason of such a stop.
fn step<R: Run>(
    session: &mut Session<R>,
    direction: Direction,
    count: u64,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let thread = session.last_stop().thread;
    let order = Order { action: Action::Step, direction, thread, locked: false, signal: 0 };
    let mut note = String::new();
    for _ in 0..count {
        if let Some(error) = session.refusal(&order) {
            note = format!("{error}\n");
            break;
        }
        let reason = match session.resume(order, interrupted).reason {
            StopReason::Edge(Edge::Begin) => "the history begins here\n",
            StopReason::Edge(Edge::End) => "the history ends here\n",
            StopReason::Gone(_) => "the program is gone\n",
            StopReason::Interrupted => "interrupted\n",
            _ if interrupted() => "interrupted\n",
            _ => continue,
        };
        reason.clone_into(&mut note);
        break;
    }
    note + &when(session)
}

/// Moves back to where memory was last changed before the current position, and returns text for
/// the user. The memory is given as its address, in hex with `0x`, and its size in bytes, from 1 to
/// [`LARGEST_BYTES`]. Stays here if there was no change, if interrupted, and in a run that is not
/// exact.
pub(super) fn seek_last_change<R: Run>(
    session: &mut Session<R>,
    address: &str,
    size: &str,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let address =
        address.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let size = size.parse().ok().filter(|size| (1..=LARGEST_BYTES).contains(size));
    let (Some(address), Some(size)) = (address, size) else {
        return "give an address and a size, for example: monitor last 0x7fff1230 8\n".to_owned();
    };
    match session.go_to_last_change(AddrRange::sized(Addr(address), size), interrupted) {
        Ok(LastChange::Here) => when(session),
        Ok(LastChange::Nowhere) => {
            "it was not changed before, as far as the recording goes\n".to_owned()
        }
        Ok(LastChange::Interrupted) => "interrupted\n".to_owned(),
        Err(error) => format!("{error}\n"),
    }
}

/// Returns the number of the requested position, or an error message, as for a position outside the
/// history. `to` is a mark, the start or the end, or a number, a percentage or a time; with a sign,
/// these three count from here.
pub(super) fn parse_target<R: Run>(session: &Session<R>, to: &str) -> Result<u64, String> {
    let here = session.run().position().ok_or_else(|| NO_HISTORY.to_owned())?;
    if let Some(position) = session.marks().get(to) {
        return Ok(*position);
    }
    let outside = || "that position is outside the history\n".to_owned();
    let (sign, rest) = match to.as_bytes().first() {
        Some(sign @ (b'+' | b'-')) => (Some(*sign), &to[1..]),
        _ => (None, to),
    };
    if let Some(time_ns) = duration_ns(rest) {
        return position_at_time(session, sign, time_ns);
    }
    let is_exact = session.run().is_exact();
    let from_here = |count: u64| match sign {
        Some(b'+') => here.at.checked_add(count),
        Some(_) => here.at.checked_sub(count),
        None => Some(count),
    };
    let target = match (to, rest.strip_suffix('%'), Position::parse(rest, is_exact)) {
        ("start" | "begin", ..) => 0,
        ("end", ..) => here.total,
        (_, Some(percent), _) => {
            let share = position_at_percentage(percent, here).ok_or_else(|| not_a_place(to))?;
            from_here(share).ok_or_else(outside)?
        }
        (.., Some(count)) => from_here(count).ok_or_else(outside)?,
        _ => return Err(not_a_place(to)),
    };
    // The last moment of an exact recording has instructions, too.
    let moment = |at: u64| if is_exact { Position::parts(at).0 } else { at };
    if moment(target) > moment(here.total) {
        let [target, last] = [target, here.total].map(|at| position_text(at, is_exact));
        return Err(format!("no such position: {target} (the history has 0 to {last})\n"));
    }
    Ok(target)
}

/// Returns the message about a text that names no position.
fn not_a_place(to: &str) -> String {
    format!("not a position, a time or a mark: {to}; try: monitor help\n")
}

/// Returns the number of the position at a percentage of the history; `None` if that is no
/// percentage.
fn position_at_percentage(percent: &str, here: Position) -> Option<u64> {
    const PRECISION: u64 = 1_000_000_000;
    let parts = decimal(percent, PRECISION).filter(|parts| *parts <= 100 * PRECISION)?;
    let share = u128::from(parts) * u128::from(here.total) / u128::from(100 * PRECISION);
    u64::try_from(share).ok()
}

/// Returns the first position at or after a time. With a sign, the time counts from the current
/// one, or from the end's if the current one is unknown. Fails with a text for the user outside the
/// history, or if the recording has no times.
fn position_at_time<R: Run>(
    session: &Session<R>,
    sign: Option<u8>,
    time_ns: u64,
) -> Result<u64, String> {
    let history = session.run().path_history().ok_or_else(|| no_path(session))?;
    let Some(end_ns) = history.time_ns(history.total()) else {
        return Err("this recording has no times\n".to_owned());
    };
    let here_ns = session.run().time_ns().unwrap_or(end_ns);
    let wanted = match sign {
        Some(b'+') => Some(here_ns.saturating_add(time_ns)),
        Some(_) => here_ns.checked_sub(time_ns),
        None => Some(time_ns),
    };
    let wanted = wanted.ok_or_else(|| "that time is before the start\n".to_owned())?;
    if wanted > end_ns {
        return Err(format!("that time is after the end, which is at {}\n", seconds(end_ns)));
    }
    Ok(first_at(history, wanted))
}

/// Returns the first position at or after a time, found by bisection, since times ascend with
/// positions; the last one if there is none. An unknown time counts as 0.
fn first_at(history: &dyn History, wanted_ns: u64) -> u64 {
    let (mut low, mut high) = (0, history.total());
    while low < high {
        let middle = low + (high - low) / 2;
        if history.time_ns(middle).unwrap_or(0) < wanted_ns {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
