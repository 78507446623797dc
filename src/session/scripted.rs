//! A history given instruction by instruction, by hand or by another debugger. Serves tests of the
//! views, and callers with a list of addresses to walk through. Searches are linear, so it is not
//! meant for long runs.

use super::{
    ArrivalKind, CallFrame, CodeLocation, Description, Direction, FileBytes, Found,
    FunctionArrival, GapInfo, History, KnownRegisters, Library, Protection, Region, Register,
    Search, ThreadInfo,
};
use crate::common::{Addr, AddrRange, Pid, Tid};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The effect of an instruction on the call stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// No effect.
    #[default]
    None,
    /// A call of the instruction that its thread executes next.
    Call,
    /// A return.
    Return,
}

/// One executed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The thread that executed it.
    pub tid: Tid,
    /// The address of the instruction.
    pub pc: Addr,
    /// The length of the instruction in bytes.
    pub size_bytes: u8,
    /// The effect on the call stack.
    pub transfer: Transfer,
}

/// A history held in memory. Fill in the known values, then call [`Scripted::index`].
#[derive(Clone, Debug, Default)]
pub struct Scripted {
    /// The instructions of all threads in order of execution.
    pub instructions: Vec<Instruction>,
    /// The registers of the final state. A thread without any has ended before.
    pub final_registers: BTreeMap<Tid, KnownRegisters>,
    /// The thread whose exit or fault ended the run.
    pub final_thread: Option<Tid>,
    /// Memory that never changes: code and constants.
    pub constant_memory: Vec<(Addr, Arc<[u8]>)>,
    /// Memory of the final state.
    pub final_memory: Vec<(Addr, Arc<[u8]>)>,
    /// Names of threads.
    pub names: BTreeMap<Tid, String>,
    /// Gaps of the path.
    pub gaps: Vec<GapInfo>,
    /// The description of the run.
    pub description: Description,
    /// The ELF auxiliary vector.
    pub auxv: Option<Vec<u8>>,
    /// The path of the executable.
    pub exec_file: Option<PathBuf>,
    /// The shared libraries.
    pub libraries: Option<Vec<Library>>,
    /// Files that belong to the recording.
    pub files: BTreeMap<PathBuf, Arc<[u8]>>,
    /// Complete PT packets of threads.
    pub traces: BTreeMap<Tid, Vec<u8>>,
    /// The duration of an instruction in nanoseconds, if times are known.
    pub step_ns: Option<u64>,
    /// The start of the run, in nanoseconds since 1970.
    pub started_unix_ns: Option<u64>,
    /// The functions and lines of code, by its address.
    pub places: BTreeMap<Addr, CodeLocation>,
    /// The positions of each thread's instructions, by [`Self::index`].
    positions: BTreeMap<Tid, Vec<u64>>,
}

impl Scripted {
    /// Indexes the instructions by thread, which all searches and moves need. Must be called again
    /// after a change of `instructions`.
    #[must_use]
    pub fn index(mut self) -> Self {
        self.positions.clear();
        for (g, instruction) in (0..).zip(&self.instructions) {
            self.positions.entry(instruction.tid).or_default().push(g);
        }
        self
    }

    fn at(&self, g: u64) -> Option<&Instruction> {
        self.instructions.get(usize::try_from(g).ok()?)
    }

    fn positions_of(&self, tid: Tid) -> &[u64] {
        self.positions.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// Returns the known memory at a position: what never changes, and at the end the final memory.
    fn segments_at(&self, g: u64) -> impl Iterator<Item = &(Addr, Arc<[u8]>)> {
        let at_end = g == self.total();
        self.constant_memory.iter().chain(self.final_memory.iter().filter(move |_| at_end))
    }
}

impl History for Scripted {
    fn threads(&self) -> Vec<ThreadInfo> {
        let pid = self.instructions.first().map_or(Pid(1), |first| Pid(first.tid.0));
        let mut threads: Vec<_> = self
            .positions
            .iter()
            .map(|(&tid, positions)| ThreadInfo {
                tid,
                pid,
                name: self.names.get(&tid).cloned().unwrap_or_default(),
                first: positions.first().copied().unwrap_or(0),
                ended: if self.final_registers.contains_key(&tid) {
                    None
                } else {
                    positions.last().map(|last| last + 1)
                },
            })
            .collect();
        threads.sort_by_key(|thread| thread.first);
        threads
    }

    fn total(&self) -> u64 {
        self.instructions.len() as u64
    }

    fn running_at(&self, g: u64) -> Option<Tid> {
        self.at(g).map(|instruction| instruction.tid).or(self.final_thread)
    }

    fn index_of(&self, tid: Tid, g: u64) -> u64 {
        self.positions_of(tid).partition_point(|position| *position < g) as u64
    }

    fn position_of(&self, tid: Tid, index: u64) -> Option<u64> {
        self.positions_of(tid).get(usize::try_from(index).ok()?).copied()
    }

    fn pc(&self, tid: Tid, g: u64) -> Option<Addr> {
        let next = self.position_of(tid, self.index_of(tid, g));
        if let Some(instruction) = next.and_then(|next| self.at(next)) {
            return Some(instruction.pc);
        }
        let rip = self.final_registers.get(&tid)?.get(Register::RIP)?;
        u64::try_from(rip).ok().map(Addr)
    }

