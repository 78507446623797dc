//! Commands that move along the calls around a position, without symbols.

use super::about::when;
use super::no_path;
use crate::common::Tid;
use crate::session::{CallFrame, Direction, Found, History, Run, Search, Session};
use std::collections::BTreeSet;

/// Moves back from the code of a library to the last call out of the program's own code, and
/// returns text for the user. Moves nowhere in the program's own code, or if that call is not
/// known.
pub(super) fn home<R: Run>(session: &mut Session<R>) -> String {
    let (Some(history), tid) = (session.run().path_history(), session.last_stop().thread) else {
        return no_path(session);
    };
    if session.run().pc(tid).is_some_and(|pc| history.is_program_code(pc)) {
        return "this is the program's own code\n".to_owned();
    }
    let stack = session.run().call_stack(tid);
    let is_own = |frame: &&CallFrame| frame.call_site.is_some_and(|at| history.is_program_code(at));
    let called = stack.iter().find(is_own).and_then(|frame| frame.activation);
    seek_or_say(session, called, "no call of the program's own code is known here")
}

/// Moves back to the call that led to the current function, if it is known, and returns text for
/// the user.
pub(super) fn caller<R: Run>(session: &mut Session<R>) -> String {
    if session.run().path_history().is_none() {
        return no_path(session);
    }
    let stack = session.run().call_stack(session.last_stop().thread);
    let called = stack.first().and_then(|frame| frame.activation);
    seek_or_say(session, called, "the call of this function is not known here")
}

/// Moves forward to the position after the return from the current function, if there is one in the
/// history, and returns text for the user. Calls `interrupted` regularly, and stays here if it
/// returns true.
pub(super) fn return_from<R: Run>(
    session: &mut Session<R>,
    interrupted: &dyn Fn() -> bool,
) -> String {
    let (Some(history), Some(here)) = (session.run().path_history(), session.run().position())
    else {
        return no_path(session);
    };
    let tid = session.last_stop().thread;
    let stack = session.run().call_stack(tid);
    let Some(frame) = stack.first().filter(|frame| frame.activation.is_some()) else {
        return "the call of this function is not known here\n".to_owned();
    };
    match find_return(history, tid, here.at, frame, interrupted) {
        Found::Interrupted(at) => format!("interrupted at position {at}\n"),
        Found::At(at) => seek_or_say(session, Some(at), ""),
        Found::Nothing => "this function does not return in the history\n".to_owned(),
    }
}

/// Finds the first position after `from` at which the activation of `frame` has returned to its
/// caller: the thread is at the return address, without the activation on its stack. Nothing if the
/// address is unknown.
fn find_return(
    history: &dyn History,
    tid: Tid,
    from: u64,
    frame: &CallFrame,
    interrupted: &dyn Fn() -> bool,
) -> Found {
    let addrs = BTreeSet::from_iter(frame.return_address);
    let until = history.total();
    let (direction, only) = (Direction::Forward, Some(tid));
    let mut from = from;
    loop {
        let search = Search::beyond(from, until, direction, only, &addrs);
        let found = history.find(&search, interrupted);
        let Found::At(at) = found else { return found };
        let stack = history.call_stack(tid, at);
        if !stack.iter().any(|other| other.activation == frame.activation) {
            return found;
        }
        from = at;
    }
}

/// Moves to a position, and describes it. Returns the text `otherwise` if it is `None`, and the
/// error if the session refuses to move.
fn seek_or_say<R: Run>(session: &mut Session<R>, position: Option<u64>, otherwise: &str) -> String {
    let Some(position) = position else { return format!("{otherwise}\n") };
    match session.seek(position) {
        Ok(_) => when(session),
        Err(error) => format!("{error}\n"),
    }
}
