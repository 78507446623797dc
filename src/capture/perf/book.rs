//! What comes together of a process: its recording, its code, its threads' sidebands. Who traces a
//! thread, and who waits for stops, write here, one at a time.

use super::clock::PerfTime;
use super::code::CodeMap;
use super::sideband::Sideband;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::capture::recorder::Recorder;
use crate::common::{Pid, Tid};
use crate::sideband::Event;
use crate::sideband::perf_data::{PerfEvent, PerfRecord};
use crate::tracee::executable;
use std::collections::BTreeMap;

/// A process's recording while it is written.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) recorder: Recorder,
    code: CodeMap,
    sidebands: BTreeMap<Tid, Sideband>,
    time: PerfTime,
    /// The kernel tells of some threads only.
    looks: bool,
    /// Records of the sideband that were lost.
    lost: u64,
    /// How often bytes of trace were missing.
    gaps: u64,
    /// Why nothing more can be written.
    failure: Option<Error>,
}

impl Book {
    /// Of a process that stands still, or whose mappings are looked at again and again, if `looks`.
    pub(super) fn open(recorder: Recorder, time: PerfTime, looks: bool) -> Result<Self, Error> {
        let pid = recorder.pid();
        let mut book = Self {
            recorder,
            code: CodeMap::new(pid),
            sidebands: BTreeMap::new(),
            time,
            looks,
            lost: 0,
            gaps: 0,
            failure: None,
        };
        book.code.refresh(&mut book.recorder, now(), Tid(pid.0))?;
        Ok(book)
    }

    fn pid(&self) -> Pid {
        self.recorder.pid()
    }

    /// Listens to a thread.
    pub(super) fn listen(&mut self, tid: Tid, sideband: Sideband) {
        self.sidebands.insert(tid, sideband);
    }

    /// The thread is gone.
    pub(super) fn leave(&mut self, tid: Tid) -> Result<(), Error> {
        self.hear()?;
        self.sidebands.remove(&tid);
        Ok(())
    }

    /// Writes what the kernel has told since the last time, in its order.
    pub(super) fn hear(&mut self) -> Result<(), Error> {
        self.time.look();
        let (mut heard, mut is_damaged) = (Vec::new(), false);
        for (tid, sideband) in &mut self.sidebands {
            let read = sideband.read();
            is_damaged |= read.is_damaged;
            heard.extend(read.records.into_iter().map(|record| (*tid, record)));
        }
        heard.sort_by_key(|(_, record)| record.id.time_ns);
        for (tid, record) in heard {
            if let PerfEvent::Lost(count) = record.event {
                self.lost = self.lost.saturating_add(count);
                is_damaged = true;
            }
            self.note(tid, &record)?;
        }
        if is_damaged || self.looks {
            let pid = self.pid();
            self.code.refresh(&mut self.recorder, now(), Tid(pid.0))?;
        }
        Ok(())
    }

    fn note(&mut self, of: Tid, record: &PerfRecord) -> Result<(), Error> {
        let tsc = record.id.time_ns.map_or_else(now, |time_ns| self.time.tsc(time_ns));
        let pid = self.pid();
        let (recorder, code) = (&mut self.recorder, &mut self.code);
        match &record.event {
            PerfEvent::Map(map) if map.pid == pid => code.map(recorder, tsc, map.tid, map)?,
            PerfEvent::Comm { tid, name, exec, .. } => {
                if *exec {
                    let path = executable(pid).unwrap_or_default();
                    code.exec(recorder, tsc, *tid, path.to_string_lossy().into_owned())?;
                }
                recorder.event_at(tsc, *tid, Event::Comm { name: name.clone() })?;
            }
            PerfEvent::Switch { out, .. } => {
                let cpu = record.id.cpu.unwrap_or(0);
                let event = if *out { Event::SwitchOut { cpu } } else { Event::SwitchIn { cpu } };
                recorder.event_at(tsc, of, event)?;
            }
            // Births and ends are told by who sees them as stops.
            _ => {}
        }
        Ok(())
    }

    /// Appends whole packets, as nobody else may do meanwhile.
    pub(super) fn trace(&mut self, tid: Tid, packets: &[u8]) -> Result<(), Error> {
        if !packets.is_empty() {
            self.recorder.trace(tid, packets)?;
        }
        Ok(self.recorder.flush_if_due()?)
    }

    /// Bytes of a thread's trace were missing so often.
    pub(super) fn add_gaps(&mut self, gaps: u64) {
        self.gaps += gaps;
    }

    /// Keeps the first failure for who can tell it.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// The failure of somebody who could not tell it.
    pub(super) fn take_failure(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// What the user should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.gaps > 0 {
            notes.push(format!(
                "the trace has {} gaps: the program was faster than the disk; a --filter, or a \
                 --pt-config with less in it, makes less to write",
                self.gaps
            ));
        }
        if self.lost > 0 {
            notes.push(format!("the kernel lost {} records of mappings and switches", self.lost));
        }
        if self.code.has_made_code {
            notes.push(
                "the program made code at run time: it is known as it was at the end".to_owned(),
            );
        }
        notes
    }
}
