//! Encodes records on the calling thread, for programs whose threads execute one at a time.

use super::dictionary::{Dictionary, NewEdges};
use super::encoder::{BadRecord, Chains};
use super::ranges::Ranges;
use super::trace::Trace;
use crate::common::Tid;
use crate::insn::Insn;
use crate::translate::{CacheMemory, EdgeKind, Step, Translator};
use std::collections::BTreeMap;

/// The traces of a program's threads, and the edges that their records name.
#[derive(Debug)]
pub struct InlineTracer {
    psb_period_bytes: u32,
    dictionary: Dictionary,
    chains: Chains,
    /// The counts of the translator's items that the dictionary has.
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

    /// Starts over with the edges of another translator. The traces of the threads go on.
    pub fn new_program(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        *self = Self { threads, ..Self::new(self.psb_period_bytes) };
    }

    /// Adds the translator's new items to the dictionary.
    fn learn<M: CacheMemory>(&mut self, code: &Translator<M>) {
        let edges = code.edges_from(self.edges).to_vec();
        let pushes = code.return_addresses(self.pushes).to_vec();
        let quiet_jumps = code.quiet_jumps(self.quiet_jumps).to_vec();
        self.edges += edges.len();
        self.pushes += pushes.len();
        self.quiet_jumps += quiet_jumps.len();
        self.dictionary.learn(NewEdges { edges, pushes, quiet_jumps, paths: Vec::new() });
    }

    fn trace(&mut self, tid: Tid) -> (&mut Trace, &Dictionary, &mut Chains) {
        let new = || Trace::new(self.psb_period_bytes, &Ranges::default());
        let trace = self.threads.entry(tid).or_insert_with(new);
        (trace, &self.dictionary, &mut self.chains)
    }

    /// Sets the time at which a thread was created.
    pub fn born(&mut self, tid: Tid, tsc: u64) {
        self.trace(tid).0.born(tsc);
    }

    /// Encodes records of a thread, and then `partial`: the steps that it executed of a path that
    /// is in no record. The thread is at `ip` after both. If there are steps, also encodes its
    /// entry into the kernel there. `Some(&[])` means that the thread is about to begin a path;
    /// `None`, that it is where the last record leads, as after a system call. Returns the number
    /// of ticks of the records and steps.
    pub fn records<M: CacheMemory>(
        &mut self,
        code: &Translator<M>,
        tid: Tid,
        records: &[u8],
        partial: Option<&[Step]>,
        ip: u64,
    ) -> Result<u64, BadRecord> {
        self.learn(code);
        let ticks = ticks_of(code, records)?;
        let (trace, dictionary, chains) = self.trace(tid);
        if trace.records(dictionary, chains, records)? != 0 {
            return Err(BadRecord);
        }
        let Some(partial) = partial else {
            trace.arrive(dictionary, ip)?;
            return Ok(ticks);
        };
        trace.arrive(dictionary, partial.first().map_or(ip, |step| step.ip))?;
        trace.partial(dictionary, partial, ip);
        if !partial.is_empty() {
            // The next record does not know these steps, which may be part of a loop without
            // packets.
            trace.leave(ip);
        }
        Ok(ticks + partial.iter().filter(|step| step.ticks).count() as u64)
    }

    /// Encodes an instruction that was executed outside of the cache, after which the thread is at
    /// `next`.
    pub fn native(&mut self, tid: Tid, insn: &Insn, next: u64) {
        self.trace(tid).0.native(insn, next);
    }

    /// Encodes an entry into the kernel, by anything but a branch, before the instruction at `ip`.
    pub fn leave(&mut self, tid: Tid, ip: u64) {
        self.trace(tid).0.leave(ip);
    }

    /// Encodes a return to the program at `ip`, if the thread is in the kernel.
    pub fn enter(&mut self, tid: Tid, ip: u64, tsc: u64) {
        self.trace(tid).0.enter(ip, tsc);
    }

    /// Returns the number of a thread's instructions in the trace so far.
    pub fn instructions(&self, tid: Tid) -> u64 {
        self.threads.get(&tid).map_or(0, Trace::instructions)
    }

    /// Returns the packets of a thread since the last call, without pending branches.
    pub fn drain(&mut self, tid: Tid) -> Vec<u8> {
        self.trace(tid).0.drain()
    }

    /// Returns the last packets of each thread, and the number of its instructions.
    pub fn finish(self) -> impl Iterator<Item = (Tid, Vec<u8>, u64)> {
        self.threads.into_iter().map(|(tid, mut trace)| {
            trace.flush();
            (tid, trace.drain(), trace.instructions())
        })
    }
}

/// Returns the number of ticks on the paths of records. Fails at an invalid record, and at one with
/// a time.
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
