//! A process that the CPU traces: its recording, its filter, and the threads of the recorder for
//! it.

use super::filter::filter_text;
use super::process_recording::ProcessRecording;
use super::tap::{SidebandThread, lock};
use crate::capture::Error;
use crate::capture::PerfError;
use crate::capture::culprit::Culprit;
use crate::capture::filter::Resolver;
use crate::capture::recorder::{Prepared, Recorder};
use crate::capture::request::Request;
use crate::common::Pid;
use crate::recording::{Exit, Manifest};
use crate::tracee::{Memory, mappings};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A completed recording: its directory, its manifest, and the bytes of all its traces.
pub(super) type Finished = (PathBuf, Manifest, u64);

/// A process that the CPU traces.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) recording: Arc<Mutex<ProcessRecording>>,
    listener: SidebandThread,
    pub(super) memory: Memory,
    resolver: Resolver,
    /// The current filter, in the kernel's syntax; `None` if nothing may be traced yet.
    filter: Option<String>,
    /// True once code to trace is known, so that events may be enabled.
    pub(super) has_code_to_trace: Arc<AtomicBool>,
    /// Threads of the recorder that drained traces and are about to end.
    pub(super) workers: Vec<JoinHandle<()>>,
    /// The thread that ended the process, with the signal by which it did, as far as known.
    pub(super) culprit: Culprit,
}

impl Process {
    /// Starts the recording of a stopped process.
    pub(super) fn start(
        prepared: Prepared,
        request: &Request,
        pid: Pid,
        time: super::clock::PerfTime,
    ) -> Result<Self, Error> {
        // If only one thread is recorded, others may map code, and have no sideband.
        let polls_mappings = request.only_thread.is_some();
        let recording =
            ProcessRecording::open(Recorder::start(prepared, pid)?, time, polls_mappings)?;
        let recording = Arc::new(Mutex::new(recording));
        Ok(Self {
            pid,
            listener: SidebandThread::spawn(&recording),
            recording,
            memory: Memory::open(pid)?,
            resolver: Resolver::new(&request.filter),
            filter: None,
            has_code_to_trace: Arc::new(AtomicBool::new(false)),
            workers: Vec::new(),
            culprit: Culprit::default(),
        })
    }

    /// Handles an execve(2): opens the new memory, and forgets ranges of the old program. Call
    /// [`Self::update_filter`] next: the filter stays as it was until then.
    pub(super) fn exec(&mut self) -> Result<(), Error> {
        self.memory = Memory::open(self.pid)?;
        self.resolver.start_over();
        Ok(())
    }

    /// Returns true if the filter names functions that were not found yet, so that threads must
    /// stop at system calls, which may map their code.
    pub(super) fn seeks_code(&self) -> bool {
        self.resolver.has_missing_functions()
    }

    /// Looks for the code that the filter names in the current mappings. Returns the kernel's
    /// filter text if it changed (empty for no filter); `None` if not, if none of the code is
    /// mapped yet, so that nothing may be traced, or if the process is gone. Sets
    /// `has_code_to_trace`, and the ranges in the manifest. Returns an error if the filter has more
    /// than `ranges` ranges.
    pub(super) fn update_filter(&mut self, ranges: usize) -> Result<Option<String>, Error> {
        let Ok(maps) = mappings(self.pid) else { return Ok(None) };
        self.resolver.search(maps.iter());
        let count = self.resolver.count();
        if count > ranges {
            return Err(PerfError::TooManyRanges { count, ranges }.into());
        }
        let filter = filter_text(self.resolver.ranges(), &maps)?;
        let only = self.resolver.ranges().only().to_vec();
        lock(&self.recording).recorder.set_filter(only);
        self.has_code_to_trace.store(filter.is_some(), Ordering::Release);
        let is_new = filter != self.filter;
        self.filter = filter;
        Ok(self.filter.clone().filter(|_| is_new))
    }

    /// Sets the current filter on a thread's event; does nothing without a filter.
    pub(super) fn apply_filter(&self, control: &dyn super::pmu::Control) -> Result<(), Error> {
        match &self.filter {
            Some(filter) if !filter.is_empty() => Ok(control.set_filter(filter)?),
            _ => Ok(()),
        }
    }

    /// Completes the recording of a process that has ended (with `exit`) or was detached from
    /// (`None`): waits for the recorder's threads for it, and writes the last sideband records.
    /// Returns it with notes for the user, or the first error of one of these threads.
    pub(super) fn finish(self, exit: Option<Exit>) -> Result<(Finished, Vec<String>), Error> {
        let Self { recording, listener, workers, resolver, .. } = self;
        listener.close();
        for worker in workers {
            // A panicked thread has reported that.
            let _ = worker.join();
        }
        // All other owners have ended.
        let Some(recording) = Arc::into_inner(recording) else {
            return Err(PerfError::Config("the recording is still in use".to_owned()).into());
        };
        let mut recording =
            recording.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        recording.write_sidebands()?;
        recording.take_failure()?;
        let notes = [resolver.notes(), recording.notes()].concat();
        Ok((recording.recorder.finish(exit)?, notes))
    }
}
