//! Budgets of runs in code that counts *ticks* ([`crate::translate::is_tick`]): the number of ticks
//! that a thread may still execute.
//! R11 holds it as an address in memory with a byte for each tick that is left. All threads of a
//! process use the same memory: nothing reads it.
//!
//! Each exit of a superblock subtracts its ticks from R11 and stores a byte there: the *check*. It
//! faults if the budget is spent, since R11 is then in the page before that memory. To leave the
//! cache, the thread makes a *request*, for the code that it would execute next.

use super::error::Error;
use super::process::TranslatedProcess;
use super::runs::Running;
use super::shared::Shared;
use super::thread::TranslatedThread;
use crate::common::{Addr, AddrRange};
use crate::insn::Registers;
use crate::translate::{CHECK_BYTES, LARGEST_BUDGET, Translator, slots};
use std::sync::Arc;

impl TranslatedProcess {
    /// Returns true if the memory of budgets is mapped: the code counts ticks.
    fn has_budgets(&self) -> bool {
        self.window.budget_guard != AddrRange::default()
    }

    /// Returns the value of R11 for a budget, which is limited to [`LARGEST_BUDGET`].
    pub(super) fn r11_for_budget(&self, budget: u64) -> u64 {
        self.window.budget_guard.end.0 + budget.min(LARGEST_BUDGET)
    }

    /// Returns the budget that is left at a value of R11; if it is spent, a negative number, which
    /// is more than [`LARGEST_BUDGET`] as an unsigned one.
    pub(super) fn budget_of_r11(&self, r11: u64) -> u64 {
        r11.wrapping_sub(self.r11_for_budget(0))
    }

    /// Returns true if a value of R11 shows that a budget is spent.
    pub(super) fn is_spent(&self, r11: u64) -> bool {
        self.budget_of_r11(r11) > LARGEST_BUDGET
    }

    /// Returns the ticks that a run has executed when R11 has this value, since the place from
    /// which `running` counts.
    pub(super) fn ticks_run(&self, running: &Running, r11: u64) -> u64 {
        running.budget.wrapping_sub(self.budget_of_r11(r11))
    }

    /// Returns true if a thread has faulted at `addr` because its budget is spent: it is at a
    /// check, and the address is in the page before the memory of budgets.
    pub(super) fn faults_for_budget(
        &self,
        thread: &TranslatedThread,
        addr: Addr,
    ) -> Result<bool, Error> {
        Ok(self.window.budget_guard.contains(addr)
            && self.request_at_check(&thread.tracee.registers()?).is_some())
    }

    /// Stores the request of a thread that is at the check of a spent budget in the thread's slots,
    /// as the cache's code does for other requests. Returns false, and stores nothing, if the
    /// thread is elsewhere or its budget is not spent.
    pub(super) fn store_spent_request(
        &self,
        thread: &TranslatedThread,
        registers: &Registers,
    ) -> bool {
        let Some(request) = self.request_at_check(registers) else { return false };
        let store = |slot, value| self.window.shared.store(thread.area.slot(slot), value);
        // RCX and RDX, which holds the target, are in their slots at an indirect exit; at a direct
        // one RCX is not yet.
        if request == slots::INDIRECT {
            store(slots::TARGET, registers.rdx);
        } else {
            store(slots::RCX, registers.rcx);
        }
        store(slots::COUNTER, registers.r11);
        store(slots::REQUEST, request);
        true
    }

    /// Returns the number of the request ([`slots::REQUEST`]) that a thread with these registers
    /// has to make; `None` if it is not at the check of a budget, or the budget is not spent.
    fn request_at_check(&self, registers: &Registers) -> Option<u64> {
        let is_in_glue = |rip| self.translator.locate(rip).is_some_and(|at| !at.exact);
        if !self.has_budgets() || !self.is_spent(registers.r11) || !is_in_glue(registers.rip) {
            return None;
        }
        let mut code = [0; CHECK_BYTES];
        let known = self.memory.read(Addr(registers.rip), &mut code);
        Translator::<Arc<Shared>>::request_of_spent(&code[..known])
    }
}
