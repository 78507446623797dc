//! Computes the registers of a frame's caller, by the unwind tables of a module (`.eh_frame`,
//! `.debug_frame`). An entry of a table (FDE) has the rules for a function, and a *row* of it those
//! for an address. The *canonical frame address* (CFA) is the stack pointer before the call.

use crate::common::Addr;
use crate::image::Bytes;
use crate::symbols::dwarf::Data;
use crate::symbols::machine::{Machine, RIP, RSP};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, Encoding, EvaluationResult, Expression,
    Location, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The limit on entries (FDEs) of an unwind table. More are damage.
const MAX_ENTRIES: usize = 1 << 22;
/// The limit on operations of one DWARF expression.
const MAX_OPERATIONS: u32 = 10_000;
/// The maximum number of rows in the cache of [`UnwindTables`].
const MAX_CACHED_ROWS: usize = 1 << 14;
/// The number of general registers, with RIP.
const REGISTERS: u16 = 17;

/// The unwind tables of a module, at the addresses of its file.
pub(super) struct UnwindTables {
    eh: Option<Table<EhFrame<Data>>>,
    debug: Option<Table<DebugFrame<Data>>>,
    /// The cached rows of addresses; `None` for an address without one.
    rows: Mutex<HashMap<u64, Option<Arc<Row>>>>,
}

/// An unwind table: a section, and the list of its entries.
struct Table<S> {
    section: S,
    bases: BaseAddresses,
    /// The start address, end address and section offset of each entry (FDE), in ascending order.
    entries: Vec<(u64, u64, usize)>,
}

/// The rules at one address that compute the registers of the caller.
struct Row {
    /// The rule of the canonical frame address.
    cfa: Rule,
    /// The rules of registers, by DWARF number.
    registers: Vec<(u16, Rule)>,
    /// The encoding of the expressions in the rules.
    encoding: Encoding,
    /// True if the frame is a signal trampoline, so that its caller was interrupted.
    is_signal: bool,
}

enum Rule {
    /// The value is lost.
    Unknown,
    /// The caller's value is that of the frame.
    Same,
    /// A register's value, and an offset from it.
    Register(u16, i64),
    /// The word at an offset from the canonical frame address.
    AtCfaOffset(i64),
    /// The canonical frame address plus an offset.
    CfaOffset(i64),
    /// The word at the address that an expression computes.
    AtExpression(Expression<Data>),
    /// The value that an expression computes.
    Expression(Expression<Data>),
}

/// The general registers of a frame, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRegisters {
    /// The registers' values by DWARF number; `None` if unknown.
    pub words: [Option<u64>; REGISTERS as usize],
    /// True if the frame made no call: it is innermost, or a signal interrupted it. Its RIP is the
    /// next instruction, and not a return address.
    pub is_interrupted: bool,
}

impl FrameRegisters {
    /// Returns the registers of the innermost frame, which are those of the thread.
    pub fn innermost(machine: &dyn Machine) -> Self {
        let mut words = [None; REGISTERS as usize];
        for (number, word) in (0..).zip(&mut words) {
            *word = machine.register(number);
        }
        Self { words, is_interrupted: true }
    }

    /// Returns the address of the frame's next instruction; `None` if it is unknown.
    pub fn pc(&self) -> Option<Addr> {
        self.get(RIP).map(Addr)
    }

    /// Returns an address by which to look up the frame's line and function: that of the next
    /// instruction, or the byte before a return address, since a call can be the last instruction
    /// of its line or function. `None` if it is unknown.
    pub fn lookup_pc(&self) -> Option<Addr> {
        let pc = self.get(RIP)?;
        Some(Addr(if self.is_interrupted { pc } else { pc.wrapping_sub(1) }))
    }

    /// Returns a register by its DWARF number; `None` if it is unknown, or not a general one.
    pub fn get(&self, number: u16) -> Option<u64> {
        *self.words.get(usize::from(number))?
    }
}