    fn stays_in_activation(&self, tid: Tid, g: u64) -> bool {
        let next = self.position_of(tid, self.index_of(tid, g));
        let instruction = next.and_then(|next| self.at(next));
        instruction.is_some_and(|instruction| instruction.transfer == Transfer::None)
    }

    fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found {
        let mut within = search.within.clone();
        while let Some(g) = match search.direction {
            Direction::Forward => within.next(),
            Direction::Backward => within.next_back(),
        } {
            let Some(instruction) = self.at(g) else { continue };
            let theirs = search.only.is_none_or(|tid| tid == instruction.tid);
            if theirs && search.addrs.contains(&instruction.pc) {
                return Found::At(g);
            }
            if interrupted() {
                return Found::Interrupted(g);
            }
        }
        Found::Nothing
    }

    fn call_stack(&self, tid: Tid, g: u64) -> Vec<CallFrame> {
        let mut stack = Vec::new();
        let executed = self.positions_of(tid).iter().take_while(|position| **position < g);
        for &position in executed {
            let Some(instruction) = self.at(position) else { break };
            match instruction.transfer {
                Transfer::None => {}
                Transfer::Return => drop(stack.pop()),
                Transfer::Call => stack.push(CallFrame {
                    activation: Some(position),
                    entry: self.pc(tid, position + 1),
                    call_site: Some(instruction.pc),
                    return_address: Some(
                        instruction.pc.wrapping_add(u64::from(instruction.size_bytes)),
                    ),
                    signal_handler: false,
                }),
            }
        }
        stack.reverse();
        stack
    }

    fn registers(&self, tid: Tid, g: u64) -> KnownRegisters {
        let known = self.final_registers.get(&tid).filter(|_| g == self.total());
        known.cloned().unwrap_or_default()
    }

    fn read_memory(&self, _tid: Tid, g: u64, addr: Addr, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let at = addr.wrapping_add(done as u64);
            let piece = self.segments_at(g).find_map(|(start, bytes)| {
                let offset = usize::try_from(at.0.checked_sub(start.0)?).ok()?;
                bytes.get(offset..).filter(|piece| !piece.is_empty())
            });
            let Some(piece) = piece else { break };
            let count = piece.len().min(buf.len() - done);
            buf[done..done + count].copy_from_slice(&piece[..count]);
            done += count;
        }
        done
    }

    fn time_ns(&self, g: u64) -> Option<u64> {
        self.step_ns?.checked_mul(g)
    }

    fn gaps(&self) -> Vec<GapInfo> {
        self.gaps.clone()
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn auxv(&self) -> Option<Vec<u8>> {
        self.auxv.clone()
    }

    fn exec_file(&self) -> Option<PathBuf> {
        self.exec_file.clone()
    }

    fn libraries(&self) -> Option<Vec<Library>> {
        self.libraries.clone()
    }

    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>> {
        let bytes = self.files.get(path)?;
        Some(Box::new(Arc::clone(bytes)))
    }

    fn regions(&self, g: u64) -> Option<Vec<Region>> {
        let protection = |execute: bool| Protection { read: true, write: !execute, execute };
        let at_end = self.final_memory.iter().filter(|_| g == self.total());
        let code = self.constant_memory.iter().map(|memory| (memory, true));
        let mut regions: Vec<Region> = code
            .chain(at_end.map(|memory| (memory, false)))
            .map(|((start, bytes), execute)| Region {
                range: AddrRange::sized(*start, bytes.len() as u64),
                protection: protection(execute),
                name: String::new(),
            })
            .collect();
        regions.sort_by_key(|region| region.range.start);
        Some(regions)
    }

    fn started_unix_ns(&self) -> Option<u64> {
        self.started_unix_ns
    }

    fn location_of(&self, addr: Addr) -> Option<CodeLocation> {
        self.places.get(&addr).cloned()
    }

    fn addresses_of(&self, location: &str) -> Vec<Addr> {
        if let Some(digits) = location.strip_prefix('*') {
            return u64::from_str_radix(digits, 16).map(Addr).into_iter().collect();
        }
        let named = self.places.iter().filter(|(_, place)| place.function == location);
        named.map(|(addr, _)| *addr).collect()
    }

    fn calls_around(&self, tid: Tid, g: u64, count: usize) -> Vec<FunctionArrival> {
        let mut depth = 0;
        let mut calls = Vec::new();
        // The kind of the arrival at the next instruction, if that is one.
        let mut arrives_by = Some(ArrivalKind::Start);
        for &position in self.positions_of(tid) {
            let Some(instruction) = self.at(position) else { break };
            if let Some(kind) = arrives_by.take() {
                calls.push(FunctionArrival { position, depth, ip: instruction.pc, kind });
            }
            match instruction.transfer {
                Transfer::None => {}
                Transfer::Return => depth = depth.saturating_sub(1),
                Transfer::Call => {
                    depth += 1;
                    arrives_by = Some(ArrivalKind::Call);
                }
            }
        }
        // The last `count` before `g`, and the first `count` from there on.
        let here = calls.partition_point(|called| called.position < g);
        let end = calls.len().min(here.saturating_add(count));
        calls.drain(..end).skip(here.saturating_sub(count)).collect()
    }

    fn pt_trace(&self, tid: Tid, _since: u64, _g: u64) -> Option<Vec<u8>> {
        self.traces.get(&tid).cloned()
    }
}
