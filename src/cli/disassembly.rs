//! An instruction as a line of text: address, function, source line, disassembly.

use crate::common::Addr;
use crate::pt::ExecMode;
use crate::symbols::Symbols;
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use std::collections::HashMap;

/// Instructions that were seen, with their text: most of a run is loops.
const KNOWN_LIMIT: usize = 1 << 18;

/// Makes lines, and remembers them.
pub(super) struct Disassembler {
    symbols: Symbols,
    formatter: GasFormatter,
    known: HashMap<(Addr, [u8; 15]), String>,
}

impl Disassembler {
    pub(super) fn new(symbols: Symbols) -> Self {
        let mut formatter = GasFormatter::new();
        let options = formatter.options_mut();
        options.set_space_after_operand_separator(true);
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        Self { symbols, formatter, known: HashMap::new() }
    }

    /// `ADDRESS  FUNCTION+OFF  FILE:LINE  DISASSEMBLY`, for the instruction with these bytes,
    /// which may be followed by others.
    pub(super) fn line(&mut self, addr: Addr, mode: ExecMode, bytes: [u8; 15]) -> &str {
        if self.known.len() > KNOWN_LIMIT {
            self.known.clear();
        }
        let (symbols, formatter) = (&self.symbols, &mut self.formatter);
        self.known.entry((addr, bytes)).or_insert_with(|| {
            let function = symbols.function_at(addr).map_or_else(
                || "?".to_owned(),
                |function| format!("{}+{:#x}", function.name, function.offset),
            );
            let place = symbols.location_at(addr).map_or_else(
                || "?".to_owned(),
                |location| format!("{}:{}", location.file, location.line),
            );
            format!("{addr:016x}  {function}  {place}  {}", text(formatter, addr, mode, &bytes))
        })
    }
}

fn text(formatter: &mut GasFormatter, addr: Addr, mode: ExecMode, bytes: &[u8]) -> String {
    let bitness = match mode {
        ExecMode::Bits16 => 16,
        ExecMode::Bits32 => 32,
        ExecMode::Bits64 => 64,
    };
    let mut insn = Instruction::default();
    Decoder::with_ip(bitness, bytes, addr.0, DecoderOptions::NONE).decode_out(&mut insn);
    let mut text = String::new();
    formatter.format(&insn, &mut text);
    text
}
