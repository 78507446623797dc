//! A thread that was killed in the midst of the glue: what it was about to do for its program is done
//! for it, so that its history and its state end between two instructions of the program's.

use super::exact::{Exact, Registers, STEPS_LIMIT};
use super::process::Process;
use super::thread::Thread;
use crate::capture::clock::now;
use crate::common::Addr;
use crate::tracee::Memory;
use crate::translate::{GlueMemory, GlueRegisters};

impl GlueMemory for Memory {
    fn read(&self, addr: u64, bytes: &mut [u8]) -> bool {
        Self::read(self, Addr(addr), bytes) == bytes.len()
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> bool {
        Self::write(self, Addr(addr), bytes).is_ok()
    }
}

impl Process {
    /// The program's state where a thread, which stands at its end, is or was just coming. None if
    /// it cannot be known.
    pub(super) fn exact_soon(&mut self, thread: &mut Thread, at: &Registers) -> Option<Exact> {
        let mut registers = *at;
        for _ in 0..STEPS_LIMIT {
            if let Some(exact) = self.exact_at(thread, &registers) {
                return Some(exact);
            }
            if !self.translator.in_cache(registers.rip) {
                return None;
            }
            let mut glue = GlueRegisters {
                rip: registers.rip,
                rsp: registers.rsp,
                rax: registers.rax,
                rcx: registers.rcx,
                rdx: registers.rdx,
                r11: registers.r11,
                gs_base: registers.gs_base,
            };
            if !glue.step(&self.memory, now().0) {
                if !thread.is_full_at(glue.r11) {
                    return None;
                }
                glue.r11 = self.carry_over(thread, glue.r11);
            }
            registers = Registers {
                rip: glue.rip,
                rsp: glue.rsp,
                rax: glue.rax,
                rcx: glue.rcx,
                rdx: glue.rdx,
                r11: glue.r11,
                ..registers
            };
        }
        None
    }
}
