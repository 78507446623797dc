//! The execution mode of a CPU.

/// CS.L and CS.D, as a MODE.Exec packet reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecMode {
    /// 16-bit code: CS.L = 0, CS.D = 0.
    Bits16,
    /// 32-bit code: CS.L = 0, CS.D = 1.
    Bits32,
    /// 64-bit code: CS.L = 1.
    Bits64,
}