impl UnwindTables {
    /// Reads the unwind tables of the module `bytes`. Its `.debug_frame` may be in the file
    /// `debug`.
    pub(super) fn parse(bytes: &Bytes, debug: Option<&Bytes>) -> Self {
        let eh = load_section(bytes, ".eh_frame").map(|(data, bases)| {
            let mut section = EhFrame::from(data);
            section.set_address_size(8);
            Table::index(section, bases)
        });
        let own = load_section(bytes, ".debug_frame");
        let found = own.or_else(|| load_section(debug?, ".debug_frame"));
        let debug = found.map(|(data, bases)| {
            let mut section = DebugFrame::from(data);
            section.set_address_size(8);
            Table::index(section, bases)
        });
        Self { eh, debug, rows: Mutex::default() }
    }

    /// Returns the row of an address of the file, from `.eh_frame` or else from `.debug_frame`;
    /// `None` if neither covers it, or its entry is damaged. Keeps it, also `None`, in the cache.
    fn row(&self, addr: u64) -> Option<Arc<Row>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.get(&addr) {
            return row.clone();
        }
        let found = self.eh.as_ref().and_then(|table| table.row(addr));
        let found = found.or_else(|| self.debug.as_ref()?.row(addr)).map(Arc::new);
        if rows.len() >= MAX_CACHED_ROWS {
            rows.clear();
        }
        rows.insert(addr, found.clone());
        found
    }

    /// Returns the canonical frame address of a frame in this module; `None` if no entry covers its
    /// instruction, or a value is unknown. `bias` is the module's load bias.
    pub(super) fn cfa(
        &self,
        frame: &FrameRegisters,
        machine: &dyn Machine,
        bias: u64,
    ) -> Option<u64> {
        let row = self.row(frame.lookup_pc()?.0.wrapping_sub(bias))?;
        RowEvaluation { frame, machine, row: &row, bias }.value(&row.cfa, 0, None)
    }

    /// Returns the registers of the caller of a frame in this module. `None` if there is none, its
    /// address is unknown, or its stack pointer is not above the frame's, as damage would have it.
    /// The caller of a signal handler can be on another stack.
    pub(super) fn caller(
        &self,
        frame: &FrameRegisters,
        machine: &dyn Machine,
        bias: u64,
    ) -> Option<FrameRegisters> {
        let row = self.row(frame.lookup_pc()?.0.wrapping_sub(bias))?;
        let evaluation = RowEvaluation { frame, machine, row: &row, bias };
        let cfa = evaluation.value(&row.cfa, 0, None)?;
        // A register without a rule has its value if the ABI makes callees keep it: RBX, RBP, R12
        // to R15.
        let is_kept = |number: u16| matches!(number, 3 | 6 | 12..=15);
        let mut words = [None; REGISTERS as usize];
        for (number, word) in (0..).zip(&mut words) {
            let rule = row.registers.iter().find(|(of, _)| *of == number).map(|(_, rule)| rule);
            *word = match rule {
                Some(rule) => evaluation.value(rule, number, Some(cfa)),
                None if number == RSP => Some(cfa),
                None if is_kept(number) => frame.get(number),
                None => None,
            };
        }
        let caller = FrameRegisters { words, is_interrupted: row.is_signal };
        // Without this check, a walk of the stack could go on for ever.
        let is_above = caller.get(RSP) > frame.get(RSP) || row.is_signal;
        caller.get(RIP).filter(|pc| *pc != 0 && is_above).map(|_| caller)
    }
}

