//! Copies of a translated process, made by fork. They share the code cache, so only one of them may
//! run at a time: [`TranslatedProcess::switch_to_copy`] switches from one to another. The cache is
//! mapped in *zones*. A copy has those that its original had when it was made.

use super::address_space::AddressSpace;
use super::error::Error;
use super::process::TranslatedProcess;
use crate::common::{Addr, AddrRange, Pid};
use crate::sideband::Mapping;
use crate::tracee::{Memory, Tracee};

const PAGE_BYTES: usize = 4096;

/// The state of a copy of the process when it was made: its mappings, and the number of zones of
/// the code cache that it has.
#[derive(Clone, Debug)]
pub struct CopyState {
    space: AddressSpace,
    zones: usize,
}

impl TranslatedProcess {
    /// Returns the state of a copy of the process that is made now. Makes no copy.
    pub fn copy_state(&self) -> CopyState {
        CopyState { space: self.space.clone(), zones: self.window.zone_count() }
    }

    /// Uses the copy `pid` of the process, whose only thread, `tracee`, is stopped in the program,
    /// from now on: all other methods act on it. `copied` is its state when it was made, which it
    /// still has. Maps the zones that it lacks, drops translations of code that differs in it, and
    /// write-protects other code that can change. Forgets the mappings of the process that was used
    /// before: to return to it, take its [`Self::copy_state`] first.
    pub fn switch_to_copy(
        &mut self,
        tracee: Tracee,
        pid: Pid,
        copied: &CopyState,
    ) -> Result<(), Error> {
        self.pid = pid;
        self.memory = Memory::open(pid)?;
        let gadget = self.gadget();
        self.window.switch_to_copy(tracee, pid, gadget, copied.zones)?;
        let former = std::mem::replace(&mut self.space, copied.space.clone());
        // Ranges are only added, so the copy's are the first of these.
        let hidden = former.hidden().iter().skip(self.space.hidden().len());
        hidden.for_each(|range| self.space.hide(*range));
        for range in differing_code(&former, &self.space) {
            self.forget_code(range);
        }
        for page in self.pages.changing_addresses() {
            let is_same = !self.pages.is_overwritten(page, &self.memory);
            if !is_same || !self.space.is_executable(Addr(page)) {
                self.forget_code(AddrRange::sized(Addr(page), PAGE_BYTES as u64));
                self.pages.forget_changing(page);
            } else if !self.space.is_stable(Addr(page)) {
                self.write_protect(tracee, &[page])?;
            }
        }
        Ok(())
    }
}

/// Returns the ranges of the executable mappings that only one of two address spaces has.
fn differing_code(before: &AddressSpace, now: &AddressSpace) -> Vec<AddrRange> {
    let code = |space: &AddressSpace| -> Vec<Mapping> {
        space.mappings().filter(|mapping| mapping.protection.execute).cloned().collect()
    };
    let (before, now) = (code(before), code(now));
    let gone = before.iter().filter(|mapping| !now.contains(mapping));
    let new = now.iter().filter(|mapping| !before.contains(mapping));
    gone.chain(new).map(|mapping| mapping.range).collect()
}
