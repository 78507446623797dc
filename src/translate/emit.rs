//! Emits machine code for the glue between the program's instructions. It does not touch the flags,
//! the stack or vector registers.

use super::slots;

/// A general register, by its number in the encoding (SDM volume 2, "ModR/M").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gpr {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rsp = 4,
    Rsi = 6,
    Rdi = 7,
    R11 = 11,
}

/// The stores by which an exit checks the budget: `mov [r11], r11b` at a direct one, and
/// `mov [r11], dl` at an indirect one. The budget is an address: there is memory at it unless it is
/// overdrawn, so the store faults then (`counting`). The stored byte means nothing.
pub(super) const STORE_AT_DIRECT: [u8; 3] = [0x45, 0x88, 0x1b];
pub(super) const STORE_AT_INDIRECT: [u8; 3] = [0x41, 0x88, 0x13];

/// Code under construction for an address in the cache. A *field* is the offset in `bytes` of a
/// displacement that is set later.
#[derive(Debug)]
pub(super) struct Emitter {
    pub(super) bytes: Vec<u8>,
    base: u64,
}

impl Emitter {
    /// Creates an emitter for code at `base`. `bytes` is empty; its allocation is reused.
    pub(super) fn new(base: u64, bytes: Vec<u8>) -> Self {
        Self { bytes, base }
    }

    /// Returns the address of the next byte.
    pub(super) fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Returns the number of bytes so far: the field of the next byte.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the 4 bytes of a value, the lowest first.
    pub(super) fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Appends the 8 bytes of a value, the lowest first.
    pub(super) fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Emits `mov gs:[slot], register`.
    pub(super) fn store(&mut self, register: Gpr, slot: u32) {
        self.slot_access(0x89, register, slot);
    }

    /// Emits `mov dword gs:[slot], value`, which leaves the upper half of the slot as it is.
    pub(super) fn store_value(&mut self, value: u32, slot: u32) {
        self.put(&[0x65, 0xc7, 0x04, 0x25]);
        self.put_u32(slot);
        self.put_u32(value);
    }

    /// Emits `mov register, gs:[slot]`.
    pub(super) fn load(&mut self, register: Gpr, slot: u32) {
        self.slot_access(0x8b, register, slot);
    }

    /// Emits a MOV between a register and `gs:[slot]`, by its opcode.
    fn slot_access(&mut self, opcode: u8, register: Gpr, slot: u32) {
        let number = register as u8;
        let (rex, modrm) = (0x48 | number >> 3 << 2, (number & 7) << 3 | 0b100);
        self.put(&[0x65, rex, opcode, modrm, 0x25]);
        self.put_u32(slot);
    }

    /// Emits `mov [base + offset], register`, with registers by their numbers in the encoding. The
    /// base is neither RSP nor R12.
    pub(super) fn store_at(&mut self, register: u8, base: u8, offset: u32) {
        self.access_at(0x89, register, base, offset);
    }

    /// Emits `mov register, [base + offset]`, with registers by their numbers in the encoding. The
    /// base is neither RSP nor R12.
    pub(super) fn load_at(&mut self, register: u8, base: u8, offset: u32) {
        self.access_at(0x8b, register, base, offset);
    }

    /// Emits a MOV, by its opcode, between a register and `[base + offset]`. The base is neither
    /// RSP nor R12, which are encoded otherwise.
    fn access_at(&mut self, opcode: u8, register: u8, base: u8, offset: u32) {
        let rex = 0x48 | register >> 3 << 2 | base >> 3;
        self.put(&[rex, opcode, 0x80 | (register & 7) << 3 | base & 7]);
        self.put_u32(offset);
    }

    /// Emits `movzx ecx, byte gs:[rcx + SYSCALL_CLASSES]`.
    pub(super) fn load_class(&mut self) {
        self.put(&[0x65, 0x0f, 0xb6, 0x89]);
        self.put_u32(slots::SYSCALL_CLASSES);
    }

    /// Emits `movzx ecx, byte [base + offset]`, with the base by its number, below 8. It is not
    /// RSP.
    pub(super) fn load_byte(&mut self, base: u8, offset: u32) {
        self.put(&[0x0f, 0xb6, 0x88 | base]);
        self.put_u32(offset);
    }

    /// Emits `lea rcx, [rcx - 1]`.
    pub(super) fn decrement_rcx(&mut self) {
        self.put(&[0x48, 0x8d, 0x49, 0xff]);
    }

    /// Emits code that subtracts R11 from RCX, and leaves the complement of R11 in R11.
    pub(super) fn subtract_from_rcx(&mut self) {
        // not r11; lea rcx, [rcx + r11 + 1]
        self.put(&[0x49, 0xf7, 0xd3, 0x4a, 0x8d, 0x4c, 0x19, 1]);
    }

