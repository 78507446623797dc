//! `qContraflow.finish:TID,ADDRESS,FRAMES`: where a `finish` ends, reported by the gdb script before
//! gdb resumes. Not part of gdb's protocol. FRAMES is the number of frames that the call history has
//! left there. `qContraflow.finish:` alone forgets it.
//!
//! When its own breakpoint at ADDRESS is hit, gdb reads the value returned out of registers, prints
//! it and puts it into the value history. It takes unavailable registers for zeros
//! (`get_return_value` in infcmd.c has no other choice). So where they are unavailable, this stop is
//! reported without a signal: gdb stops, but counts no breakpoint as hit, and looks for no value.

use super::hex;
use super::thread_id::{self, ThreadChoice};
use crate::common::{Addr, Tid};
use crate::session::{Run, Session, Stop, StopReason};

/// Shown with such a stop.
pub(super) const NOTE: &str = "contraflow: the value returned is not known in the past\n";

/// The end of a `finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    thread: Tid,
    addr: Addr,
    frames: u64,
}

/// Reads the text after `qContraflow.finish:`; `None` when it is malformed.
pub(super) fn parse(text: &[u8]) -> Option<Finish> {
    let (thread, place) = hex::split(text, b',')?;
    let (addr, frames) = hex::split(place, b',')?;
    let ThreadChoice::One(thread) = thread_id::parse(thread)? else { return None };
    Some(Finish { thread, addr: Addr(hex::number(addr)?), frames: hex::number(frames)? })
}

impl Finish {
    /// Returns true at the stop that ends the `finish`, if the value returned is unknown there.
    /// Activations further in come by the same address before, in a recursion.
    pub(super) fn ends_at<R: Run>(&self, session: &Session<R>, stop: Stop) -> bool {
        let run = session.run();
        matches!(stop.reason, StopReason::Breakpoint(_))
            && stop.thread == self.thread
            && run.pc(stop.thread) == Some(self.addr)
            && !run.registers(stop.thread).has_all_general()
            && run.call_stack(stop.thread).len() as u64 <= self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_finish() {
        let finish = Finish { thread: Tid(31), addr: Addr(0x1234), frames: 16 };
        assert_eq!(parse(b"1f,1234,10"), Some(finish));
        for broken in [&b""[..], b"1f", b"1f,1234", b"0,1234,10", b"1f,x,10", b"1f,1234,"] {
            assert_eq!(parse(broken), None);
        }
    }
}
