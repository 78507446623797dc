//! Encodes records on the calling thread, for programs whose threads execute one at a time. A
//! return or indirect branch is *owed* until the next record, or the caller, shows its target.

use super::dictionary::{Dictionary, NewEdges};
use super::encoder::{BadRecord, Chains};
use super::ranges::Ranges;
use super::trace::Trace;
use crate::common::Tid;
use crate::insn::Insn;
use crate::translate::{CacheMemory, EdgeKind, Step, Translator};
use std::collections::BTreeMap;

/// The traces of a program's threads, and the edges that their records name. Each method that gets
/// a thread's number creates its trace if there is none yet ([`Self::instructions`] does not), and
/// [`Self::finish`] then returns that thread, too.
#[derive(Debug)]
pub struct InlineTracer {
    psb_period_bytes: u32,
    dictionary: Dictionary,
    chains: Chains,
    /// The counts of the translator's edges, return addresses and quiet jumps that the dictionary
    /// has.
    edges: usize,
    pushes: usize,
    quiet_jumps: usize,
    threads: BTreeMap<Tid, Trace>,
}

impl InlineTracer {
    /// Creates the traces of a program, as yet without a thread.
    pub fn new(psb_period_bytes: u32) -> Self {
        Self {
            psb_period_bytes,
            dictionary: Dictionary::default(),
            chains: Chains::default(),
            edges: 0,
            pushes: 0,
            quiet_jumps: 0,
            threads: BTreeMap::new(),
        }
    }

    /// Forgets the translator's edges, because another translator is passed from now on: the
    /// process runs another program. The traces of the threads go on; a thread that executes more
    /// must be in the kernel now.
    pub fn new_program(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        *self = Self { threads, ..Self::new(self.psb_period_bytes) };
    }

    /// Adds the translator's new items to the dictionary.
    fn learn_edges<M: CacheMemory>(&mut self, code: &Translator<M>) {
        let edges = code.edges_from(self.edges).to_vec();
        let pushes = code.return_addresses(self.pushes).to_vec();
        let quiet_jumps = code.quiet_jumps(self.quiet_jumps).to_vec();
        self.edges += edges.len();
        self.pushes += pushes.len();
        self.quiet_jumps += quiet_jumps.len();
        self.dictionary.learn(NewEdges { edges, pushes, quiet_jumps, paths: Vec::new() });
    }

    /// Returns the trace of a thread, created if it is new, and what it needs for encoding.
    fn trace_of(&mut self, tid: Tid) -> (&mut Trace, &Dictionary, &mut Chains) {
        let new = || Trace::new(self.psb_period_bytes, &Ranges::default());
        let trace = self.threads.entry(tid).or_insert_with(new);
        (trace, &self.dictionary, &mut self.chains)
    }

    /// Sets the time at which a thread was created. Creates its trace. Call this before anything of
    /// the thread is encoded: later, it would overwrite the last reported time.
    pub fn set_creation_time(&mut self, tid: Tid, tsc: u64) {
        self.trace_of(tid).0.set_creation_time(tsc);
    }

    /// Encodes records of a thread, and then `partial`: the steps (instructions) that it executed
    /// of a path that is in no record. The thread is at `ip` after both. If there are steps, also
    /// encodes an entry into the kernel there. `Some(&[])` means that the thread is about to begin
    /// a path; `None`, that it is where the last record leads, as after a system call. Returns the
    /// number of ticks in the records and steps. Fails at an invalid or incomplete record, and at
    /// one with a time (a return from a system call); records before it may be encoded then.
    pub fn encode_records<M: CacheMemory>(
        &mut self,
        code: &Translator<M>,
        tid: Tid,
        records: &[u8],
        partial: Option<&[Step]>,
        ip: u64,
    ) -> Result<u64, BadRecord> {
        self.learn_edges(code);
        let ticks = ticks_of(code, records)?;
        let (trace, dictionary, chains) = self.trace_of(tid);
        if trace.encode_records(dictionary, chains, records)? != 0 {
            // The last record is incomplete.
            return Err(BadRecord);
        }
        let Some(partial) = partial else {
            trace.finish_owed_record(dictionary, ip)?;
            return Ok(ticks);
        };
        trace.finish_owed_record(dictionary, partial.first().map_or(ip, |step| step.ip))?;
        trace.partial_path(dictionary, partial, ip);
        if !partial.is_empty() {
            // The next record does not know these steps, which may be part of a loop without
            // packets.
            trace.enter_kernel(ip);
        }
        Ok(ticks + partial.iter().filter(|step| step.ticks).count() as u64)
    }

    /// Encodes one instruction that a thread executed outside of the code cache. The thread must be
    /// in the program (not checked): call [`Self::return_from_kernel`] before. It is at `next`
    /// after the instruction, or in the kernel after a far branch. A loop without packets through
    /// it may be missed, unless the caller enters the kernel after it ([`Self::enter_kernel`]).
    pub fn stepped_insn(&mut self, tid: Tid, insn: &Insn, next: u64) {
        self.trace_of(tid).0.stepped_insn(insn, next);
    }

    /// Encodes an entry into the kernel before the instruction at `ip`, by anything but a far
    /// branch, such as a signal. Does nothing if the thread is in the kernel.
    pub fn enter_kernel(&mut self, tid: Tid, ip: u64) {
        self.trace_of(tid).0.enter_kernel(ip);
    }

    /// Encodes a return from the kernel to the program, at `ip` and time `tsc`. Does nothing if the
    /// thread is in the program.
    pub fn return_from_kernel(&mut self, tid: Tid, ip: u64, tsc: u64) {
        self.trace_of(tid).0.return_from_kernel(ip, tsc);
    }

    /// Returns the number of a thread's instructions in the trace so far; 0 if it has no trace.
    pub fn instructions(&self, tid: Tid) -> u64 {
        self.threads.get(&tid).map_or(0, Trace::instructions)
    }

    /// Removes and returns the packets of a thread written since the last call, without pending
    /// branches (TNT bits that are in no packet yet). Empty for a new thread.
    pub fn drain(&mut self, tid: Tid) -> Vec<u8> {
        self.trace_of(tid).0.drain()
    }

    /// Returns for each thread, in order of their numbers, the packets that were not drained,
    /// pending branches included, and the number of its instructions in the whole trace. Does not
    /// end the histories: each thread should be in the kernel ([`Self::enter_kernel`]).
    pub fn finish(self) -> impl Iterator<Item = (Tid, Vec<u8>, u64)> {
        self.threads.into_iter().map(|(tid, mut trace)| {
            trace.flush();
            (tid, trace.drain(), trace.instructions())
        })
    }
}

/// Returns the number of ticks on the paths of records. Fails at an unknown edge, and at a record
/// with a time; `encode_records` checks the rest.
fn ticks_of<M: CacheMemory>(code: &Translator<M>, records: &[u8]) -> Result<u64, BadRecord> {
    let (mut ticks, mut rest) = (0, records);
    while let Some((number, following)) = rest.split_first_chunk() {
        let number = usize::try_from(u32::from_le_bytes(*number)).map_err(|_| BadRecord)?;
        let edge = code.edges_from(number).first().ok_or(BadRecord)?;
        if edge.kind == EdgeKind::SyscallReturn {
            return Err(BadRecord);
        }
        ticks += u64::from(edge.ticks);
        rest = following;
    }
    Ok(ticks)
}
