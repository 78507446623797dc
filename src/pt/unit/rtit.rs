//! The PT facility of a logical processor: its registers, its PT unit, and its output.

use super::output::{LOWER_MASK, Output, Stored};
use super::registers::{PACKET_BYTE_COUNT, Register, check_ctl};
use super::{
    Capabilities, Config, GeneralProtection, Memory, OperationalError, RtitCtl, RtitStatus, Unit,
};
use crate::common::Addr;

/// The addresses of an instruction that accesses an `IA32_RTIT_*` register, and of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// The address of the instruction.
    pub ip: Addr,
    /// The address of the next instruction.
    pub next: Addr,
}

/// A logical processor's PT: the `IA32_RTIT_*` registers, the unit that they configure, and the
/// memory or transport that receives its output.
#[derive(Clone, Debug)]
pub struct Rtit {
    capabilities: Option<Capabilities>,
    unit: Unit,
    output: Output,
    error: Option<OperationalError>,
}

impl Rtit {
    /// Creates a processor after reset, with tracing off. `capabilities` is `None` for one without
    /// PT. Of `model`, only the packing (`tnt`, `deferred_tips`) and the ratios of the clocks are
    /// used: it reports no circles.
    #[must_use]
    pub fn new(capabilities: Option<Capabilities>, model: Config, memory: Memory) -> Self {
        let at_reset = Config { ctl: RtitCtl(0), ..Config::new(RtitCtl(0)) };
        let config = Config {
            tnt: model.tnt,
            deferred_tips: model.deferred_tips,
            crystal_ratio: model.crystal_ratio,
            core_bus_ratio: model.core_bus_ratio,
            ..at_reset
        };
        let output = Output { mask_ptrs: LOWER_MASK, memory, ..Output::default() };
        Self { capabilities, unit: Unit::new(config), output, error: None }
    }

    /// Executes RDMSR: returns the value of the register with the address `msr`. Fails if the
    /// processor does not have it.
    pub fn rdmsr(&self, msr: u32) -> Result<u64, GeneralProtection> {
        let config = self.unit.config();
        Ok(match Register::at(msr, self.capabilities.as_ref())? {
            Register::OutputBase => self.output.base,
            Register::OutputMaskPtrs => self.output.mask_ptrs,
            Register::Ctl => config.ctl.0,
            Register::Status => {
                let count = self.unit.packet_byte_count() << 32 & PACKET_BYTE_COUNT;
                self.unit.status().0 | count
            }
            Register::Cr3Match => config.cr3_match,
            Register::Addr(n, false) => config.ranges[n].first.0,
            Register::Addr(n, true) => config.ranges[n].last.0,
        })
    }

    /// Executes WRMSR: the instruction at `at` writes `value` to the register with the address
    /// `msr`. A change of `TraceEn` starts or ends tracing, with the packets of that. Fails, and
    /// changes nothing, if the processor rejects the write. If only the output registers are
    /// invalid, the write succeeds, but sets `Error`, and tracing does not start: see
    /// [`Self::operational_error`].
    pub fn wrmsr(&mut self, msr: u32, value: u64, at: At) -> Result<(), GeneralProtection> {
        let register = Register::at(msr, self.capabilities.as_ref())?;
        let Some(capabilities) = self.capabilities else {
            return Err(GeneralProtection::Unsupported(msr));
        };
        let old = self.unit.config().ctl;
        if register == Register::Ctl {
            check_ctl(old, RtitCtl(value), &capabilities)?;
            self.write_ctl(old, RtitCtl(value), at, &capabilities);
            return Ok(());
        }
        if old.has(RtitCtl::TRACE_EN) {
            return Err(GeneralProtection::TraceEnabled(msr));
        }
        register.check(value, &capabilities)?;
        self.write_register(register, value);
        Ok(())
    }

    /// Lets `event` call methods of the unit, and moves the packets that the unit writes to the
    /// output. Halts the unit if the output stops or fails. Returns the result of `event`. To turn
    /// tracing on or off, use [`Self::wrmsr`] instead, which also checks the output.
    pub fn execute<T>(&mut self, event: impl FnOnce(&mut Unit) -> T) -> T {
        let result = event(&mut self.unit);
        self.output_packets();
        result
    }

    /// Returns the unit, for inspection.
    #[must_use]
    pub const fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Returns the memory that receives the output.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.output.memory
    }

    /// Returns the memory that receives the output, for writing tables.
    pub const fn memory_mut(&mut self) -> &mut Memory {
        &mut self.output.memory
    }

    /// Returns all bytes sent to the trace transport subsystem so far.
    #[must_use]
    pub fn transport(&self) -> &[u8] {
        &self.output.transport
    }

    /// Returns the number of interrupts (`ToPA` PMI) that output raised.
    #[must_use]
    pub const fn topa_pmis(&self) -> u64 {
        self.output.topa_pmis
    }

    /// Returns the error that last set `IA32_RTIT_STATUS.Error`; `None` if there was none. A later
    /// write of the register does not clear it.
    #[must_use]
    pub const fn operational_error(&self) -> Option<OperationalError> {
        self.error
    }

    /// Writes a register other than `IA32_RTIT_CTL`, and drops buffered branch outcomes. The caller
    /// has checked `value`, and that `TraceEn` is clear.
    fn write_register(&mut self, register: Register, value: u64) {
        let mut config = *self.unit.config();
        match register {
            Register::OutputBase => self.output.base = value,
            Register::OutputMaskPtrs => self.output.mask_ptrs = value | LOWER_MASK,
            Register::Status => self.unit.restore_status(RtitStatus(value), value >> 32),
            Register::Cr3Match => config.cr3_match = value,
            Register::Addr(n, false) => config.ranges[n].first = Addr(value),
            Register::Addr(n, true) => config.ranges[n].last = Addr(value),
            Register::Ctl => {}
        }
        self.unit.configure(config);
    }

    /// Changes `IA32_RTIT_CTL` from `old` to `new`, which was checked: turns the unit off or on,
    /// and configures it. Does nothing if tracing stays on. If the output registers are invalid
    /// when tracing starts, sets `Error`, and tracing does not start.
    fn write_ctl(&mut self, old: RtitCtl, new: RtitCtl, at: At, capabilities: &Capabilities) {
        let was_on = old.has(RtitCtl::TRACE_EN);
        let on = new.has(RtitCtl::TRACE_EN);
        if was_on && !on {
            self.unit.disable(at.ip);
            self.output_packets();
        }
        if was_on && on {
            return;
        }
        self.unit.configure(Config { ctl: new.without(RtitCtl::TRACE_EN), ..*self.unit.config() });
        if on {
            if let Err(error) = self.output.check(new, capabilities) {
                self.fail(error);
            }
            self.unit.enable(at.next, self.unit.packet_byte_count());
            self.output_packets();
        }
    }

    /// Moves the bytes that the unit has written to the output. Halts the unit if output stops or
    /// fails.
    fn output_packets(&mut self) {
        let bytes = self.unit.drain();
        let Some(capabilities) = self.capabilities.filter(|_| !bytes.is_empty()) else { return };
        match self.output.store(self.unit.config().ctl, &capabilities, &bytes) {
            Ok(Stored::All) => {}
            Ok(Stored::Stopped) => self.unit.halt(RtitStatus::STOPPED),
            Err(error) => self.fail(error),
        }
    }

    /// Halts the unit with `Error`, and keeps the reason.
    fn fail(&mut self, error: OperationalError) {
        self.error = Some(error);
        self.unit.halt(RtitStatus::ERROR);
    }
}
