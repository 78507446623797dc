//! The gate: a page with a SYSCALL instruction at a fixed address, for processes that filter their
//! system calls (seccomp(2)). The recorder extends each filter so that it allows all calls from the
//! gate, through which the tracer makes the process execute its own calls. fork(2) copies the page.
//! execve(2) removes it, so the filter also allows, from anywhere, the one call that maps an empty
//! page at the gate.

use super::error::{Error, checked, system};
use super::patch::Patch;
use crate::common::{Addr, AddrRange};
use crate::tracee::call_numbers::{MMAP, MUNMAP};
use crate::tracee::{Memory, Tracee};

/// The preferred address of the gate: away from the mappings that the kernel places, in a range
/// that `ThreadSanitizer` and `MemorySanitizer` leave to the program.
pub(super) const GATE_NEAR: u64 = 0x7e88_0000_0000;
pub(super) const PAGE_BYTES: u64 = 0x1000;
const SYSCALL_BYTES: u64 = 2;
/// The first word of the gate's page: SYSCALL, and INT3s.
const ENTRY: [u8; 8] = [0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
/// Offset in the page of the name that `memfd_create(2)` gets, for the shared memory.
const NAME: u64 = 16;
const READ_EXECUTE: u64 = 5;

/// The address of a process's gate, whether it is mapped or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate(pub(super) Addr);

impl Gate {
    /// Returns the address of the SYSCALL instruction.
    pub fn entry(self) -> Addr {
        self.0
    }

    /// Returns the address after the SYSCALL instruction, which the kernel reports for calls from
    /// the gate.
    pub fn after_entry(self) -> Addr {
        self.0.wrapping_add(SYSCALL_BYTES)
    }

    /// Returns the address of the name for the shared memory.
    pub(super) fn name(self) -> Addr {
        self.0.wrapping_add(NAME)
    }

    /// Returns the range of the gate's page.
    pub(super) fn page(self) -> AddrRange {
        AddrRange::sized(self.0, PAGE_BYTES)
    }

    /// Returns the call that maps an empty page at the gate: its number and its arguments.
    pub fn mmap_call(self) -> (u64, [u64; 6]) {
        const PRIVATE_ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        const FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
        let flags = PRIVATE_ANONYMOUS | FIXED_NOREPLACE;
        (MMAP, [self.0.0, PAGE_BYTES, READ_EXECUTE, flags, u64::MAX, 0])
    }

    /// Maps and fills the gate's page in a process after execve(2), whose only thread is stopped
    /// before its first instruction. Does nothing if the gate is there already. Fails if the
    /// program has something else there.
    pub fn make(self, tracee: Tracee, memory: &Memory) -> Result<(), Error> {
        if self.is_present(memory) {
            return Ok(());
        }
        let at = Addr(tracee.registers()?.rip);
        let text = Patch::syscall(memory, at)?;
        let (number, args) = self.mmap_call();
        let mapped = tracee.inject(at, number, args).map_err(Error::from);
        let mapped = mapped.and_then(|result| checked("mmap", result));
        text.restore(memory)?;
        mapped?;
        for (offset, word) in page_words() {
            let at = self.0.wrapping_add(offset);
            memory.write(at, &word.to_le_bytes()).map_err(|error| system("write", &error))?;
        }
        Ok(())
    }

    /// Returns true if the page at the gate has the gate's contents.
    fn is_present(self, memory: &Memory) -> bool {
        page_words().all(|(offset, word)| {
            let mut bytes = [0; 8];
            memory.read(self.0.wrapping_add(offset), &mut bytes) == 8 && bytes == word.to_le_bytes()
        })
    }

    /// Unmaps the gate of a process, by the gate's own SYSCALL instruction. Fails if it is not
    /// mapped.
    pub(super) fn unmap(self, tracee: Tracee) -> Result<(), Error> {
        let args = [self.0.0, PAGE_BYTES, 0, 0, 0, 0];
        checked("munmap", tracee.inject(self.0, MUNMAP, args)?)?;
        Ok(())
    }
}

/// Returns the contents of the gate's page: words, with their offsets.
pub(super) fn page_words() -> impl Iterator<Item = (u64, u64)> {
    let name: [u8; 16] = *b"contraflow\0\0\0\0\0\0";
    let (low, high) = name.split_at(8);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    [(0, word(&ENTRY)), (NAME, word(low)), (NAME + 8, word(high))].into_iter()
}
