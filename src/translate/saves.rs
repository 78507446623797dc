//! XSAVEC with a result that follows from the program's registers and memory alone.
//!
//! XSAVEC omits state components that are in their initial configuration, and the processor decides
//! which those are: an interrupt can change it (SDM volume 1, "Processor Tracking of XSAVE-Managed
//! State"). But the processor may also save all requested components. So stores complete each
//! XSAVEC to that result: code after it in the cache, or [`SavedState::complete`] after a step. The
//! x87 component has the address of the last x87 instruction, which would be one in the cache:
//! instructions that save it keep their hook.

use crate::insn::xsave::{AVX, EXTENDED, HI16_ZMM, MASKS, SSE, XCR0, XMM, XSTATE_BV, ZMM_HI256};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Mnemonic, OpKind, Register};
use std::ops::Range;

/// The components of MPX (bound registers), which no kernel enables any more.
const MPX: u64 = 3 << 3;

/// The components after the header, in their order, with their sizes in bytes. None of them asks
/// for alignment in the compacted format (CPUID leaf 0DH, ECX bit 1).
const COMPACTED: [(u64, usize); 4] =
    [(AVX, 16 * 16), (MASKS, 8 * 8), (ZMM_HI256, 16 * 32), (HI16_ZMM, 16 * 64)];
const SAVED: u64 = SSE | AVX | MASKS | ZMM_HI256 | HI16_ZMM;

/// Offsets in an area (SDM volume 1, "Legacy Region of an XSAVE Area", "XSAVE Header").
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const XCOMP_BV: usize = 520;
const COMPACTED_FORMAT: u64 = 1 << 63;
const INITIAL_MXCSR: u32 = 0x1f80;

/// The state components that a processor has enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components {
    /// XCR0.
    enabled: u64,
    mxcsr_mask: u32,
}

/// The components that one XSAVEC saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedState {
    components: u64,
    mxcsr_mask: u32,
}

impl Components {
    /// Reads the enabled components from a thread's XSAVE area, as the kernel returns it
    /// (`NT_X86_XSTATE`). `None` if XSAVEC must keep its hook: the area is cut, without SSE or with
    /// MPX.
    pub fn of(area: &[u8]) -> Option<Self> {
        let enabled = u64::from_le_bytes(*area.get(XCR0..)?.first_chunk()?);
        let mxcsr_mask = u32::from_le_bytes(*area.get(MXCSR_MASK..)?.first_chunk()?);
        (enabled & SSE != 0 && enabled & MPX == 0).then_some(Self { enabled, mxcsr_mask })
    }

    /// Returns the components that an XSAVEC saves with this mask in EDX and EAX. `None` if it
    /// keeps its hook: it does not save the SSE component, or saves others than those of vectors
    /// and masks.
    pub fn saved(self, mask: u64) -> Option<SavedState> {
        let components = mask & self.enabled;
        let is_known = components & !SAVED == 0 && components & SSE != 0;
        is_known.then_some(SavedState { components, mxcsr_mask: self.mxcsr_mask })
    }

    /// Returns the components that the instruction that `bytes` begin with saves with this mask.
    /// `None` if it is no XSAVEC, or the bytes do not decode, and where [`Self::saved`] returns
    /// `None`.
    pub fn saved_by(self, bytes: &[u8], mask: u64) -> Option<SavedState> {
        let (insn, _) = super::insn::decode(bytes, 0)?;
        if is_xsavec(&insn) { self.saved(mask) } else { None }
    }
}

impl SavedState {
    /// Returns the saved components as bits of XCR0.
    pub fn components(self) -> u64 {
        self.components
    }

    /// Returns the size in bytes of the XSAVE area that the XSAVEC writes.
    pub fn size_bytes(self) -> usize {
        self.parts().map(|(_, range)| range.end).max().unwrap_or(EXTENDED)
    }

    /// Returns the saved components after the header, with their byte ranges in the area.
    fn parts(self) -> impl Iterator<Item = (u64, Range<usize>)> {
        let mut end = EXTENDED;
        COMPACTED.into_iter().filter(move |(component, _)| self.components & component != 0).map(
            move |(component, size)| {
                let at = end;
                end += size;
                (component, at..end)
            },
        )
    }

    /// Returns the offset in the area of a component after the header; `None` if it is not saved.
    fn place(self, component: u64) -> Option<usize> {
        self.parts().find(|(other, _)| *other == component).map(|(_, range)| range.start)
    }