    /// Emits a jump that is taken if RCX is 0, and is still to be aimed ([`Self::aim_here`]).
    /// Returns its field. Code that follows runs if RCX is not 0. RCX stays as it is.
    pub(super) fn jump_if_rcx_is_0(&mut self) -> usize {
        // jrcxz over a jump over a jump
        self.put(&[0xe3, 2, 0xeb, 5]);
        self.jump_from_here()
    }

    /// Emits a jump that is taken if RDX is not `value`, and is still to be aimed. Returns its
    /// field. The code overwrites RCX, which is 0 if the jump is not taken.
    pub(super) fn jump_if_rdx_is_not(&mut self, value: u64) -> usize {
        self.set_rcx_to_rdx_minus(value);
        // jrcxz over the jump
        self.put(&[0xe3, 5]);
        self.jump_from_here()
    }

    /// Emits code that sets RCX to RDX minus `value`: half as long for a value below 2 GiB, as the
    /// addresses of programs that are not position-independent are.
    pub(super) fn set_rcx_to_rdx_minus(&mut self, value: u64) {
        let negative = value.wrapping_neg();
        if let Ok(displacement) = i32::try_from(negative.cast_signed()) {
            // lea rcx, [rdx - value]
            self.put(&[0x48, 0x8d, 0x8a]);
            self.put(&displacement.to_le_bytes());
        } else {
            self.set_rcx(negative);
            // lea rcx, [rcx + rdx]
            self.put(&[0x48, 0x8d, 0x0c, 0x11]);
        }
    }

    /// Emits a jump that is always taken, and is still to be aimed. Returns its field.
    pub(super) fn jump_from_here(&mut self) -> usize {
        self.put(&[0xe9]);
        self.reserve_rel32()
    }

    /// Aims the jump with the displacement at `field` at the next byte.
    pub(super) fn aim_here(&mut self, field: usize) {
        self.aim(field, self.here());
    }

    /// Emits `mov rcx, value`.
    pub(super) fn set_rcx(&mut self, value: u64) {
        self.put(&[0x48, 0xb9]);
        self.put_u64(value);
    }

    /// Emits `jmp destination`. The destination is in reach of 32 bits, which is not checked.
    pub(super) fn jump(&mut self, destination: u64) {
        self.put(&[0xe9]);
        let field = self.reserve_rel32();
        self.aim(field, destination);
    }

    /// Emits `jmp [gs:slot]`.
    pub(super) fn jump_slot(&mut self, slot: u32) {
        self.put(&[0x65, 0xff, 0x24, 0x25]);
        self.put_u32(slot);
    }

    /// Emits `jmp gs:[TARGETS + (edx & 0xffff) * 8]`, which clobbers ECX.
    pub(super) fn jump_by_target(&mut self) {
        // movzx ecx, dx
        self.put(&[0x0f, 0xb7, 0xca]);
        self.put(&[0x65, 0xff, 0x24, 0xcd]);
        self.put_u32(slots::TARGETS);
    }

    /// Emits 4 bytes for a displacement that [`Self::aim`] fills in. Returns its field.
    pub(super) fn reserve_rel32(&mut self) -> usize {
        let at = self.bytes.len();
        self.put_u32(0);
        at
    }

    /// Sets the displacement at `field`, the last field of its instruction, to reach `destination`,
    /// which is in reach of 32 bits: that is not checked. May be called again for another
    /// destination.
    pub(super) fn aim(&mut self, field: usize, destination: u64) {
        let next = self.base + field as u64 + 4;
        let displacement = destination.wrapping_sub(next).to_le_bytes();
        self.bytes[field..field + 4].copy_from_slice(&displacement[..4]);
    }

    /// Emits code that saves the program's R11 to its slot and loads the trace pointer or budget
    /// into the register.
    pub(super) fn load_trace_pointer(&mut self) {
        self.store(Gpr::R11, slots::R11);
        self.load(Gpr::R11, slots::TRACE_POINTER);
    }

    /// Emits code that saves the trace pointer or budget to its slot and loads the program's R11.
    pub(super) fn load_program_r11(&mut self) {
        self.store(Gpr::R11, slots::TRACE_POINTER);
        self.load(Gpr::R11, slots::R11);
    }

    /// Emits `mov dword [r11], edge`.
    fn record_edge(&mut self, edge: u32) {
        self.put(&[0x41, 0xc7, 0x03]);
        self.put_u32(edge);
    }

    /// Emits `lea r11, [r11 + bytes]`. The bytes are at most 127.
    fn advance(&mut self, bytes: u8) {
        self.put(&[0x4d, 0x8d, 0x5b, bytes]);
    }

