//! The recording of a process while it is written: traces, mapped code, and the sidebands of its
//! threads (the kernel's records of mappings, names and switches, module `sideband`). The threads
//! that drain AUX areas, the one that reads sidebands and the one that waits for stops write here,
//! one at a time. An *AUX area* is the buffer to which the PMU writes a thread's trace.

use super::clock::PerfTime;
use super::code::CodeMap;
use super::sideband::Sideband;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::capture::limits::SLOW_DISK;
use crate::capture::recorder::Recorder;
use crate::common::{Pid, Tid};
use crate::sideband::Event;
use crate::sideband::perf_data::{PerfEvent, PerfRecord};
use crate::tracee::executable;
use std::collections::BTreeMap;

/// The recording of a process, while it is written.
#[derive(Debug)]
pub(super) struct ProcessRecording {
    pub(super) recorder: Recorder,
    code: CodeMap,
    sidebands: BTreeMap<Tid, Sideband>,
    time: PerfTime,
    /// True if only some threads have sidebands, so that mappings must be polled.
    polls_mappings: bool,
    /// The number of sideband records that the kernel lost.
    lost: u64,
    /// The number of gaps in the threads' traces.
    gaps: u64,
    /// The first error of a thread that drains or reads sidebands.
    failure: Option<Error>,
}

impl ProcessRecording {
    /// Creates the recording of a process, and records its mappings. The process must be stopped,
    /// unless `polls_mappings` is true: its mappings are polled then.
    pub(super) fn open(
        recorder: Recorder,
        time: PerfTime,
        polls_mappings: bool,
    ) -> Result<Self, Error> {
        let pid = recorder.pid();
        let mut recording = Self {
            recorder,
            code: CodeMap::new(pid),
            sidebands: BTreeMap::new(),
            time,
            polls_mappings,
            lost: 0,
            gaps: 0,
            failure: None,
        };
        recording.code.refresh(&mut recording.recorder, now(), Tid(pid.0))?;
        Ok(recording)
    }

    /// Returns the recorded process.
    fn pid(&self) -> Pid {
        self.recorder.pid()
    }

    /// Adds the sideband of a thread, to be read by [`Self::write_sidebands`].
    pub(super) fn add_sideband(&mut self, tid: Tid, sideband: Sideband) {
        self.sidebands.insert(tid, sideband);
    }

    /// Writes the last sideband records of a thread that is no longer traced, and removes its
    /// sideband.
    pub(super) fn remove_sideband(&mut self, tid: Tid) -> Result<(), Error> {
        self.write_sidebands()?;
        self.sidebands.remove(&tid);
        Ok(())
    }

    /// Reads the sidebands of all threads, and writes the kernel's records since the last call, in
    /// order of time. If records may be missing, or mappings are polled, also reads the mappings.
    pub(super) fn write_sidebands(&mut self) -> Result<(), Error> {
        self.time.read_clocks();
        let (mut records, mut may_lack_records) = (Vec::new(), false);
        for (tid, sideband) in &mut self.sidebands {
            let read = sideband.read();
            may_lack_records |= read.may_lack_records;
            records.extend(read.records.into_iter().map(|record| (*tid, record)));
        }
        records.sort_by_key(|(_, record)| record.id.time_ns);
        for (tid, record) in records {
            if let PerfEvent::Lost(count) = record.event {
                self.lost = self.lost.saturating_add(count);
                may_lack_records = true;
            }
            self.write_record(tid, &record)?;
        }
        if may_lack_records || self.polls_mappings {
            let pid = self.pid();
            self.code.refresh(&mut self.recorder, now(), Tid(pid.0))?;
        }
        Ok(())
    }

    /// Writes one record of the sideband of the thread `of`. Drops records of births and ends.
    fn write_record(&mut self, of: Tid, record: &PerfRecord) -> Result<(), Error> {
        let tsc = record.id.time_ns.map_or_else(now, |time_ns| self.time.tsc(time_ns));
        let pid = self.pid();
        let (recorder, code) = (&mut self.recorder, &mut self.code);
        match &record.event {
            PerfEvent::Map(map) if map.pid == pid => {
                code.record_if_code(recorder, tsc, map.tid, map)?;
            }
            PerfEvent::Comm { tid, name, exec, .. } => {
                if *exec {
                    let path = executable(pid).unwrap_or_default();
                    code.record_exec(recorder, tsc, *tid, path.to_string_lossy().into_owned())?;
                }
                recorder.record_event_at(tsc, *tid, Event::Comm { name: name.clone() })?;
            }
            PerfEvent::Switch { out, .. } => {
                let cpu = record.id.cpu.unwrap_or(0);
                let event = if *out { Event::SwitchOut { cpu } } else { Event::SwitchIn { cpu } };
                recorder.record_event_at(tsc, of, event)?;
            }
            // Births and exits are recorded from the ptrace stops that report them.
            _ => {}
        }
        Ok(())
    }

    /// Appends whole PT packets to a thread's trace. Flushes the recording if that is due.
    pub(super) fn append_trace(&mut self, tid: Tid, packets: &[u8]) -> Result<(), Error> {
        if !packets.is_empty() {
            self.recorder.append_trace(tid, packets)?;
        }
        Ok(self.recorder.flush_if_due()?)
    }

    /// Adds the gaps of a thread's trace to their number.
    pub(super) fn add_gaps(&mut self, gaps: u64) {
        self.gaps += gaps;
    }

    /// Notes an error, unless there is an earlier one, until [`Self::take_failure`].
    pub(super) fn note_failure(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Takes the noted error, and returns it as `Err`.
    pub(super) fn take_failure(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Returns notes for the user on the recording's limits.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.gaps > 0 {
            notes.push(format!("the trace has {} gaps: {SLOW_DISK}", self.gaps));
        }
        if self.lost > 0 {
            notes.push(format!("the kernel lost {} records of mappings and switches", self.lost));
        }
        if self.code.has_anonymous_code {
            notes.push(
                "the program made code at run time: it is known as it was at the end".to_owned(),
            );
        }
        notes
    }
}
