//! `qContraflow.finish:TID,ADDRESS,FRAMES`: the end of a `finish`, reported by the gdb script
//! before gdb resumes. Not part of gdb's protocol. FRAMES is the number of frames in the call
//! history at that point. `qContraflow.finish:` alone withdraws the report.
//!
//! When its breakpoint at ADDRESS is hit, gdb reads the returned value from registers, prints it
//! and adds it to the value history. It reads unavailable registers as zeros (`get_return_value` in
//! infcmd.c has no alternative). If they are unavailable, the stop at ADDRESS is therefore reported
//! without a signal: gdb stops, but counts no breakpoint as hit and reads no value.

use super::hex;
use super::thread_id::{self, ThreadChoice};
use crate::common::{Addr, Tid};
use crate::session::{Run, Session, Stop, StopReason};

/// The note for gdb's user at a stop that ends a `finish` without a known returned value.
pub(super) const NOTE: &str = "contraflow: the value returned is not known in the past\n";

/// The place at which a `finish` of gdb ends: the return address in a thread, and the number of
/// frames there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finish {
    thread: Tid,
    /// The return address.
    addr: Addr,
    /// The number of frames of the call history after the return.
    frames: u64,
}

/// Parses the text after `qContraflow.finish:`; `None` if it is malformed, or does not name a
/// single thread.
pub(super) fn parse(text: &[u8]) -> Option<Finish> {
    let (thread, place) = hex::split(text, b',')?;
    let (addr, frames) = hex::split(place, b',')?;
    let ThreadChoice::One(thread) = thread_id::parse(thread)? else { return None };
    Some(Finish { thread, addr: Addr(hex::number(addr)?), frames: hex::number(frames)? })
}

impl Finish {
    /// Returns true if `stop` ends the `finish` and the returned value is unknown there, since not
    /// all general registers are known. In a recursion, inner activations reach the same address
    /// earlier, with more frames.
    pub(super) fn ends_without_value_at<R: Run>(&self, session: &Session<R>, stop: Stop) -> bool {
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