impl<S: UnwindSection<Data>> Table<S> {
    /// Lists the entries of a section, up to any damage. Leaves out empty and damaged entries.
    fn index(section: S, bases: BaseAddresses) -> Self
    where
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut entries = Vec::new();
        let mut iterator = section.entries(&bases);
        while let Ok(Some(entry)) = iterator.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            if let Ok(fde) = partial.parse(S::cie_from_offset)
                && fde.initial_address() < fde.end_address()
            {
                entries.push((fde.initial_address(), fde.end_address(), fde.offset()));
            }
            if entries.len() >= MAX_ENTRIES {
                break;
            }
        }
        entries.sort_unstable();
        Self { section, bases, entries }
    }

    /// Reads the row of an address; `None` if no entry covers it, or the entry is damaged.
    fn row(&self, addr: u64) -> Option<Row> {
        let next = self.entries.partition_point(|(start, ..)| *start <= addr);
        let &(_, end, offset) = self.entries.get(next.checked_sub(1)?)?;
        if addr >= end {
            return None;
        }
        let fde =
            self.section.fde_from_offset(&self.bases, S::Offset::from(offset), S::cie_from_offset);
        let fde = fde.ok()?;
        let mut context = UnwindContext::new();
        let found = fde.unwind_info_for_address(&self.section, &self.bases, &mut context, addr);
        let found = found.ok()?;
        let expression = |of: &UnwindExpression<usize>| of.get(&self.section).ok();
        let cfa = match found.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Rule::Register(register.0, *offset),
            CfaRule::Expression(of) => expression(of).map_or(Rule::Unknown, Rule::Expression),
        };
        let rule = |(register, rule): (gimli::Register, &RegisterRule<usize>)| {
            let rule = match rule {
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(offset) => Rule::AtCfaOffset(*offset),
                RegisterRule::ValOffset(offset) => Rule::CfaOffset(*offset),
                RegisterRule::Register(from) => Rule::Register(from.0, 0),
                RegisterRule::Expression(of) => {
                    expression(of).map_or(Rule::Unknown, Rule::AtExpression)
                }
                RegisterRule::ValExpression(of) => {
                    expression(of).map_or(Rule::Unknown, Rule::Expression)
                }
                _ => Rule::Unknown,
            };
            (register.0, rule)
        };
        let registers = found.registers().map(|(register, of)| rule((*register, of))).collect();
        let encoding = fde.cie().encoding();
        Some(Row { cfa, registers, encoding, is_signal: fde.is_signal_trampoline() })
    }
}

/// The evaluation of a row's rules for one frame.
struct RowEvaluation<'a> {
    frame: &'a FrameRegisters,
    machine: &'a dyn Machine,
    row: &'a Row,
    bias: u64,
}

impl RowEvaluation<'_> {
    /// Returns the value that a rule computes for a register; `None` if it is lost, or needs an
    /// unknown value. `cfa` is the canonical frame address; it is `None` for the rule that computes
    /// it, which ignores `register`.
    fn value(&self, rule: &Rule, register: u16, cfa: Option<u64>) -> Option<u64> {
        match rule {
            Rule::Unknown => None,
            Rule::Same => self.frame.get(register),
            Rule::Register(from, offset) => {
                Some(self.frame.get(*from)?.wrapping_add_signed(*offset))
            }
            Rule::AtCfaOffset(offset) => self.word(cfa?.wrapping_add_signed(*offset)),
            Rule::CfaOffset(offset) => Some(cfa?.wrapping_add_signed(*offset)),
            Rule::AtExpression(of) => self.word(self.evaluate(of, cfa)?),
            Rule::Expression(of) => self.evaluate(of, cfa),
        }
    }

    /// Reads a word of memory; `None` if a part of it is unknown.
    fn word(&self, addr: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.machine.read(Addr(addr), &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// Evaluates an expression, which starts with `cfa` on its stack; `None` if it needs an unknown
    /// value or is damaged.
    fn evaluate(&self, expression: &Expression<Data>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.clone().evaluation(self.row.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                    let mut bytes = [0; 8];
                    let wanted = bytes.get_mut(..size.into())?;
                    if !self.machine.read(Addr(address), wanted) {
                        return None;
                    }
                    evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(bytes))).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let word = self.frame.get(register.0)?;
                    evaluation.resume_with_register(Value::Generic(word)).ok()?
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    let address = address.wrapping_add(self.bias);
                    evaluation.resume_with_relocated_address(address).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().as_slice() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                Location::Value { value: Value::Generic(value) } => Some(value),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Loads a section, and the addresses to which its pointers are relative; `None` if it is absent or
/// damaged.
fn load_section(bytes: &Bytes, name: &str) -> Option<(Data, BaseAddresses)> {
    let elf = ElfFile64::<Endianness>::parse(&**bytes).ok()?;
    let data = crate::symbols::dwarf::section(&elf, bytes, name)?;
    let address = |name| elf.section_by_name(name).map(|section| section.address());
    let mut bases = BaseAddresses::default();
    if let Some(at) = address(".eh_frame") {
        bases = bases.set_eh_frame(at);
    }
    if let Some(at) = address(".text") {
        bases = bases.set_text(at);
    }
    if let Some(at) = address(".got") {
        bases = bases.set_got(at);
    }
    Some((data, bases))
}
