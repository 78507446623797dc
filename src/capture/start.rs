//! Runs a program natively until it reaches the function where its recording is to start.
//!
//! 1. Until the function's file is mapped, threads stop at each system call, and the mappings are
//!    searched after an mmap(2).
//! 2. Then an INT3 replaces the function's first byte, and threads run without such stops. A child
//!    does not get the INT3s: they are removed from its memory before it is detached from; if it
//!    shares the program's, until the parent's call ends.
//! 3. A thread that executes an INT3 of ours is moved back to its address. All other threads are
//!    stopped, and the original bytes are restored.

use super::Error;
use super::error::gone_is_fine;
use super::filter::{Code, Filter, Resolver};
use crate::common::{Addr, Pid, Tid};
use crate::tracee::call_numbers::MMAP;
use crate::tracee::{
    self, Memory, PtraceEvent, Signo, Stop, Tracee, is_traced_here, mappings, wait_any, wait_for,
};
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};

const INT3: u8 = 0xcc;

/// Runs a launched program until a thread is about to execute `code`, and stops all its threads.
/// Returns the threads, that one first; an error if the program ends before. After an error,
/// threads may run, and the caller must detach. Detaches from the program's children. `pid` is
/// stopped in its execve(2), with one thread.
pub(super) fn run_to_function(pid: Pid, code: &Code) -> Result<Vec<Tid>, Error> {
    let first = Tid(pid.0);
    let filter = Filter { only: vec![code.clone()], stop: Vec::new() };
    let mut approach = Approach {
        pid,
        name: code.words(),
        resolver: Resolver::new(&filter),
        memory: Memory::open(pid)?,
        int3s: BTreeMap::new(),
        int3s_are_removed: false,
        threads: BTreeSet::from([first]),
    };
    let stopped = approach.run_until_reached(first);
    let removed = approach.remove_int3s();
    let stopped = stopped?;
    removed.map(|()| stopped)
}

/// A program that runs to the function.
struct Approach {
    pid: Pid,
    /// The name of the function, for errors.
    name: String,
    resolver: Resolver,
    memory: Memory,
    /// The original bytes that our INT3s replace, by address.
    int3s: BTreeMap<u64, u8>,
    /// True while our INT3s are removed for a child that shares the memory.
    int3s_are_removed: bool,
    threads: BTreeSet<Tid>,
}

impl Approach {
    /// Runs the program until a thread reaches the function, and stops all threads. Returns them,
    /// that one first. `first` is the program's only thread so far.
    fn run_until_reached(&mut self, first: Tid) -> Result<Vec<Tid>, Error> {
        self.insert_int3s()?;
        self.resume(first, 0)?;
        loop {
            let Some((tid, stop)) = wait_any(true)? else { continue };
            if self.handle(tid, stop)? {
                return self.stop_others(tid);
            }
        }
    }

    /// Looks for the function in the current mappings, and inserts an INT3 at each address where it
    /// starts.
    fn insert_int3s(&mut self) -> Result<(), Error> {
        self.resolver.search(mappings(self.pid)?.iter());
        let starts: Vec<Addr> = self.resolver.ranges().starts().collect();
        for at in starts {
            let mut byte = [0];
            if !self.int3s.contains_key(&at.0) && self.memory.read(at, &mut byte) == 1 {
                self.write_byte(at, INT3)?;
                self.int3s.insert(at.0, byte[0]);
            }
        }
        Ok(())
    }

