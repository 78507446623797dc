//! Executes several instructions up to the next tick in one run. Before that counted branch, no
//! instruction has more than one successor, so the code alone says where they are, and the address
//! after the run how many were executed.

use super::error::Error;
use super::process::Replay;
use crate::common::Addr;
use crate::engine::{CodeKind, RunLimit};
use crate::insn::{Class, ExecMode, MAX_INSN_BYTES, decode};
use crate::translate::{Bound, hook_of, is_tick};

/// The minimum number of instructions that are worth a run: a step costs less than a translation.
const MIN_RUN_INSNS: usize = 4;
/// The maximum number of instructions of a run.
const MAX_RUN_INSNS: usize = 64;
/// The number of bytes of code that are read at a time.
const WINDOW_BYTES: usize = 256;

/// The result of a run over some instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StraightRun {
    /// Some instructions were executed, and counted.
    Ran,
    /// No instruction was executed: too few can be executed in one run. The caller executes the
    /// next one by a step.
    NeedsSteps,
    /// The thread is at none of the expected instructions, since the code changed. How many were
    /// executed is unknown.
    Lost,
}

impl Replay {
    /// Executes at most `most` instructions of the loaded thread, and at most 64, in one run, up to
    /// the one at `until`, a hook, a tick or a far branch, none of which it executes. Counts them.
    /// While the path of the run is written ([`CodeKind::Rerecording`]), executes none: returns
    /// [`StraightRun::NeedsSteps`], as also if fewer than [`MIN_RUN_INSNS`] are ahead.
    pub(super) fn run_straight(
        &mut self,
        most: u64,
        until: Option<Addr>,
    ) -> Result<StraightRun, Error> {
        if self.code == CodeKind::Rerecording {
            return Ok(StraightRun::NeedsSteps);
        }
        let most = usize::try_from(most).unwrap_or(MAX_RUN_INSNS).min(MAX_RUN_INSNS);
        let path = self.addresses_ahead(most, until)?;
        let count = path.len() - 1;
        if count < MIN_RUN_INSNS {
            return Ok(StraightRun::NeedsSteps);
        }
        let (ticks, instructions) = (self.ticks, self.instructions);
        self.run_once(RunLimit::Bound(Bound::Instructions(count as u64)))?;
        let ip = self.ip()?;
        let executed = path.iter().position(|at| *at == ip).filter(|_| self.ticks == ticks);
        self.instructions = executed.and_then(|count| Some(instructions? + count as u64));
        Ok(match executed {
            Some(0) => StraightRun::NeedsSteps,
            Some(_) => StraightRun::Ran,
            None => StraightRun::Lost,
        })
    }

    /// Returns the addresses of at most `most` next instructions of the loaded thread, up to
    /// `until`, a hook, a tick, a far branch or bytes that do not decode; and last, the address
    /// where these lead. So there is always one.
    fn addresses_ahead(&self, most: usize, until: Option<Addr>) -> Result<Vec<Addr>, Error> {
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