    /// Writes the initial configuration of the components that an XSAVEC has omitted to its area,
    /// and marks them as saved in the header. Also writes the mask of MXCSR. Does nothing if the
    /// area ends before the header, and skips a component that does not fit into it.
    pub fn complete(self, area: &mut [u8]) {
        let word = |area: &[u8]| area.get(XSTATE_BV..).and_then(<[u8]>::first_chunk).copied();
        let Some(in_use) = word(area).map(u64::from_le_bytes) else { return };
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = area.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        if in_use & SSE == 0 {
            put(MXCSR, &INITIAL_MXCSR.to_le_bytes());
            put(XMM, &[0; 16 * 16]);
        }
        for (_, range) in self.parts().filter(|(component, _)| in_use & component == 0) {
            put(range.start, &vec![0; range.len()]);
        }
        put(MXCSR_MASK, &self.mxcsr_mask.to_le_bytes());
        put(XSTATE_BV, &self.components.to_le_bytes());
        put(XCOMP_BV, &(self.components | COMPACTED_FORMAT).to_le_bytes());
    }
}

/// Returns true for XSAVEC and XSAVEC64.
pub(super) fn is_xsavec(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Xsavec | Mnemonic::Xsavec64)
}

/// Returns true if other instructions, at other addresses, can use the operand of an XSAVEC: it has
/// no segment prefix, 64-bit registers only, and is not relative to RIP.
fn can_be_copied(insn: &Instruction) -> bool {
    let is_wide = |register: Register| register == Register::None || register.is_gpr64();
    insn.segment_prefix() == Register::None
        && is_wide(insn.memory_base())
        && is_wide(insn.memory_index())
        && insn.memory_displ_size() != 4
}

/// Returns code with an XSAVEC, whose bytes are `xsavec`, and the stores that complete it. The
/// stores change no register and no flag. `None` if the operand cannot be used at other addresses.
pub(super) fn saving_code(insn: &Instruction, xsavec: &[u8], saved: SavedState) -> Option<Vec<u8>> {
    if !can_be_copied(insn) {
        return None;
    }
    let stores = stores(insn, saved).ok()?;
    let mut encoder = Encoder::new(64);
    for store in stores {
        encoder.encode(&store, 0).ok()?;
    }
    Some([xsavec, &encoder.take_buffer()].concat())
}

/// Returns the stores that complete an XSAVEC, which has written the rest of the header. They write
/// all saved components, omitted or not.
fn stores(insn: &Instruction, saved: SavedState) -> Result<Vec<Instruction>, IcedError> {
    let area = |offset: usize| {
        let displacement = insn.memory_displacement64().wrapping_add(offset as u64);
        MemoryOperand::new(
            insn.memory_base(),
            insn.memory_index(),
            insn.memory_index_scale(),
            displacement.cast_signed(),
            8,
            false,
            Register::None,
        )
    };
    let components = u32::try_from(saved.components).unwrap_or(0);
    let mut stores = vec![
        Instruction::with1(Code::Stmxcsr_m32, area(MXCSR))?,
        Instruction::with2(Code::Mov_rm32_imm32, area(MXCSR_MASK), saved.mxcsr_mask)?,
        Instruction::with2(Code::Mov_rm32_imm32, area(XSTATE_BV), components)?,
    ];
    for (register, at) in registers(Register::XMM0, 16, Some(XMM), 16) {
        stores.push(Instruction::with2(Code::Movups_xmmm128_xmm, area(at), register)?);
    }
    for (register, at) in registers(Register::YMM0, 16, saved.place(AVX), 16) {
        let code = Code::VEX_Vextractf128_xmmm128_ymm_imm8;
        stores.push(Instruction::with3(code, area(at), register, 1)?);
    }
    for (register, at) in registers(Register::K0, 8, saved.place(MASKS), 8) {
        stores.push(Instruction::with2(Code::VEX_Kmovq_m64_kr, area(at), register)?);
    }
    for (register, at) in registers(Register::ZMM0, 16, saved.place(ZMM_HI256), 32) {
        let code = Code::EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8;
        stores.push(Instruction::with3(code, area(at), register, 1)?);
    }
    for (register, at) in registers(Register::ZMM16, 16, saved.place(HI16_ZMM), 64) {
        stores.push(Instruction::with2(Code::EVEX_Vmovups_zmmm512_k1z_zmm, area(at), register)?);
    }
    Ok(stores)
}

