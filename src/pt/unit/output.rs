//! Writes trace bytes to memory: single range, table of physical addresses, or trace transport (SDM
//! section "Trace Output"). Handles bytes, not packets: output may end inside a packet.

use super::topa::Topa;
use super::{Capabilities, Memory, RtitCtl};
use thiserror::Error;

/// The reason why output set `IA32_RTIT_STATUS.Error` (SDM section "Operational Errors").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum OperationalError {
    /// The ones of a single range's mask do not start at bit 0 or have a gap.
    #[error("output mask {0:#x} is not contiguous")]
    MaskNotContiguous(u64),
    /// A single range's base has bits in common with its mask.
    #[error("output base {0:#x} is not aligned to the mask")]
    BaseMisaligned(u64),
    /// The output offset is beyond the end of the range or region.
    #[error("output offset {0:#x} is outside the output region")]
    OffsetOutside(u64),
    /// The table's base is not 4 KiB-aligned.
    #[error("ToPA table base {0:#x} is not aligned to 4 KiB")]
    TableMisaligned(u64),
    /// Reserved bits are set in the entry at this address.
    #[error("ToPA entry at {0:#x} has reserved bits set")]
    ReservedBits(u64),
    /// The region of the entry at this address is not aligned to its size.
    #[error("ToPA entry at {0:#x} has a region that is not aligned to its size")]
    RegionMisaligned(u64),
    /// The entry at this address combines END with STOP or INT.
    #[error("ToPA entry at {0:#x} combines END with STOP or INT")]
    EndCombined(u64),
    /// The entry at this address is END, and the first one of a table.
    #[error("ToPA entry at {0:#x} is END in the first entry of a table")]
    EndFirst(u64),
    /// The processor supports one region only, and the next entry, at this address, is not an END
    /// that points back to it.
    #[error("ToPA entry at {0:#x} does not lead back to the only region")]
    NotCircular(u64),
    /// The table or the output reached restricted memory at this address.
    #[error("memory at {0:#x} is restricted")]
    Restricted(u64),
}

/// The result of storing trace bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// All bytes are stored, or dropped by restricted memory.
    All,
    /// A region with STOP is full; the remaining bytes are lost.
    Stopped,
}

/// `IA32_RTIT_OUTPUT_BASE` and `IA32_RTIT_OUTPUT_MASK_PTRS`, and the memory that they point to.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    /// `IA32_RTIT_OUTPUT_BASE`.
    pub(super) base: u64,
    /// `IA32_RTIT_OUTPUT_MASK_PTRS`. High half: `OutputOffset`. Low half, with bits 6 to 0 always
    /// ones: the mask of a single range, or in bits 31 to 7 the index of the entry in a table
    /// (`MaskOrTableOffset`).
    pub(super) mask_ptrs: u64,
    pub(super) memory: Memory,
    /// All bytes sent to the trace transport subsystem.
    pub(super) transport: Vec<u8>,
    /// The number of interrupts that full regions raised.
    pub(super) topa_pmis: u64,
}

/// The low 7 bits of `IA32_RTIT_OUTPUT_MASK_PTRS`, which are always ones.
pub(super) const LOWER_MASK: u64 = 0x7f;

impl Output {
    /// Checks the output registers when tracing starts, before the first byte. For a table, checks
    /// the entry in use, and moves to the next table if that entry is END. For trace transport,
    /// checks nothing.
    pub(super) fn check(
        &mut self,
        ctl: RtitCtl,
        capabilities: &Capabilities,
    ) -> Result<(), OperationalError> {
        match ctl {
            _ if ctl.has(RtitCtl::FABRIC_EN) => Ok(()),
            _ if ctl.has(RtitCtl::TOPA) => self.topa(capabilities).resolve(),
            _ => self.check_range(),
        }
    }

    /// Stores `bytes` where `ctl` selects, and advances the output registers. Where output stops or
    /// fails, the bytes before that stay stored, and the remaining ones are lost.
    pub(super) fn store(
        &mut self,
        ctl: RtitCtl,
        capabilities: &Capabilities,
        bytes: &[u8],
    ) -> Result<Stored, OperationalError> {
        if ctl.has(RtitCtl::FABRIC_EN) {
            self.transport.extend_from_slice(bytes);
            return Ok(Stored::All);
        }
        if ctl.has(RtitCtl::TOPA) {
            return self.topa(capabilities).store(bytes);
        }
        self.store_in_range(bytes)
    }

    /// Returns the registers as a position in a table.
    fn topa<'a>(&'a mut self, capabilities: &'a Capabilities) -> Topa<'a> {
        Topa { output: self, capabilities }
    }

    /// Returns `OutputOffset`, bits 63 to 32 of `mask_ptrs`: the offset in the range or region.
    pub(super) const fn offset(&self) -> u64 {
        self.mask_ptrs >> 32
    }

    /// Sets `OutputOffset`, which must be below 2^32.
    pub(super) fn set_offset(&mut self, offset: u64) {
        self.mask_ptrs = self.mask() | offset << 32;
    }

    /// Returns `MaskOrTableOffset` with the bits below it: the low half of `mask_ptrs`.
    const fn mask(&self) -> u64 {
        self.mask_ptrs & 0xffff_ffff
    }

    /// Returns the index of the entry in use in the current table: the table offset divided by 8.
    pub(super) const fn table_index(&self) -> u64 {
        self.mask() >> 7
    }

    /// Sets the index of the entry in use, of which the register holds 25 bits.
    pub(super) fn set_table_index(&mut self, index: u64) {
        let low = (index << 7 | LOWER_MASK) & 0xffff_ffff;
        self.mask_ptrs = self.mask_ptrs & !0xffff_ffff | low;
    }

    /// Checks the registers as those of a single range.
    fn check_range(&self) -> Result<(), OperationalError> {
        let mask = self.mask();
        if mask & (mask + 1) != 0 {
            return Err(OperationalError::MaskNotContiguous(mask));
        }
        if self.base & mask != 0 {
            return Err(OperationalError::BaseMisaligned(self.base));
        }
        if self.offset() > mask {
            return Err(OperationalError::OffsetOutside(self.offset()));
        }
        Ok(())
    }

    /// Stores to the range, which is circular: after its end, output continues at its base, so it
    /// never stops. Fails at restricted memory as [`Self::write_memory`] does.
    fn store_in_range(&mut self, mut bytes: &[u8]) -> Result<Stored, OperationalError> {
        while !bytes.is_empty() {
            let room = self.mask() + 1 - self.offset();
            let (now, rest) = split(bytes, room);
            self.write_memory(self.base + self.offset(), now)?;
            self.set_offset((self.offset() + now.len() as u64) & self.mask());
            bytes = rest;
        }
        Ok(Stored::All)
    }

    /// Writes `bytes` at `address`; the caller advances the offset. Fails at restricted memory,
    /// after writing the bytes before it and advancing the offset to there. Succeeds with
    /// [`OnRestricted::Drop`](super::OnRestricted::Drop), which loses the bytes for it.
    pub(super) fn write_memory(
        &mut self,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), OperationalError> {
        let size_bytes = bytes.len() as u64;
        let writable_bytes = self.memory.writable_bytes(address, size_bytes);
        let (now, _) = split(bytes, writable_bytes);
        self.memory.write(address, now);
        if writable_bytes < size_bytes {
            self.set_offset(self.offset() + writable_bytes);
            return Err(OperationalError::Restricted(address + writable_bytes));
        }
        Ok(())
    }
}

/// Splits `bytes` at offset `at`, or at their end if they are shorter.
pub(super) fn split(bytes: &[u8], at: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len())))
}
