//! `qContraflow.stack:TID,OFFSET,COUNT`: the call history, for the unwinder script. Not part of
//! gdb's protocol; the script sends it with `maintenance packet`.
//!
//! The reply is `POSITION,COMPLETE,DEPTH,PC,OLDER` and then one
//! `;ACTIVATION,ENTRY,CALL,RETURN,SIGNAL` per frame, innermost first, in hex; `-` is unknown.
//! COMPLETE is 1 if the general registers and the stack are known, so that gdb's own unwinders
//! work. DEPTH is the number of all frames, of which the reply has COUNT from OFFSET on. OLDER is
//! the reason why there are no older frames, as a number of [`number_of`]. The fields of a frame
//! are those of [`CallFrame`], in its order: ACTIVATION is the position of the call.

use super::hex;
use super::thread_id::{self, ThreadChoice};
use crate::common::{Addr, Tid};
use crate::session::{CallFrame, MissingFrames, Register, Run, Session};
use std::fmt::LowerHex;

/// The maximum number of frames in one reply.
const MAX_FRAMES: u64 = 512;
/// The maximum distance of an overflowed stack pointer below its stack, in bytes.
const LARGEST_FRAME_BYTES: u64 = 8 << 20;

/// Returns the reply to `THREAD,OFFSET,COUNT`, the text after `qContraflow.stack:`; `None` if it is
/// malformed. If THREAD is no single thread, it is that of the last stop. At most [`MAX_FRAMES`]
/// frames are in one reply.
pub(super) fn answer<R: Run>(session: &Session<R>, text: &[u8]) -> Option<Vec<u8>> {
    let (thread, range) = hex::split(text, b',')?;
    let (offset, count) = hex::split(range, b',')?;
    let tid = match thread_id::parse(thread)? {
        ThreadChoice::One(tid) => tid,
        _ => session.last_stop().thread,
    };
    let (offset, count) = (usize::try_from(hex::number(offset)?).ok()?, hex::number(count)?);
    let stack = session.run().call_stack(tid);
    let position = session.run().position().map_or(0, |position| position.at);
    let complete = is_complete(session, tid);
    let (complete, depth) = (u8::from(complete), stack.len());
    let older = number_of(session.run().missing_frames(tid));
    let mut reply =
        format!("{position:x},{complete},{depth:x},{},{older}", hex_or_dash(session.run().pc(tid)));
    let count = usize::try_from(count.min(MAX_FRAMES)).ok()?;
    for frame in stack.iter().skip(offset).take(count) {
        reply.push(';');
        reply.push_str(&entry(frame));
    }
    Some(reply.into_bytes())
}

/// Returns the number of `older` in a reply; the script has the sentence for each number.
const fn number_of(older: MissingFrames) -> u8 {
    match older {
        MissingFrames::Nothing => 0,
        MissingFrames::BeforeHistory => 1,
        MissingFrames::Gap => 2,
        MissingFrames::OtherStack => 3,
        MissingFrames::StrayReturn => 4,
    }
}

/// Returns true if gdb's own unwinders work for a thread: all general registers and the top of its
/// stack are known.
fn is_complete<R: Run>(session: &Session<R>, tid: Tid) -> bool {
    let registers = session.run().registers(tid);
    let rsp = registers.get(Register::RSP).and_then(|rsp| u64::try_from(rsp).ok());
    registers.has_all_general() && rsp.is_some_and(|rsp| knows_stack(session, tid, Addr(rsp)))
}

/// Returns true if a thread's stack memory is known at `rsp`. After a stack overflow `rsp` is below
/// the stack, so the next writable memory above it is tried as well, if it is within
/// [`LARGEST_FRAME_BYTES`].
fn knows_stack<R: Run>(session: &Session<R>, tid: Tid, rsp: Addr) -> bool {
    let knows = |addr: Addr| session.run().read_memory(tid, addr, &mut [0; 8]) == 8;
    let overflown = || {
        let regions = session.run().regions()?;
        let mut starts = regions.iter().filter(|region| region.protection.write);
        let above = starts.find(|region| region.range.start > rsp)?.range.start;
        Some(above).filter(|above| above.0 - rsp.0 <= LARGEST_FRAME_BYTES)
    };
    knows(rsp) || overflown().is_some_and(knows)
}

/// Returns the fields of one frame, with commas between them.
fn entry(frame: &CallFrame) -> String {
    format!(
        "{},{},{},{},{}",
        hex_or_dash(frame.activation),
        hex_or_dash(frame.entry),
        hex_or_dash(frame.call_site),
        hex_or_dash(frame.return_address),
        u8::from(frame.signal_handler),
    )
}

/// Returns a number in hex; `-` for `None`.
fn hex_or_dash(value: Option<impl LowerHex>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:x}"))
}