    /// Emits code that writes the record of an edge at the trace pointer in R11, and moves that on.
    pub(super) fn record(&mut self, edge: u32) {
        self.record_edge(edge);
        self.advance(4);
    }

    /// Emits code that writes the record of an edge with the time, by RDTSC, at the trace pointer
    /// in R11, and moves that on. It keeps RAX and RDX, by way of their slots.
    pub(super) fn record_with_time(&mut self, edge: u32) {
        self.store(Gpr::Rax, slots::RAX);
        self.store(Gpr::Rdx, slots::RDX);
        self.record_edge(edge);
        // rdtsc; mov [r11 + 4], eax; mov [r11 + 8], edx
        self.put(&[0x0f, 0x31, 0x41, 0x89, 0x43, 4, 0x41, 0x89, 0x53, 8]);
        self.advance(12);
        self.load(Gpr::Rax, slots::RAX);
        self.load(Gpr::Rdx, slots::RDX);
    }

    /// Emits code that subtracts `ticks`, at most 127, from the budget in R11, and stores a byte at
    /// that address by `store` ([`STORE_AT_DIRECT`]): the store faults if the budget is spent.
    pub(super) fn count_and_check(&mut self, ticks: u8, store: [u8; 3]) {
        self.subtract_ticks(ticks);
        self.put(&store);
    }

    /// Emits code that subtracts `ticks`, at most 127, from the budget in R11.
    pub(super) fn subtract_ticks(&mut self, ticks: u8) {
        // lea r11, [r11 - ticks]
        self.put(&[0x4d, 0x8d, 0x5b, ticks.wrapping_neg()]);
    }

    /// Pads with INT3 until the number of bytes is a multiple of `alignment`; adds none if it is
    /// one already.
    pub(super) fn pad(&mut self, alignment: usize) {
        while !self.bytes.len().is_multiple_of(alignment) {
            self.put(&[0xcc]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, InstructionInfoFactory};

    fn text(emit: impl FnOnce(&mut Emitter)) -> String {
        let mut emitter = Emitter::new(0x1000, Vec::new());
        emit(&mut emitter);
        let mut formatter = GasFormatter::new();
        let mut lines = Vec::new();
        for insn in Decoder::with_ip(64, &emitter.bytes, 0x1000, DecoderOptions::NONE) {
            let mut line = String::new();
            formatter.format(&insn, &mut line);
            let flags = InstructionInfoFactory::new().info(&insn).used_registers().len();
            assert!(flags < 8 && insn.rflags_modified() == 0, "{line} touches the flags");
            lines.push(line);
        }
        lines.join("; ")
    }

    #[test]
    fn slots_are_reached_through_gs() {
        assert_eq!(text(|e| e.store(Gpr::R11, 0x20)), "mov %r11,%gs:0x20");
        assert_eq!(text(|e| e.load(Gpr::Rcx, 8)), "mov %gs:8,%rcx");
        assert_eq!(text(|e| e.jump_slot(0x40)), "jmpq *%gs:0x40");
        assert_eq!(text(Emitter::jump_by_target), "movzwl %dx,%ecx; jmpq *%gs:0x11000(,%rcx,8)");
    }

    #[test]
    fn low_addresses_are_compared_by_one_instruction() {
        let low = text(|e| e.set_rcx_to_rdx_minus(0x8000_0000));
        assert_eq!(low, "lea -0x80000000(%rdx),%rcx");
        let high = text(|e| e.set_rcx_to_rdx_minus(0x8000_0001));
        assert_eq!(high, "movabs $0xFFFFFFFF7FFFFFFF,%rcx; lea (%rcx,%rdx),%rcx");
    }

    #[test]
    fn records_go_to_r11() {
        assert_eq!(text(|e| e.record(7)), "movl $7,(%r11); lea 4(%r11),%r11");
        let timed = text(|e| e.record_with_time(7));
        assert!(timed.contains("rdtsc; mov %eax,4(%r11); mov %edx,8(%r11); lea 0xC"), "{timed}");
    }

    #[test]
    fn ticks_are_subtracted_from_r11() {
        for (store, register) in [(STORE_AT_DIRECT, "r11b"), (STORE_AT_INDIRECT, "dl")] {
            let expected = format!("lea -0x3D(%r11),%r11; mov %{register},(%r11)");
            assert_eq!(text(|e| e.count_and_check(61, store)), expected);
        }
    }

    #[test]
    fn a_displacement_counts_from_its_end() {
        assert_eq!(text(|e| e.jump(0x2000)), "jmp 0x0000000000002000");
        assert_eq!(text(|e| e.jump(0)), "jmp 0");
    }
}
