//! Several instructions of a tick in one run. No instruction of a tick but its last one has more
//! than one successor: the code alone says where they are.

use super::error::Error;
use super::process::Replay;
use crate::common::Addr;
use crate::engine::{CodeKind, Distance};
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, decode};
use crate::translate::{Bound, hook_of, is_tick};

/// The minimum number of instructions that are worth a run: a step costs less than a translation.
const FEWEST: usize = 4;
/// The maximum number of instructions of a run.
const MOST: usize = 64;
/// The number of bytes of code that are read at a time.
const WINDOW_BYTES: usize = 256;

/// The result of a run over some instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Straight {
    /// Some instructions were executed, and counted.
    Ran,
    /// No instruction was executed: the next ones are to be executed one by one.
    Steps,
    /// The thread is at none of the expected instructions, since the code changed. Nothing was
    /// counted.
    Lost,
}

impl Replay {
    /// Executes at most `most` instructions of the tick in one run, up to the one at `until`.
    pub(super) fn run_straight(
        &mut self,
        most: u64,
        until: Option<Addr>,
    ) -> Result<Straight, Error> {
        if self.code == CodeKind::Rerecording {
            return Ok(Straight::Steps);
        }
        let most = usize::try_from(most).unwrap_or(MOST).min(MOST);
        let path = self.path_ahead(most, until)?;
        let count = path.len() - 1;
        if count < FEWEST {
            return Ok(Straight::Steps);
        }
        let (ticks, instructions) = (self.ticks, self.instructions);
        self.run(Distance::Bound(Bound::Instructions(count as u64)))?;
        let ip = self.ip()?;
        let executed = path.iter().position(|at| *at == ip).filter(|_| self.ticks == ticks);
        self.instructions = executed.and_then(|count| Some(instructions? + count as u64));
        Ok(match executed {
            Some(0) => Straight::Steps,
            Some(_) => Straight::Ran,
            None => Straight::Lost,
        })
    }

    /// Returns the addresses of the next instructions of the tick, up to `until`, and of the one
    /// after them.
    fn path_ahead(&self, most: usize, until: Option<Addr>) -> Result<Vec<Addr>, Error> {
        let mut ip = self.ip()?;
        let mut path = vec![ip];
        let (mut window, mut start) = (Vec::new(), ip);
        while path.len() <= most && until != Some(ip) {
            let mut at = usize::try_from(ip.0.wrapping_sub(start.0)).unwrap_or(usize::MAX);
            if at.saturating_add(MAX_INSN_BYTES) > window.len() {
                window = vec![0; WINDOW_BYTES];
                let known = self.epoch.engine.memory.read(ip, &mut window);
                window.truncate(known);
                (start, at) = (ip, 0);
            }
            let code = &window[at..window.len().min(at + MAX_INSN_BYTES)];
            let Some(insn) = decode(code, ip, ExecMode::Bits64) else { break };
            if is_tick(code, ip.0) || hook_of(code).is_some() {
                break;
            }
            ip = match insn.class {
                Class::Jmp { target } | Class::Call { target } => target,
                class if class.is_branch() => break,
                _ => ip.wrapping_add(insn.len.into()),
            };
            path.push(ip);
        }
        Ok(path)
    }
}
