//! `QSaveRegisterState` and `QRestoreRegisterState`: LLDB saves a thread's registers on the server
//! while it calls a function.

use super::{hex, remedies};
use crate::common::Tid;
use crate::session::{KnownRegisters, Register, Run, Session};
use std::collections::BTreeMap;

/// The maximum number of saved states.
const STATES_LIMIT: usize = 1000;

/// The registers that a client has saved, by the number that the reply to each save contained.
#[derive(Debug, Default)]
pub(super) struct SavedRegisters {
    states: BTreeMap<u64, (Tid, KnownRegisters)>,
    /// The number of the last save.
    last: u64,
}

impl SavedRegisters {
    /// Saves the registers of thread `tid` for `QSaveRegisterState`, or writes saved ones back to
    /// their thread and forgets them for `QRestoreRegisterState`. Returns the reply: the number of
    /// the save or `OK`, or an error after [`STATES_LIMIT`], for an unknown number, or for a
    /// refused write. Returns `None` for other packets.
    pub(super) fn answer<R: Run>(
        &mut self,
        session: &mut Session<R>,
        tid: Tid,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        if body.starts_with(b"QSaveRegisterState") {
            if self.states.len() >= STATES_LIMIT {
                return Some(b"E.too many registers are saved".to_vec());
            }
            self.last += 1;
            self.states.insert(self.last, (tid, session.run().registers(tid)));
            return Some(self.last.to_string().into_bytes());
        }
        let number = body.strip_prefix(b"QRestoreRegisterState:")?;
        let number = hex::split(number, b';').map_or(number, |(number, _)| number);
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        let Some((tid, registers)) = number.and_then(|number: u64| self.states.remove(&number))
        else {
            return Some(b"E01".to_vec());
        };
        Some(restore(session, tid, &registers))
    }
}

/// Writes back the registers that have changed since and were known. Returns the reply: an error at
/// the first write that is refused, after which the rest is not written.
fn restore<R: Run>(session: &mut Session<R>, tid: Tid, registers: &KnownRegisters) -> Vec<u8> {
    let now = session.run().registers(tid);
    let changed = |register: &Register| now.value(*register) != registers.value(*register);
    for register in Register::all().filter(changed) {
        let Some(value) = registers.value(register) else { continue };
        if let Err(error) = session.run_mut().write_register(tid, register, value) {
            return remedies::error_reply(&error);
        }
    }
    b"OK".to_vec()
}
