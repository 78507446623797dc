//! An instruction as a line of text: address, function, source line, disassembly.

use crate::common::{Addr, Visible};
use crate::insn::ExecMode;
use crate::symbols::Symbols;
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};
use std::collections::HashMap;

/// The maximum number of cached instructions, after which the cache is emptied; most of a run is
/// loops.
const KNOWN_LIMIT: usize = 1 << 18;

/// The line of a listing for an instruction.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// `FUNCTION+OFF`, or `?`.
    pub(super) function: String,
    /// `FILE:LINE`, or `?`.
    pub(super) place: String,
    /// The instruction in AT&T syntax.
    pub(super) insn: String,
}

/// A disassembler with a cache of lines.
pub(super) struct Disassembler {
    symbols: Symbols,
    formatter: GasFormatter,
    /// The lines of instructions, by address, mode and bytes.
    known: HashMap<(Addr, ExecMode, [u8; 15]), Line>,
}

impl Disassembler {
    /// Returns a disassembler with these symbols and an empty cache.
    pub(super) fn new(symbols: Symbols) -> Self {
        Self { symbols, formatter: formatter(), known: HashMap::new() }
    }

    /// Returns the line of a listing for the instruction at `addr`: its function, its place in the
    /// source, and its text. `bytes` begins with the instruction; the rest is ignored.
    pub(super) fn line(&mut self, addr: Addr, mode: ExecMode, bytes: [u8; 15]) -> &Line {
        if self.known.len() > KNOWN_LIMIT {
            self.known.clear();
        }
        let (symbols, formatter) = (&self.symbols, &mut self.formatter);
        self.known.entry((addr, mode, bytes)).or_insert_with(|| Line {
            function: function(symbols, addr),
            place: place(symbols, addr),
            insn: insn_text(formatter, addr, mode, &bytes),
        })
    }

    /// Returns `FUNCTION+OFF` for an address, with the offset in hexadecimal also if it is 0; `?`
    /// if there is no symbol.
    pub(super) fn function(&self, addr: Addr) -> String {
        function(&self.symbols, addr)
    }
}

/// Returns `FUNCTION+OFF` for an address; `?` if there is no symbol.
fn function(symbols: &Symbols, addr: Addr) -> String {
    symbols.function_at(addr).map_or_else(
        || "?".to_owned(),
        |function| format!("{}+{:#x}", Visible(&function.name), function.offset),
    )
}

/// Returns `FILE:LINE` for an address; `?` if it is unknown.
fn place(symbols: &Symbols, addr: Addr) -> String {
    let location = symbols.location_at(addr);
    location.map_or_else(|| "?".to_owned(), |at| format!("{}:{}", Visible(&at.file), at.line))
}

/// Returns the first instruction of `bytes`, which is 64-bit code at `addr`, in AT&T syntax.
pub(super) fn disassembled(addr: Addr, bytes: &[u8]) -> String {
    insn_text(&mut formatter(), addr, ExecMode::Bits64, bytes)
}

fn formatter() -> GasFormatter {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    formatter
}

/// Returns the first instruction of `bytes`, which is at `addr`, in AT&T syntax.
fn insn_text(formatter: &mut GasFormatter, addr: Addr, mode: ExecMode, bytes: &[u8]) -> String {
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