    /// Writes a byte of the program's code.
    fn write_byte(&self, at: Addr, byte: u8) -> Result<(), Error> {
        self.memory.write(at, &[byte]).map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            tracee::Error::System { call: "write", errno }.into()
        })
    }

    /// Removes our INT3s, and restores the original bytes.
    fn remove_int3s(&mut self) -> Result<(), Error> {
        let int3s = std::mem::take(&mut self.int3s);
        int3s.into_iter().try_for_each(|(at, byte)| self.write_byte(Addr(at), byte))
    }

    /// Resumes a thread with `signal` (0: none). As long as there are no INT3s, since the function
    /// is not mapped or they are removed for a child, the thread stops at system calls. Ignores a
    /// thread that is gone.
    fn resume(&self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let tracee = Tracee(tid);
        let waits = self.int3s.is_empty();
        gone_is_fine(if waits { tracee.resume_to_call(signal) } else { tracee.resume(signal) })
    }

    /// Handles a stop of any thread, and resumes it, unless it is in a group stop. A thread that is
    /// seen for the first time is added. After an execve(2), looks for the function in the new
    /// program. Returns true if the thread has reached the function: it stays stopped then. Returns
    /// an error if the program has ended.
    fn handle(&mut self, tid: Tid, stop: Stop) -> Result<bool, Error> {
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.threads.remove(&tid);
                if tid.0 == self.pid.0 {
                    return Err(Error::NotReached { name: self.name.clone() });
                }
            }
            Stop::Signal(libc::SIGTRAP) if self.move_back_to_int3(tid)? => return Ok(true),
            Stop::Signal(signal) => self.resume(tid, signal)?,
            Stop::Group(_) => gone_is_fine(Tracee(tid).listen())?,
            Stop::Event(PtraceEvent::Stop) => {
                self.threads.insert(tid);
                self.resume(tid, 0)?;
            }
            Stop::Event(PtraceEvent::Clone) => {
                self.add_thread_of(tid);
                self.resume(tid, 0)?;
            }
            Stop::Event(event @ (PtraceEvent::Fork | PtraceEvent::Vfork)) => {
                self.detach_child(tid, event == PtraceEvent::Vfork)?;
                self.resume(tid, 0)?;
            }
            Stop::Event(PtraceEvent::Exec) => {
                self.int3s.clear();
                self.int3s_are_removed = false;
                self.memory = Memory::open(self.pid)?;
                self.resolver.start_over();
                self.threads = BTreeSet::from([tid]);
                self.insert_int3s()?;
                self.resume(tid, 0)?;
            }
            Stop::Event(PtraceEvent::Exit | PtraceEvent::Other(_)) => self.resume(tid, 0)?,
            Stop::Call => {
                let number = Tracee(tid).registers().map_or(MMAP, |registers| registers.orig_rax);
                if self.int3s_are_removed || number == MMAP {
                    self.int3s_are_removed = false;
                    self.insert_int3s()?;
                }
                self.resume(tid, 0)?;
            }
        }
        Ok(false)
    }

    /// Adds the thread that `parent` created, whose first stop may come later: the function may be
    /// reached before that. Adds nothing if one of the two is gone.
    fn add_thread_of(&mut self, parent: Tid) {
        let message = Tracee(parent).event_message().ok();
        let child = message.and_then(|number| i32::try_from(number).ok()).map(Tid);
        self.threads.extend(child.filter(|child| is_traced_here(*child)));
    }

    /// Moves a thread that one of our INT3s stopped back to the INT3's address, and returns true.
    /// Returns false for other stops.
    fn move_back_to_int3(&self, tid: Tid) -> Result<bool, Error> {
        let mut registers = Tracee(tid).registers()?;
        if !self.int3s.contains_key(&registers.rip.wrapping_sub(1)) {
            return Ok(false);
        }
        registers.rip -= 1;
        Tracee(tid).set_registers(&registers)?;
        Ok(true)
    }

    /// Detaches from the child that `parent` created, after removing our INT3s from its memory. If
    /// the two share their memory, the parent has none either until the end of its call. Does
    /// nothing if the parent is gone.
    fn detach_child(&mut self, parent: Tid, shares_memory: bool) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        wait_for(child)?;
        if shares_memory {
            // The parent waits for the child, and stops at the end of its call, where the INT3s are
            // inserted again.
            self.remove_int3s()?;
            self.int3s_are_removed = true;
        } else if let Ok(memory) = Memory::open(Pid(child.0)) {
            for (&at, &byte) in &self.int3s {
                // The child may be gone.
                let _ = memory.write(Addr(at), &[byte]);
            }
        }
        gone_is_fine(Tracee(child).detach(0))
    }

    /// Stops all threads but `tid`, which has reached the function. Returns all threads, that one
    /// first.
    fn stop_others(&mut self, tid: Tid) -> Result<Vec<Tid>, Error> {
        let mut stopped = vec![tid];
        loop {
            let running = self.threads.iter().copied().find(|other| !stopped.contains(other));
            let Some(other) = running else { break };
            gone_is_fine(Tracee(other).interrupt())?;
            if self.wait_until_stopped(other)? {
                stopped.push(other);
            }
        }
        Ok(stopped)
    }

    /// Waits until an interrupted thread stops, and handles its other stops. Returns true as well
    /// if it reaches the function first. Returns false if the thread has ended instead.
    fn wait_until_stopped(&mut self, tid: Tid) -> Result<bool, Error> {
        loop {
            match wait_for(tid)? {
                Stop::Event(PtraceEvent::Stop) | Stop::Group(_) => return Ok(true),
                Stop::Exited(_) | Stop::Killed { .. } => {
                    self.threads.remove(&tid);
                    return Ok(false);
                }
                Stop::Event(PtraceEvent::Clone) => {
                    self.add_thread_of(tid);
                    gone_is_fine(Tracee(tid).resume(0))?;
                }
                stop => {
                    if self.handle(tid, stop)? {
                        // The thread reached the function as well. Its requested stop is reported
                        // later.
                        return Ok(true);
                    }
                }
            }
        }
    }
}
