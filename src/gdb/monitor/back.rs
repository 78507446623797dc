//! Steps back by source lines in exact recordings: the command `back`, which the script for LLDB
//! sends, since LLDB itself cannot do that.

use super::about::when;
use crate::common::{Addr, Tid};
use crate::session::{Activation, BackStep, Edge, Run, Session, StopReason};

/// Handles `back TID into | over | out FRAME RETURN`: steps a thread back in an exact recording,
/// and returns text for the user: why it stopped, if that is not the end of the step, and the new
/// position. TID is decimal, FRAME and RETURN are hex with `0x`. Moves nothing, and says why, if
/// the thread does not exist now, for other words, and in a run that is not exact.
pub(super) fn back<R: Run>(
    session: &mut Session<R>,
    thread: &str,
    how: &[&str],
    interrupted: &dyn Fn() -> bool,
) -> String {
    let thread = thread.parse().ok().map(Tid).filter(|tid| session.is_alive(*tid));
    let (Some(thread), Some(step)) = (thread, step(how)) else {
        return "give a thread, and into, over, or out with a frame and a return address\n"
            .to_owned();
    };
    if !session.run().is_exact() {
        return "only exact recordings have that\n".to_owned();
    }
    let note = match session.step_back(thread, step, interrupted).reason {
        StopReason::Edge(Edge::Begin) => "the history begins here\n",
        StopReason::Breakpoint(_) => "stopped at a breakpoint\n",
        StopReason::Interrupted => "interrupted\n",
        StopReason::Signal(_) => "stopped at a signal\n",
        _ => "",
    };
    note.to_owned() + &when(session)
}

/// Parses the words after the thread; `None` if they are others.
fn step(how: &[&str]) -> Option<BackStep> {
    Some(match how {
        ["into"] => BackStep::Into,
        ["over"] => BackStep::Over,
        ["out", cfa, returns_to] => {
            let (cfa, returns_to) = (number(cfa)?, Addr(number(returns_to)?));
            BackStep::Out(Activation { cfa, returns_to })
        }
        _ => return None,
    })
}

/// Parses a number in hex with `0x`; `None` if it is malformed.
fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
