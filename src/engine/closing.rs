//! Closes *foreign* memory, which processes outside may write
//! ([`Foreign`](super::foreign::Foreign)), in the process, so that accesses fault, and opens it:
//! with its protection in the program, until it is closed again.

use super::error::{Error, checked};
use super::guard::{EVERYWHERE, prot_bits};
use super::kernel_writes::{LARGEST_REACH, SCATTERING};
use super::process::TranslatedProcess;
use crate::common::{Addr, AddrRange};
use crate::sideband::{Mapping, Protection};
use crate::syscalls::Call;
use crate::tracee::Tracee;
use crate::tracee::call_numbers::{MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT};

const PAGE_BYTES: u64 = 0x1000;
/// The protection of closed memory.
const NOTHING: Protection = Protection { read: false, write: false, execute: false, shared: true };

/// `writev`, `sendmsg`, `execve`, `vmsplice`, `pwritev`, `sendmmsg`, `process_vm_writev`,
/// `execveat`, `pwritev2`: their arguments point to the addresses that they read.
const GATHERING: [u64; 9] = [20, 46, 59, 278, 296, 307, 311, 322, 328];
/// `exit`, `exit_group`: the kernel writes to lists of locks (`robust_list(2)`).
const ENDING: [u64; 2] = [60, 231];

impl TranslatedProcess {
    /// Notes that processes outside may write the file of a mapping. While there is such a file, no
    /// system call is made in the code cache. Returns false if it was noted before.
    pub fn note_foreign_file(&mut self, mapping: &Mapping) -> bool {
        let is_new = self.space.foreign.add_file(mapping);
        if is_new {
            self.update_logged_calls();
        }
        is_new
    }

    /// Notes that only this process writes the file of a mapping: the file's memory is foreign no
    /// longer. Opens that memory for good, drops the translations of its code, and forgets the
    /// classes of all descriptors. Returns the ranges of the file's mappings, but not of those that
    /// are never closed (private, executable, or inaccessible).
    pub fn note_own_file(
        &mut self,
        tracee: Tracee,
        file: &Mapping,
    ) -> Result<Vec<AddrRange>, Error> {
        let foreign = &self.space.foreign;
        let is_of_file =
            |mapping: &&Mapping| foreign.can_close(mapping) && mapping.is_same_file(file);
        let mapped = self.space.mappings().filter(is_of_file).map(|mapping| mapping.range);
        let mapped: Vec<_> = mapped.collect();
        for range in &mapped {
            self.open_foreign_range(tracee, *range)?;
            // The pages of its code were closed, so they are not protected.
            self.forget_code(*range);
        }
        self.space.foreign.remove_file(file);
        self.forget_descriptors();
        self.update_logged_calls();
        Ok(mapped)
    }

    /// Returns a mapping of each file that processes outside may write.
    pub fn foreign_files(&self) -> Vec<Mapping> {
        self.space.foreign.files().to_vec()
    }

    /// Returns true if processes outside may write the file of a mapping.
    pub fn is_foreign_file(&self, mapping: &Mapping) -> bool {
        self.space.foreign.has_file(mapping)
    }

    /// Returns true if processes outside may write some file that the process maps.
    pub fn has_foreign(&self) -> bool {
        self.space.foreign.has_files()
    }

    /// Returns true if some of a range is foreign memory that was closed, even if it is now open
    /// for one access.
    pub fn is_foreign(&self, range: AddrRange) -> bool {
        self.space.foreign.is_closed(range)
    }

    /// Returns true if some foreign memory may be open: it was opened, or the mappings changed.
    pub fn has_open_foreign(&self) -> bool {
        !self.space.foreign.is_all_closed()
    }

    /// Returns true if some foreign memory is closed.
    pub fn has_closed_foreign(&self) -> bool {
        !self.space.foreign.closed().is_empty()
    }

