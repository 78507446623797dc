//! Conditions of breakpoints, which gdb sends as agent expressions with `Z0` and `Z1`: a stop whose
//! conditions are all false is skipped. If a condition cannot be evaluated, which is common in the
//! past of a path, the stop is reported, and gdb shows the reason when it evaluates the condition
//! itself.

use super::agent;
use super::hex;
use crate::common::Addr;
use crate::session::{self, KnownRegisters, ReadMemory, Run, Session, Stop, StopReason};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The maximum number of breakpoints with conditions.
const BREAKPOINTS_LIMIT: usize = 10_000;
/// The maximum number of conditions of one breakpoint.
const CONDITIONS_LIMIT: usize = 100;

/// The conditions of the breakpoints that a client has inserted, by type and address.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    /// The expressions of each breakpoint; a breakpoint without expressions always stops.
    inserted: BTreeMap<(u8, Addr), Vec<Vec<u8>>>,
}

impl Conditions {
    /// Notes the conditions of a breakpoint in `Z0` or `Z1`, in place of earlier ones, or forgets
    /// them for `z0` or `z1`. Returns the packet without the fields after the breakpoint's kind,
    /// for gdbstub. Returns other packets unchanged, and `None` if the packet is malformed or has
    /// too many conditions. After [`BREAKPOINTS_LIMIT`], drops the conditions: the breakpoint
    /// always stops.
    pub(super) fn note_breakpoint_packet<'a>(&mut self, body: &'a [u8]) -> Option<&'a [u8]> {
        let [action @ (b'Z' | b'z'), kind @ (b'0' | b'1'), b',', place @ ..] = body else {
            return Some(body);
        };
        let (addr, rest) = hex::split(place, b',')?;
        let key = (*kind, Addr(hex::number(addr)?));
        let plain = body.iter().position(|byte| *byte == b';').unwrap_or(body.len());
        if *action == b'z' {
            self.inserted.remove(&key);
        } else {
            let list = hex::split(rest, b';').map_or(&b""[..], |(_, list)| list);
            let expressions = expressions(list)?;
            if self.inserted.len() < BREAKPOINTS_LIMIT || self.inserted.contains_key(&key) {
                self.inserted.insert(key, expressions);
            }
        }
        Some(&body[..plain])
    }

    /// Returns true if a stop is to be skipped: it is reported as one at a breakpoint, and the
    /// conditions of all breakpoints there are false. Returns false if one of them has no
    /// condition, or one that cannot be evaluated.
    pub(super) fn skips_stop<R: Run>(&self, session: &Session<R>, stop: Stop) -> bool {
        let StopReason::Breakpoint(_) = stop.reason else { return false };
        let (run, tid) = (session.run(), stop.thread);
        let Some(pc) = run.pc(tid) else { return false };
        let read = |addr, buf: &mut [u8]| run.read_memory(tid, addr, buf) == buf.len();
        self.are_false(pc, &run.registers(tid), &read)
    }

    /// Returns true if there are breakpoints at `pc`, with conditions that are all false.
    fn are_false(&self, pc: Addr, registers: &KnownRegisters, read: &ReadMemory<'_>) -> bool {
        let mut here = [b'0', b'1'].into_iter().filter_map(|kind| self.inserted.get(&(kind, pc)));
        let mut any = false;
        here.all(|expressions| {
            any = true;
            let is_false = |code: &Vec<u8>| agent::evaluate(code, registers, &read) == Ok(0);
            !expressions.is_empty() && expressions.iter().all(is_false)
        }) && any
    }

    /// Returns the conditions in the form for a run that evaluates them itself: the default value
    /// if no breakpoint has one.
    pub(super) fn for_run(&self) -> session::Conditions {
        if self.inserted.values().all(Vec::is_empty) {
            return session::Conditions::default();
        }
        let mut hasher = DefaultHasher::new();
        self.inserted.hash(&mut hasher);
        let conditions = self.clone();
        session::Conditions::new(hasher.finish(), move |pc, registers, read| {
            !conditions.are_false(pc, registers, read)
        })
    }
}

/// Parses `XLENGTH,BYTES`, repeated, into the bytes of each. Ignores the first other text with all
/// after it, such as commands after `cmds:`. `None` if one is malformed, or for more than
/// [`CONDITIONS_LIMIT`].
fn expressions(mut list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut expressions = Vec::new();
    while let [b'X', rest @ ..] = list {
        let (length, rest) = hex::split(rest, b',')?;
        let digits = usize::try_from(hex::number(length)?).ok()?.checked_mul(2)?;
        let code = hex::decode(rest.get(..digits)?)?;
        if expressions.len() >= CONDITIONS_LIMIT {
            return None;
        }
        expressions.push(code);
        list = &rest[digits..];
        list = list.strip_prefix(b";").unwrap_or(list);
    }
    Some(expressions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_come_and_go_with_their_breakpoints() {
        let mut conditions = Conditions::default();
        assert_eq!(
            conditions.note_breakpoint_packet(b"Z0,10,1;X2,2201X1,27"),
            Some(&b"Z0,10,1"[..])
        );
        assert_eq!(conditions.inserted[&(b'0', Addr(16))], [vec![0x22, 1], vec![0x27]]);
        assert_eq!(
            conditions.note_breakpoint_packet(b"Z0,10,1;X1,27;cmds:0,X1,27"),
            Some(&b"Z0,10,1"[..])
        );
        assert_eq!(conditions.inserted[&(b'0', Addr(16))], [vec![0x27]]);
        assert_eq!(conditions.note_breakpoint_packet(b"Z0,10,1"), Some(&b"Z0,10,1"[..]));
        assert!(conditions.inserted[&(b'0', Addr(16))].is_empty());
        assert_eq!(conditions.note_breakpoint_packet(b"z0,10,1"), Some(&b"z0,10,1"[..]));
        assert!(conditions.inserted.is_empty());
        for broken in [&b"Z0,10"[..], b"Z0,x,1", b"Z0,10,1;X9,27", b"Z0,10,1;Xffffffffffffffff,"] {
            assert_eq!(conditions.note_breakpoint_packet(broken), None);
        }
        assert_eq!(conditions.note_breakpoint_packet(b"Z2,10,4"), Some(&b"Z2,10,4"[..]));
    }
}
