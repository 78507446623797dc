//! Parses context switches of a CPU as written by Linux perf: consecutive records without a file
//! header (`perf_event_open(2)`, `PERF_RECORD_SWITCH_CPU_WIDE`), with LLDB's sample type
//! (`PERF_SAMPLE_TID | PERF_SAMPLE_TIME`, `sample_id_all`).

use crate::common::{Pid, Tid};

/// A context switch, or a loss of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The time of the switch, in nanoseconds of perf's clock.
    pub time_ns: u64,
    /// The kind of the switch.
    pub kind: SwitchKind,
}

/// The kind of a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// The CPU switched to this thread. Process and thread 0 are the idle task.
    In(Pid, Tid),
    /// The CPU switched away from this thread. The numbers are -1 for a thread that has just ended.
    Out(Pid, Tid),
    /// Switches between the previous and the next one were lost.
    Lost,
}

/// Error for malformed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the perf record at offset {offset:#x} is damaged")]
pub struct BadSwitches {
    /// The offset of the first malformed record.
    pub offset: usize,
}

const RECORD_LOST: u32 = 2;
const RECORD_LOST_SAMPLES: u32 = 13;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;

/// The size of type, misc and size.
const HEADER_BYTES: usize = 8;
/// The size of a record: header, the previous or next thread, the thread, the time.
const SWITCH_BYTES: usize = HEADER_BYTES + 8 + 8 + 8;

/// Parses the context switches (`PERF_RECORD_SWITCH_CPU_WIDE`) and the losses in consecutive perf
/// records; skips others. If the first of them is a switch to a thread (no loss before it), adds
/// the switch away from the thread before in front of it, with the same time. A loss has the time
/// of the switch before it; 0 if there is none.
pub fn perf_switches(bytes: &[u8]) -> Result<Vec<Switch>, BadSwitches> {
    let mut switches: Vec<Switch> = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let record = first_record(rest).ok_or(BadSwitches { offset: at })?;
        match record.kind {
            RECORD_LOST | RECORD_LOST_SAMPLES => {
                // Loss records have no reliable time, so they get that of the previous switch.
                let time_ns = switches.last().map_or(0, |switch| switch.time_ns);
                switches.push(Switch { time_ns, kind: SwitchKind::Lost });
            }
            RECORD_SWITCH_CPU_WIDE => {
                let (before, switch) = parse_switch(&record).ok_or(BadSwitches { offset: at })?;
                // The first record also gives the thread that ran before it.
                if switches.is_empty() && matches!(switch.kind, SwitchKind::In(..)) {
                    switches.push(Switch { kind: before, ..switch });
                }
                switches.push(switch);
            }
            _ => {}
        }
        at += record.bytes.len();
    }
    Ok(switches)
}

/// A record of any type.
struct Record<'a> {
    kind: u32,
    misc: u16,
    /// The whole record, with its header.
    bytes: &'a [u8],
}

/// Returns the record at the start of `rest`; `None` if it is cut off or has a wrong size.
fn first_record(rest: &[u8]) -> Option<Record<'_>> {
    let kind = u32::from_le_bytes(*rest.first_chunk()?);
    let misc = u16::from_le_bytes(*rest.get(4..)?.first_chunk()?);
    let size = usize::from(u16::from_le_bytes(*rest.get(6..)?.first_chunk()?));
    let bytes = rest.get(..size).filter(|_| size >= HEADER_BYTES)?;
    Some(Record { kind, misc, bytes })
}

/// Parses a switch. Returns the kind of the switch away from the other thread, and the switch
/// itself. The former is only valid if the latter is a switch to this thread. `None` if the record
/// is too short.
fn parse_switch(record: &Record<'_>) -> Option<(SwitchKind, Switch)> {
    let bytes: &[u8; SWITCH_BYTES] = record.bytes.first_chunk()?;
    let number = |at: usize| i32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let (other, this) = ((Pid(number(8)), Tid(number(12))), (Pid(number(16)), Tid(number(20))));
    let time_ns = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[24 + i]));
    let out = record.misc & MISC_SWITCH_OUT != 0;
    let kind = if out { SwitchKind::Out(this.0, this.1) } else { SwitchKind::In(this.0, this.1) };
    Some((SwitchKind::Out(other.0, other.1), Switch { time_ns, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn switch_record(out: bool, tid: i32, time_ns: u64) -> Vec<u8> {
        let mut bytes = RECORD_SWITCH_CPU_WIDE.to_le_bytes().to_vec();
        bytes.extend(if out { MISC_SWITCH_OUT } else { 0 }.to_le_bytes());
        bytes.extend(32_u16.to_le_bytes());
        for number in [70, 71, 80, tid] {
            bytes.extend(i32::to_le_bytes(number));
        }
        bytes.extend(time_ns.to_le_bytes());
        bytes
    }

    #[test]
    fn switches_read_as_they_were_written() {
        let lost = [2, 0, 0, 0, 0, 0, 24, 0].into_iter().chain([0; 16]).collect();
        let other = vec![9, 0, 0, 0, 0, 0, 8, 0];
        let bytes = [switch_record(false, 81, 5), other, lost, switch_record(true, 81, 9)].concat();
        let at = |time_ns, kind| Switch { time_ns, kind };
        let expected = vec![
            at(5, SwitchKind::Out(Pid(70), Tid(71))),
            at(5, SwitchKind::In(Pid(80), Tid(81))),
            at(5, SwitchKind::Lost),
            at(9, SwitchKind::Out(Pid(80), Tid(81))),
        ];
        assert_eq!(perf_switches(&bytes), Ok(expected));
    }

    #[test]
    fn a_record_that_is_cut_or_has_no_size_is_damaged() {
        let whole = switch_record(true, 1, 1);
        for size in 1..whole.len() {
            assert_eq!(perf_switches(&whole[..size]), Err(BadSwitches { offset: 0 }));
        }
        let zeros = [whole, vec![0; 16]].concat();
        assert_eq!(perf_switches(&zeros), Err(BadSwitches { offset: 32 }));
        // Too short for its declared size.
        let mut short = switch_record(true, 1, 1);
        short.truncate(24);
        short[6] = 24;
        assert_eq!(perf_switches(&short), Err(BadSwitches { offset: 0 }));
    }

    proptest! {
        #[test]
        fn any_bytes_give_records_or_the_place_of_the_damage(bytes: Vec<u8>) {
            match perf_switches(&bytes) {
                Ok(switches) => prop_assert!(switches.len() <= bytes.len() / 4),
                Err(bad) => prop_assert!(bad.offset < bytes.len()),
            }
        }
    }
}