/// Returns the `count` registers from `first` on, with their offsets in the area: `size` bytes
/// apart, from `at` on. Returns none if `at` is `None`.
fn registers(
    first: Register,
    count: u32,
    at: Option<usize>,
    size: usize,
) -> impl Iterator<Item = (Register, usize)> {
    let numbers = if at.is_some() { 0..count } else { 0..0 };
    numbers.map(move |number| (first + number, at.unwrap_or(0) + size * number as usize))
}

/// EAX and EDX, as far as they are known before an instruction of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownMask {
    low: Option<u32>,
    high: Option<u32>,
}

impl KnownMask {
    /// Updates the mask by the next instruction of the path. It stays known across constants moved
    /// to EAX and EDX, and stores of 64-bit registers; any other instruction makes it unknown.
    pub(super) fn follow(&mut self, insn: &Instruction) {
        let sets = |value| match insn.op0_register() {
            Register::EAX => (Some(Some(value)), None),
            Register::EDX => (None, Some(Some(value))),
            _ => (Some(None), Some(None)),
        };
        let (low, high) = match insn.code() {
            Code::Mov_r32_imm32 => sets(insn.immediate32()),
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32
                if insn.op0_kind() == OpKind::Register
                    && insn.op0_register() == insn.op1_register() =>
            {
                sets(0)
            }
            Code::Mov_rm64_r64 if insn.op0_kind() == OpKind::Memory => (None, None),
            _ => (Some(None), Some(None)),
        };
        self.low = low.unwrap_or(self.low);
        self.high = high.unwrap_or(self.high);
    }

