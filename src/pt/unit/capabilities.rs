//! The capabilities of a processor's PT unit, from CPUID leaf 14H (SDM table "CPUID Leaf 14H
//! Enumeration of Intel Processor Trace Capabilities").

/// A capability with a bit in CPUID leaf 14H, sub-leaf 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// EBX bit 0: CR3 filtering.
    Cr3Filtering,
    /// EBX bit 1: configurable PSB frequency and cycle-accurate mode.
    PsbAndCyc,
    /// EBX bit 2: IP filtering and `TraceStop`.
    IpFiltering,
    /// EBX bit 3: MTC packets.
    Mtc,
    /// EBX bit 4: PTWRITE.
    PtWrite,
    /// EBX bit 5: power event trace.
    PowerEvents,
    /// EBX bit 7: event trace.
    EventTrace,
    /// ECX bit 0: output to tables of physical addresses.
    Topa,
    /// ECX bit 1: tables with more than one output region.
    TopaMultiple,
    /// ECX bit 2: output to a single range.
    SingleRange,
    /// ECX bit 3: output to the trace transport subsystem.
    Transport,
}

/// The values of CPUID leaf 14H, and of a related leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Sub-leaf 0, EBX.
    pub ebx: u32,
    /// Sub-leaf 0, ECX.
    pub ecx: u32,
    /// Sub-leaf 1, EAX: number of address ranges and MTC periods.
    pub sub_leaf_1_eax: u32,
    /// Sub-leaf 1, EBX: cycle thresholds and PSB frequencies.
    pub sub_leaf_1_ebx: u32,
    /// MAXPHYADDR, CPUID.80000008H:EAX bits 7 to 0, up to 52.
    pub physical_address_bits: u8,
}

impl Capabilities {
    /// Every capability that this model supports.
    pub const ALL: Self = Self {
        ebx: 0xbf,
        ecx: 0xf,
        sub_leaf_1_eax: 0xffff_0004,
        sub_leaf_1_ebx: 0xffff_ffff,
        physical_address_bits: 46,
    };

    /// The first processors with PT: CR3 filtering, and output to one region of a table.
    pub const FIRST: Self =
        Self { ebx: 1, ecx: 1, sub_leaf_1_eax: 0, sub_leaf_1_ebx: 0, physical_address_bits: 39 };

    /// Returns true if the processor has `capability`.
    #[must_use]
    pub const fn has(&self, capability: Capability) -> bool {
        let (register, bit) = match capability {
            Capability::Cr3Filtering => (self.ebx, 0),
            Capability::PsbAndCyc => (self.ebx, 1),
            Capability::IpFiltering => (self.ebx, 2),
            Capability::Mtc => (self.ebx, 3),
            Capability::PtWrite => (self.ebx, 4),
            Capability::PowerEvents => (self.ebx, 5),
            Capability::EventTrace => (self.ebx, 7),
            Capability::Topa => (self.ecx, 0),
            Capability::TopaMultiple => (self.ecx, 1),
            Capability::SingleRange => (self.ecx, 2),
            Capability::Transport => (self.ecx, 3),
        };
        register >> bit & 1 != 0
    }

    /// Returns true if the processor supports output to memory: to a table or to a single range.
    #[must_use]
    pub const fn has_memory_output(&self) -> bool {
        self.has(Capability::Topa) || self.has(Capability::SingleRange)
    }

    /// Returns the number of address ranges, at most 4; 0 without IP filtering.
    #[must_use]
    pub const fn address_ranges(&self) -> usize {
        let count = (self.sub_leaf_1_eax & 7) as usize;
        match (self.has(Capability::IpFiltering), count) {
            (false, _) => 0,
            (true, 0..=4) => count,
            (true, _) => 4,
        }
    }

    /// Returns true if the processor accepts `freq`, below 16, as `MTCFreq`: without MTC, only 0.
    #[must_use]
    pub const fn accepts_mtc_freq(&self, freq: u8) -> bool {
        freq == 0 && !self.has(Capability::Mtc)
            || self.has(Capability::Mtc) && self.sub_leaf_1_eax >> 16 >> (freq & 15) & 1 != 0
    }

    /// Returns true if the processor accepts `threshold`, below 16, as `CycThresh`: without
    /// configurable PSB and CYC, only 0.
    #[must_use]
    pub const fn accepts_cyc_thresh(&self, threshold: u8) -> bool {
        let supported = self.sub_leaf_1_ebx & 0xffff;
        self.accepts(supported, threshold)
    }

    /// Returns true if the processor accepts `freq`, below 16, as `PSBFreq`: without configurable
    /// PSB and CYC, only 0.
    #[must_use]
    pub const fn accepts_psb_freq(&self, freq: u8) -> bool {
        self.accepts(self.sub_leaf_1_ebx >> 16, freq)
    }

    /// Returns true if bit `encoding` of `supported` is set; without configurable PSB and CYC, if
    /// `encoding` is 0.
    const fn accepts(&self, supported: u32, encoding: u8) -> bool {
        if self.has(Capability::PsbAndCyc) {
            supported >> (encoding & 15) & 1 != 0
        } else {
            encoding == 0
        }
    }

    /// Returns a mask of the bits above the processor's physical addresses.
    pub(super) const fn reserved_address_bits(&self) -> u64 {
        // No processor has more than 52, whatever the field holds.
        let bits = if self.physical_address_bits < 52 { self.physical_address_bits } else { 52 };
        u64::MAX << bits
    }
}
