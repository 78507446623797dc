//! Bytes of a program that are overwritten for a moment, while it is stopped.

use super::error::{Error, system};
use crate::common::Addr;
use crate::tracee::{self, Memory};
use nix::errno::Errno;

const SYSCALL_INSN: [u8; 2] = [0x0f, 0x05];

/// The former bytes of a place in a program that was overwritten. They must be restored before the
/// program goes on.
#[derive(Debug)]
#[must_use]
pub struct Patch {
    /// The address of the first overwritten byte.
    at: Addr,
    old: Vec<u8>,
}

impl Patch {
    /// Overwrites the bytes at `at` with a SYSCALL instruction, even where the program cannot
    /// write, and returns the former ones. Fails if they cannot be read or written.
    pub fn syscall(memory: &Memory, at: Addr) -> Result<Self, Error> {
        Self::write(memory, at, &SYSCALL_INSN)
    }

    /// Overwrites the bytes at `at` with `bytes`, and returns the former ones. Fails if they cannot
    /// be read or written.
    pub(super) fn write(memory: &Memory, at: Addr, bytes: &[u8]) -> Result<Self, Error> {
        let mut old = vec![0; bytes.len()];
        if memory.read(at, &mut old) < old.len() {
            return Err(tracee::Error::System { call: "read", errno: Errno::EFAULT }.into());
        }
        memory.write(at, bytes).map_err(|error| system("write", &error))?;
        Ok(Self { at, old })
    }

    /// Writes the program's own bytes back. If that fails, they are lost.
    pub fn restore(self, memory: &Memory) -> Result<(), Error> {
        Ok(memory.write(self.at, &self.old).map_err(|error| system("write", &error))?)
    }
}
