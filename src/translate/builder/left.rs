//! Instructions that are not translated: they are left to the caller, or to code that all
//! superblocks share. A path ends before one. If it is the first of the path, it is the whole
//! superblock, which is *native* if a thread can stop in it (`Superblock::native`).

use super::super::glance::emit_glance;
use super::super::hook::Hook;
use super::super::logged::CallHandling;
use super::super::superblock::State;
use super::Builder;
use iced_x86::Instruction;

impl Builder<'_, '_> {
    /// Ends the path before an instruction that is not translated. If it is the first one, it
    /// becomes the whole superblock: code of the cache logs or answers it, or the thread stops
    /// there for its tracer to execute it. Returns true if the superblock is native.
    pub(super) fn end_before_hook(&mut self, insn: &Instruction, hook: Option<Hook>) -> bool {
        self.hook = hook.filter(|_| self.path.is_empty());
        if self.is_logged_call(insn) {
            self.emit_logged_call(insn.next_ip())
        } else if self.counter_code(insn) != 0 {
            self.emit_logged_counter(insn)
        } else {
            self.end_native()
        }
    }

    /// Returns the hook of an instruction; `None` if it has none, or if the code executes such
    /// instructions itself ([`super::Site::leaves_hooks`]).
    pub(super) fn hook_of(&self, insn: &Instruction) -> Option<Hook> {
        Hook::of(insn).filter(|_| self.site.leaves_hooks)
    }

    /// Emits a stop at the start of a path of a replay, before which the thread shows its registers
    /// (a *glance*). It does not stop, and goes on with the path, if its tracer answers that with
    /// `GlanceAnswer::Pass`. Of `handling`, only `has_fs_base` matters.
    pub(super) fn emit_glancing_stop(&mut self, handling: CallHandling) {
        self.exact_point();
        let passes = emit_glance(&mut self.emitter, handling, self.start);
        let r11_in_slot = !self.r11_is_program;
        self.point(State { exact: true, r11_in_slot, stops: true, ..State::default() });
        self.emitter.put(&[0xcc]);
        self.emitter.aim_here(passes);
    }

    /// Ends the path before an untranslatable instruction. If it is the first one, it becomes the
    /// whole superblock, an INT3 at which the thread stops. Returns true if the superblock is
    /// native: in that case.
    pub(super) fn end_native(&mut self) -> bool {
        if !self.path.is_empty() {
            self.end_at(self.ip);
            return false;
        }
        self.exact_point();
        self.emitter.put(&[0xcc]);
        true
    }

    /// Ends the path before an instruction that cannot be translated at this address. If it is the
    /// first one, it becomes a native superblock; else an edge leads to it. The caller has removed
    /// its point. Returns true in any case: the path ends.
    pub(super) fn end_untranslatable(&mut self) -> bool {
        if self.path.is_empty() {
            // At most the exchange of R11 has been emitted.
            if self.r11_is_program {
                self.emitter.load_trace_pointer();
                self.r11_is_program = false;
            }
            self.end_native();
            return true;
        }
        self.end_at(self.ip);
        true
    }
}
