//! Call stacks, by the unwind tables of the code.

use super::evaluate::{Evaluator, Frame};
use super::shown::ShownFrame;
use std::path::Path;

/// The limit on frames of a backtrace.
const MAX_FRAMES: usize = 10_000;

impl Evaluator<'_> {
    /// Returns up to `count` frames of the call stack, and no more than about 10,000, from
    /// `frame` outwards, to the first whose caller is unknown. Inlined calls are frames too. Empty
    /// if the address of `frame` is unknown.
    pub fn backtrace(&self, frame: &Frame<'_>, count: usize) -> Vec<ShownFrame> {
        let mut frames = Vec::new();
        let mut next = Some(*frame.registers);
        while let Some(registers) = next
            && frames.len() < count.min(MAX_FRAMES)
        {
            let (Some(addr), Some(at)) = (registers.pc(), registers.lookup_pc()) else { break };
            let inlined = self.symbols.frames_at(at);
            let shown = inlined.into_iter().map(|of| ShownFrame {
                addr,
                function: of.function,
                line: of.location.map(|location| {
                    let name = Path::new(&*location.file).file_name();
                    let name = name.map(|name| name.to_string_lossy().into_owned());
                    (name.unwrap_or_else(|| location.file.to_string()), location.line)
                }),
            });
            let before = frames.len();
            frames.extend(shown);
            if frames.len() == before {
                frames.push(ShownFrame { addr, function: None, line: None });
            }
            next = self.symbols.caller_of(&registers, frame.machine);
        }
        frames.truncate(count);
        frames
    }
}
