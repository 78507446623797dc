//! XSAVEC of programs, whose result is made to follow from the program's state
//! ([`crate::translate::SavedState`]). XSAVEC leaves out components in their initial state; to
//! complete an XSAVEC is to write these, too. A completed XSAVEC has no hook, as its result is then
//! known. It is executed by translated code or, where that cannot be, in a step of the thread.

use super::error::Error;
use super::process::TranslatedProcess;
use super::runs::Stepped;
use super::thread::TranslatedThread;
use crate::common::{Addr, AddrRange};
use crate::insn::{Registers, writes};
use crate::translate::{Components, Hook, SavedState, hook_of};

const PAGE_BYTES: usize = 0x1000;
const LOW_HALF: u64 = u32::MAX as u64;

impl TranslatedProcess {
    /// Completes each XSAVEC that saves SSE and at most AVX and AVX-512 state, from now on, as on a
    /// processor with the components of `program`; none if that is `None`. `host` are those of this
    /// processor: if they differ, translated code completes none, and each XSAVEC is executed in a
    /// step. To be called before any code is translated.
    pub fn complete_saves(&mut self, program: Option<Components>, host: Option<Components>) {
        self.saves = program;
        if let Some(components) = program.filter(|_| program == host) {
            self.translator.complete_saves(components);
        }
    }

    /// Returns the hook of the instruction that a thread with these registers is at, if it has one.
    /// A completed XSAVEC has none.
    pub fn hook_at(&self, registers: &Registers) -> Option<Hook> {
        let code = self.code_at(Addr(registers.rip));
        hook_of(&code).filter(|_| self.completed_save(registers, &code).is_none())
    }

    /// Returns true if a thread with these registers is at an XSAVEC that is completed.
    pub(super) fn is_completed(&self, registers: &Registers) -> bool {
        self.completed_save(registers, &self.code_at(Addr(registers.rip))).is_some()
    }

    /// Returns the state that the instruction with these bytes saves, if it is an XSAVEC without
    /// hook.
    pub(super) fn completed_save(&self, registers: &Registers, code: &[u8]) -> Option<SavedState> {
        // EDX and EAX select the components.
        let mask = registers.rdx << 32 | registers.rax & LOW_HALF;
        self.saves?.saved_by(code, mask)
    }

    /// Executes an XSAVEC without hook in a step of the thread, and completes it if the step was
    /// done. `begun` are the thread's registers, `code` the instruction's bytes, `saved` the state
    /// that it saves.
    pub(super) fn step_save(
        &mut self,
        thread: &mut TranslatedThread,
        begun: &Registers,
        code: &[u8],
        saved: SavedState,
    ) -> Result<Stepped, Error> {
        let tracee = thread.tracee;
        // This processor may have more components than the program sees.
        let narrow = Registers { rax: saved.components(), rdx: 0, ..*begun };
        tracee.set_registers(&narrow)?;
        let stepped = self.step_instruction(thread, &narrow, code)?;
        if matches!(stepped, Stepped::Other(stop) if stop.is_end()) {
            return Ok(stepped);
        }
        let after = tracee.registers()?;
        tracee.set_registers(&Registers { rax: begun.rax, rdx: begun.rdx, ..after })?;
        if matches!(stepped, Stepped::Done) {
            self.complete(thread, &writes(code, begun, begun), saved)?;
        }
        Ok(stepped)
    }

    /// Completes the area of an XSAVEC, which wrote to these ranges. Does nothing if the area
    /// cannot be read.
    fn complete(
        &mut self,
        thread: &TranslatedThread,
        written: &[AddrRange],
        saved: SavedState,
    ) -> Result<(), Error> {
        let Some(at) = written.first().map(|range| range.start) else { return Ok(()) };
        let mut area = vec![0; saved.size_bytes()];
        if self.memory.read(at, &mut area) != area.len() {
            return Ok(());
        }
        // Pages to which the processor wrote nothing did not fault, and may still be closed: opens
        // them.
        for offset in (0..area.len()).step_by(PAGE_BYTES).chain([area.len() - 1]) {
            let addr = at.wrapping_add(offset as u64);
            if self.space.foreign.faults_at(addr) {
                self.open_foreign_at(thread.tracee, addr)?;
            } else if self.space.is_masked(addr.page().0) {
                self.open_for_write(thread.tracee, addr)?;
            }
        }
        saved.complete(&mut area);
        // This fails only if the process has ended: the memory was read above.
        let _ = self.memory.write(at, &area);
        Ok(())
    }
}