    /// Closes all foreign memory but executable mappings, and drops the translations of code that
    /// was overwritten there. Returns the ranges that were not closed before. Those that were open
    /// for one access are not among them.
    pub fn close_foreign(&mut self, tracee: Tracee) -> Result<Vec<AddrRange>, Error> {
        if self.space.foreign.is_all_closed() {
            return Ok(Vec::new());
        }
        for range in self.space.foreign.take_open() {
            self.protect_range(tracee, range, NOTHING)?;
            self.forget_overwritten_code(range);
        }
        let foreign = &self.space.foreign;
        let mappings = self.space.mappings().filter(|mapping| foreign.can_close(mapping));
        let open_parts = |mapping: &Mapping| {
            let protection = mapping.protection;
            foreign.open_parts(mapping.range).into_iter().map(move |part| (part, protection))
        };
        let mut closed = Vec::new();
        for (range, protection) in mappings.flat_map(open_parts).collect::<Vec<_>>() {
            self.protect_range(tracee, range, NOTHING)?;
            for page in self.space.masked_in(range) {
                self.space.unmask(page);
            }
            self.space.foreign.note_closed(range, protection);
            self.forget_overwritten_code(range);
            closed.push(range);
        }
        self.space.foreign.note_all_closed();
        Ok(closed)
    }

    /// Opens the pages that the access of one instruction at `addr` can touch, if the foreign
    /// memory there is closed. They stay open until the next [`Self::close_foreign`].
    pub(super) fn open_foreign_at(&mut self, tracee: Tracee, addr: Addr) -> Result<(), Error> {
        match self.space.foreign.note_open_at(addr) {
            Some((pages, protection)) => self.protect_range(tracee, pages, protection),
            None => Ok(()),
        }
    }

    /// Opens the foreign memory that the kernel may use in a call which a thread is about to make,
    /// until the next [`Self::close_foreign`]: the closed parts that the arguments point to, or all
    /// of them if the call can reach more.
    pub fn open_foreign_for_call(&mut self, tracee: Tracee, call: &Call) -> Result<(), Error> {
        if !self.has_foreign() {
            return Ok(());
        }
        let number = call.number;
        if [&SCATTERING[..], &GATHERING, &ENDING].iter().any(|all| all.contains(&number)) {
            return self.open_foreign_range(tracee, EVERYWHERE);
        }
        let changes_mappings = matches!(number, MPROTECT | MUNMAP | MREMAP | PKEY_MPROTECT);
        let args = call.arguments();
        for (index, arg) in args.iter().enumerate() {
            // Where a call takes a buffer's size, as write(2) and mlock(2) do, that is the next
            // argument.
            let next = args.get(index + 1).copied().filter(|next| *next < LARGEST_REACH);
            let size = if changes_mappings { call.args[1] } else { next.unwrap_or(1).max(1) };
            self.open_foreign_range(tracee, AddrRange::sized(Addr(*arg), size))?;
        }
        Ok(())
    }

    /// Opens each closed part of foreign memory that overlaps `range`, as a whole, until the next
    /// [`Self::close_foreign`].
    pub fn open_foreign_range(&mut self, tracee: Tracee, range: AddrRange) -> Result<(), Error> {
        for (range, protection) in self.space.foreign.take_closed(range) {
            self.protect_range(tracee, range, protection)?;
        }
        Ok(())
    }

    /// Opens foreign memory in a child, which has a copy of the process's mappings, by the SYSCALL
    /// instruction at `gadget`. Ignores calls that fail.
    pub(super) fn open_foreign_in_child(&self, child: Tracee, gadget: Addr) -> Result<(), Error> {
        for (range, protection) in self.space.foreign.closed() {
            let args = [range.start.0, range.size_bytes(), prot_bits(*protection), 0, 0, 0];
            child.inject(gadget, MPROTECT, args)?;
        }
        Ok(())
    }

    /// Drops the translations of code pages whose file is also mapped in `range`, if their bytes
    /// are not those that were translated.
    fn forget_overwritten_code(&mut self, range: AddrRange) {
        if !self.pages.has_changing() {
            return;
        }
        for page in self.pages.changing_addresses_in(&self.space.aliases(range)) {
            if self.pages.is_overwritten(page, &self.memory) {
                self.forget_code(AddrRange::sized(Addr(page), PAGE_BYTES));
            }
        }
    }

    /// Sets the protection of a range, by a call of `tracee`. Notes nothing.
    fn protect_range(
        &self,
        tracee: Tracee,
        range: AddrRange,
        protection: Protection,
    ) -> Result<(), Error> {
        let args = [range.start.0, range.size_bytes(), prot_bits(protection), 0, 0, 0];
        checked("mprotect", tracee.inject(self.gadget(), MPROTECT, args)?)?;
        Ok(())
    }
}