    /// Returns the mask EDX:EAX; `None` if it is not known.
    pub(super) fn value(self) -> Option<u64> {
        Some(u64::from(self.high?) << 32 | u64::from(self.low?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    const ALL: Components = Components { enabled: 0xe7, mxcsr_mask: 0x2_ffff };

    fn decode_all(bytes: &[u8]) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).into_iter().collect()
    }

    fn area_of_kernel(enabled: u64) -> Vec<u8> {
        let mut area = vec![0; 2432];
        area[XCR0..XCR0 + 8].copy_from_slice(&enabled.to_le_bytes());
        area[MXCSR_MASK..MXCSR_MASK + 4].copy_from_slice(&0x2_ffff_u32.to_le_bytes());
        area
    }

    #[test]
    fn components_are_those_that_the_kernel_reports() {
        assert_eq!(Components::of(&area_of_kernel(0xe7)), Some(ALL));
        assert_eq!(Components::of(&area_of_kernel(0xff)), None, "MPX lies between the others");
        assert_eq!(Components::of(&area_of_kernel(1)), None, "no SSE");
        assert_eq!(Components::of(&[0; 470]), None);
    }

    #[test]
    fn masks_with_other_components_keep_the_hook() {
        let saved = |mask| ALL.saved(mask).map(SavedState::components);
        assert_eq!(saved(0xee), Some(0xe6));
        assert_eq!(saved(0x6), Some(0x6));
        assert_eq!(saved(u64::MAX), None, "x87");
        assert_eq!(saved(0x4), None, "no SSE");
        let xsavec = |bytes: &[u8]| ALL.saved_by(bytes, 0xee).is_some();
        assert!(xsavec(&[0x0f, 0xc7, 0x64, 0x24, 0x40]), "xsavec [rsp + 64]");
        assert!(xsavec(&[0x48, 0x0f, 0xc7, 0x20]), "xsavec64 [rax]");
        assert!(!xsavec(&[0x0f, 0xae, 0x64, 0x24, 0x40]), "xsave");
        assert!(!xsavec(&[0x0f, 0xae, 0x30]), "xsaveopt");
    }

    /// Checks that the stores write every byte once that XSAVEC can write, but for `XCOMP_BV`,
    /// which it always writes itself, and that no register or flag changes.
    #[test]
    fn the_stores_fill_the_area() {
        // xsavec [rsp + 64]; xsavec [r9 + r10 * 8]; xsavec [rbp]
        let operands: [&[u8]; 3] = [
            &[0x0f, 0xc7, 0x64, 0x24, 0x40],
            &[0x43, 0x0f, 0xc7, 0x24, 0xd1],
            &[0x0f, 0xc7, 0x65, 0x00],
        ];
        for (bytes, mask) in operands.into_iter().zip([0xee, 0x6, 0x26]) {
            let xsavec = decode_all(bytes)[0];
            let saved = ALL.saved(mask).expect("it has no x87");
            let code = saving_code(&xsavec, bytes, saved).expect("it can be moved");
            let mut written = vec![0; saved.size_bytes()];
            for insn in &decode_all(&code)[1..] {
                assert_eq!(insn.memory_base(), xsavec.memory_base());
                assert_eq!(insn.memory_index(), xsavec.memory_index());
                let info = InstructionInfoFactory::new().info(insn).clone();
                let writes = |r: &iced_x86::UsedRegister| r.access() == iced_x86::OpAccess::Write;
                assert!(!info.used_registers().iter().any(writes), "{insn}");
                assert_eq!(insn.rflags_modified(), 0, "{insn}");
                let origin = xsavec.memory_displacement64();
                let at = insn.memory_displacement64().wrapping_sub(origin);
                let at = usize::try_from(at).expect("it is small");
                let size = insn.memory_size().size();
                written[at..at + size].iter_mut().for_each(|count| *count += 1);
            }
            let missing = |range: Range<usize>| written[range].iter().filter(|n| **n != 1).count();
            assert_eq!(missing(MXCSR..32), 0);
            assert_eq!(missing(XMM..XMM + 256), 0);
            assert_eq!(missing(XSTATE_BV..XSTATE_BV + 4), 0);
            assert_eq!(missing(EXTENDED..written.len()), 0);
            let count = written.iter().filter(|n| **n != 0).count();
            assert_eq!(count, 8 + 256 + 4 + written.len() - EXTENDED);
        }
    }

    #[test]
    fn operands_that_depend_on_their_place_are_not_moved() {
        let saved = ALL.saved(0xee).expect("it has no x87");
        // xsavec [rip]; xsavec fs:[rax]; xsavec [eax]
        let others: [&[u8]; 3] =
            [&[0x0f, 0xc7, 0x25, 0, 0, 0, 0], &[0x64, 0x0f, 0xc7, 0x20], &[0x67, 0x0f, 0xc7, 0x20]];
        for bytes in others {
            assert_eq!(saving_code(&decode_all(bytes)[0], bytes, saved), None, "{bytes:x?}");
        }
    }

    #[test]
    fn what_was_omitted_is_as_after_a_reset() {
        let saved = ALL.saved(0xee).expect("it has no x87");
        assert_eq!(saved.size_bytes(), 2432);
        let mut area = vec![0xaa; 2432];
        let in_use = SSE | MASKS;
        area[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&in_use.to_le_bytes());
        saved.complete(&mut area);
        let all = |range: Range<usize>, byte| area[range].iter().all(|other| *other == byte);
        assert!(all(0..MXCSR_MASK, 0xaa) && all(32..XSTATE_BV, 0xaa), "SSE was saved");
        assert_eq!(area[XSTATE_BV..XSTATE_BV + 8], 0xe6_u64.to_le_bytes());
        assert_eq!(area[XCOMP_BV..XCOMP_BV + 8], (0xe6 | COMPACTED_FORMAT).to_le_bytes());
        assert!(all(528..EXTENDED, 0xaa), "the rest of the header is not written");
        assert!(all(576..832, 0) && all(832..896, 0xaa) && all(896..2432, 0));
    }

    #[test]
    fn a_mask_is_known_up_to_an_instruction_that_could_change_it() {
        let mut mask = KnownMask::default();
        let mut follow = |bytes: &[u8]| {
            mask.follow(&decode_all(bytes)[0]);
            mask.value()
        };
        assert_eq!(follow(&[0xb8, 0xee, 0, 0, 0]), None, "mov eax, 0xee");
        assert_eq!(follow(&[0x31, 0xd2]), Some(0xee), "xor edx, edx");
        assert_eq!(follow(&[0x48, 0x89, 0x54, 0x24, 8]), Some(0xee), "mov [rsp + 8], rdx");
        assert_eq!(follow(&[0x48, 0x89, 0xc2]), None, "mov rdx, rax");
        assert_eq!(follow(&[0xba, 1, 0, 0, 0]), None, "mov edx, 1");
        assert_eq!(follow(&[0xb8, 6, 0, 0, 0]), Some(1 << 32 | 6), "mov eax, 6");
        assert_eq!(follow(&[0x31, 0xc2]), None, "xor edx, eax");
    }
}
