//! XSAVEC on a path, with the stores that complete it.

use super::super::saves::{Components, is_xsavec, saving_code};
use super::super::superblock::{Outcome, State};
use super::Builder;
use iced_x86::Instruction;

/// The maximum number of completed XSAVECs on a path: each takes some 800 bytes.
const MOST_SAVES: usize = 4;

impl Builder<'_, '_> {
    /// Translates an XSAVEC, whose bytes are at the start of `bytes`, with stores that complete it,
    /// so that its result follows from the program's state; the path goes on after it. Returns
    /// false, with nothing emitted, if `insn` is another instruction, if its mask is not known or
    /// `components` cannot complete its result ([`Components::saved`]), if it cannot be moved, or
    /// if the path has [`MOST_SAVES`].
    pub(super) fn translate_xsavec(
        &mut self,
        insn: &Instruction,
        bytes: &[u8],
        components: Components,
    ) -> bool {
        let saved = self.mask.value().filter(|_| is_xsavec(insn)).and_then(|m| components.saved(m));
        let Some(saved) = saved.filter(|_| self.saves < MOST_SAVES) else { return false };
        let Some(code) = saving_code(insn, &bytes[..insn.len()], saved) else { return false };
        self.note_pages(insn.len());
        self.ticks_next = false;
        self.begin_insn(insn);
        self.emitter.put(&code[..insn.len()]);
        let r11_in_slot = !self.r11_is_program;
        self.point(State { is_amid_stores: true, r11_in_slot, ..State::default() });
        self.emitter.put(&code[insn.len()..]);
        let next = insn.next_ip();
        self.push_step(next, Outcome::Plain);
        self.ip = next;
        self.saves += 1;
        true
    }
}
