//! The processor state that selects the generated packets, and its changes by the next far transfer
//! or interrupt.

use super::{Config, RtitCtl};
use crate::common::Addr;
use crate::insn::ExecMode;

/// CR3 and VMX operation, as PIP packets report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Paging {
    /// CR3.
    pub cr3: u64,
    /// NR: VMX non-root operation that is not concealed from the trace.
    pub non_root: bool,
}

/// The processor's current state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// The next instruction's address.
    pub(super) ip: Addr,
    /// The current privilege level, 0 to 3.
    pub(super) cpl: u8,
    pub(super) mode: Mode,
    pub(super) paging: Paging,
    /// The physical address of the current VMCS; `None` outside VMX operation.
    pub(super) vmcs: Option<u64>,
    /// True in a transaction.
    pub(super) in_tx: bool,
    /// True in an enclave that is not a debug enclave.
    pub(super) in_enclave: bool,
}

/// The state that MODE.Exec reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) width: ExecMode,
    /// RFLAGS.IF.
    pub(super) interrupts: bool,
}

/// Changes that take effect with the next far transfer or interrupt; `None` for no change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Staged {
    pub(super) mode: Option<Mode>,
    pub(super) paging: Option<Paging>,
    pub(super) in_enclave: Option<bool>,
}

impl Context {
    /// Creates the state before the first event: CPL 0, 64-bit code at address 0, CR3 of 0.
    pub(super) const fn new() -> Self {
        Self {
            ip: Addr(0),
            cpl: 0,
            mode: Mode { width: ExecMode::Bits64, interrupts: false },
            paging: Paging { cr3: 0, non_root: false },
            vmcs: None,
            in_tx: false,
            in_enclave: false,
        }
    }

    /// Applies the staged changes, of those that are set.
    pub(super) fn apply(&mut self, staged: Staged) {
        self.mode = staged.mode.unwrap_or(self.mode);
        self.paging = staged.paging.unwrap_or(self.paging);
        self.in_enclave = staged.in_enclave.unwrap_or(self.in_enclave);
    }

    /// Returns true if privilege level, CR3 and enclave mode allow tracing: `ContextEn` (SDM
    /// section "Context Enable (`ContextEn`)"). False in an enclave that is not a debug enclave.
    pub(super) fn is_traced(&self, config: &Config) -> bool {
        let ctl = config.ctl;
        let level = if self.cpl == 0 { RtitCtl::OS } else { RtitCtl::USER };
        // The low five bits are not part of CR3's address.
        let matches = (self.paging.cr3 ^ config.cr3_match) >> 5 == 0;
        ctl.has(level) && !self.in_enclave && (matches || !ctl.has(RtitCtl::CR3_FILTER))
    }
}
