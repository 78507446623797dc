//! Where the value of a variable is. [`location_description`] picks the description that holds at
//! an address, from location lists or constants; [`State::home`] evaluates it in a state of the
//! program.

use super::Reader;
use super::die::{Context, Die};
use super::types::constant;
use crate::common::Addr;
use crate::symbols::machine::{Home, Machine, Piece};
use gimli::{
    AttributeValue, Encoding, EndianSlice, EvaluationResult, Expression, LittleEndian, Location,
    UnitRef, Value, ValueType,
};

/// The limit on operations of one DWARF expression. More are a loop.
const MAX_OPERATIONS: u32 = 10_000;
/// The limit on ranges of a location list.
const MAX_RANGES: usize = 1 << 16;

/// The description of where a variable is at an address, for evaluation in many states of the
/// program.
#[derive(Clone, Debug)]
pub(in crate::symbols) enum LocationDescription {
    /// The DWARF expression of the location, and the one of the function's frame base.
    Expression { expression: Expression<Reader>, frame_base: Option<Expression<Reader>> },
    /// The value consists of the lowest bytes of this constant.
    Constant(u64),
    /// The value consists of these bytes.
    Bytes(Vec<u8>),
    /// The variable has no location at the address.
    OptimizedOut,
}

/// Returns the description of where a variable is while the code at `addr` of its module's file
/// executes, for [`State::home`] to evaluate. `function` is the function around it that is not
/// inlined: it has the frame base.
pub(super) fn location_description(
    context: Context<'_>,
    variable: Die<'_>,
    function: Option<Die<'_>>,
    addr: u64,
) -> LocationDescription {
    if let Some((die, value)) = variable.inherited_attribute(gimli::DW_AT_location, context) {
        let frame_base = || {
            let (die, value) = function?.inherited_attribute(gimli::DW_AT_frame_base, context)?;
            expression_at(die.unit, &value, addr)
        };
        return match expression_at(die.unit, &value, addr) {
            Some(expression) if gimli::Reader::len(&expression.0) > 0 => {
                LocationDescription::Expression { expression, frame_base: frame_base() }
            }
            _ => LocationDescription::OptimizedOut,
        };
    }
    match variable.inherited_attribute(gimli::DW_AT_const_value, context) {
        Some((_, AttributeValue::Block(bytes))) => gimli::Reader::to_slice(&bytes)
            .map_or(LocationDescription::OptimizedOut, |bytes| {
                LocationDescription::Bytes(bytes.into_owned())
            }),
        Some((die, value)) => match (constant(&value), super::units::text(die.unit, value)) {
            (Some(value), _) => LocationDescription::Constant(value),
            (None, Some(text)) => LocationDescription::Bytes(text.into_bytes()),
            (None, None) => LocationDescription::OptimizedOut,
        },
        None => LocationDescription::OptimizedOut,
    }
}

/// Returns true if an argument's only location is a slot of its function's own frame. The prologue
/// must then have stored it there.
pub(super) fn is_stored(context: Context<'_>, variable: Die<'_>) -> bool {
    let found = variable.inherited_attribute(gimli::DW_AT_location, context);
    let Some((die, AttributeValue::Exprloc(expression))) = found else { return false };
    let mut operations = expression.operations(die.unit.encoding());
    matches!(operations.next(), Ok(Some(gimli::Operation::FrameOffset { offset })) if offset < 0)
}

/// Returns the expression of a location attribute that holds at `addr`: a plain one holds at all
/// addresses, and of a location list the first one that does is taken. `None` if the list has none
/// there, or the value is neither.
fn expression_at(
    unit: UnitRef<'_, Reader>,
    value: &AttributeValue<Reader>,
    addr: u64,
) -> Option<Expression<Reader>> {
    if let Some(expression) = value.exprloc_value() {
        return Some(expression);
    }
    let list = unit.attr_locations(value.clone()).ok()??;
    let mut entries = list.take(MAX_RANGES).map_while(Result::ok);
    let holds = |range: gimli::Range| range.begin <= addr && addr < range.end;
    entries.find(|entry| holds(entry.range)).map(|entry| entry.data)
}

/// The state of the program in which expressions are evaluated.
pub(super) struct State<'a> {
    pub(super) machine: &'a dyn Machine,
    /// Computes the canonical frame address; `None` if it is unknown.
    pub(super) cfa: &'a dyn Fn() -> Option<u64>,
    /// The module's load bias.
    pub(super) bias: u64,
    /// The unit of the variable's entry, for base types and indexed addresses. An expression that
    /// the entry inherits from one in another unit is evaluated in this unit too.
    pub(super) unit: UnitRef<'a, Reader>,
}

impl State<'_> {
    /// Returns the home of a variable's value in this state. Does not read the value there. The
    /// whole value is [`Piece::OptimizedOut`] if its location depends on a value at the function's
    /// entry, and [`Piece::Unavailable`] if it depends on an unknown register or memory, or on
    /// damaged data. A constant has 8 bytes, of which the value may be the lowest ones only.
    pub(super) fn home(&self, description: &LocationDescription) -> Home {
        match description {
            LocationDescription::Expression { expression, frame_base } => {
                let base = || self.frame_base(frame_base.as_ref()?);
                self.evaluate(expression.clone(), &base).unwrap_or_else(Home::of)
            }
            LocationDescription::Constant(value) => {
                Home::of(Piece::Bytes(value.to_le_bytes().to_vec()))
            }
            LocationDescription::Bytes(bytes) => Home::of(Piece::Bytes(bytes.clone())),
            LocationDescription::OptimizedOut => Home::of(Piece::OptimizedOut),
        }
    }

    /// Evaluates the expression of a frame base; `None` if it is unknown.
    fn frame_base(&self, expression: &Expression<Reader>) -> Option<u64> {
        let home = self.evaluate(expression.clone(), &|| None).ok()?;
        match home.pieces.as_slice() {
            // A frame base in a register is that register's value (DWARF 5, 3.3.5).
            [(None, Piece::Register(number))] => self.machine.register(*number),
            [(None, Piece::Memory(addr))] => Some(addr.0),
            [(None, Piece::Bytes(bytes))] => Some(u64::from_le_bytes(*bytes.first_chunk()?)),
            _ => None,
        }
    }

    /// Evaluates a DWARF expression, in which `frame_base` is the frame base of the function. The
    /// error is [`Piece::OptimizedOut`] or [`Piece::Unavailable`], for the whole value.
    fn evaluate(
        &self,
        expression: Expression<Reader>,
        frame_base: &dyn Fn() -> Option<u64>,
    ) -> Result<Home, Piece> {
        let encoding: Encoding = self.unit.encoding();
        let mut evaluation = expression.evaluation(encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        let unavailable = || Piece::Unavailable;
        let mut result = evaluation.evaluate().map_err(|_| unavailable())?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size, base_type, space: None } => {
                    let value = self.memory(address, size, base_type).ok_or_else(unavailable)?;
                    evaluation.resume_with_memory(value)
                }
                EvaluationResult::RequiresRegister { register, base_type } => {
                    let word = self.register(register.0).ok_or_else(unavailable)?;
                    let kind = self.value_type(base_type).ok_or_else(unavailable)?;
                    let value = value_of(kind, word).ok_or_else(unavailable)?;
                    evaluation.resume_with_register(value)
                }
                EvaluationResult::RequiresFrameBase => {
                    let base = frame_base().ok_or_else(unavailable)?;
                    evaluation.resume_with_frame_base(base)
                }
                EvaluationResult::RequiresCallFrameCfa => {
                    let cfa = (self.cfa)().ok_or_else(unavailable)?;
                    evaluation.resume_with_call_frame_cfa(cfa)
                }
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    let address = address.wrapping_add(self.bias);
                    evaluation.resume_with_relocated_address(address)
                }
                EvaluationResult::RequiresIndexedAddress { index, relocate } => {
                    let address = self.unit.address(index).map_err(|_| unavailable())?;
                    let bias = if relocate { self.bias } else { 0 };
                    evaluation.resume_with_indexed_address(address.wrapping_add(bias))
                }
                EvaluationResult::RequiresBaseType(offset) => {
                    let kind = self.value_type(offset).ok_or_else(unavailable)?;
                    evaluation.resume_with_base_type(kind)
                }
                // The value that a register had at the function's entry is lost.
                EvaluationResult::RequiresEntryValue(_)
                | EvaluationResult::RequiresParameterRef(_) => return Err(Piece::OptimizedOut),
                _ => return Err(Piece::Unavailable),
            }
            .map_err(|_| unavailable())?;
        }
        let pieces = evaluation.result().into_iter().map(|piece| {
            let part = match piece.location {
                // A part of a register or of memory that does not begin at its first bit.
                _ if piece.bit_offset.is_some_and(|bits| bits != 0) => Piece::Unavailable,
                Location::Empty | Location::ImplicitPointer { .. } => Piece::OptimizedOut,
                Location::Register { register } => Piece::Register(register.0),
                Location::Address { address } => Piece::Memory(Addr(address)),
                Location::Value { value } => Piece::Bytes(bytes_of(value)),
                Location::Bytes { value } => gimli::Reader::to_slice(&value)
                    .map_or(Piece::Unavailable, |bytes| Piece::Bytes(bytes.into_owned())),
            };
            (piece.size_in_bits, part)
        });
        Ok(Home { pieces: pieces.collect() })
    }

    /// Returns a general register, or the lowest 8 bytes of an SSE register; `None` if it is
    /// unknown.
    fn register(&self, number: u16) -> Option<u64> {
        let vector = || Some(u64::from_le_bytes(*self.machine.vector(number)?.first_chunk()?));
        self.machine.register(number).or_else(vector)
    }

    /// Reads a value of a base type from memory; `None` if it is unknown, or has more than 8 bytes.
    fn memory(&self, address: u64, size: u8, base_type: gimli::UnitOffset) -> Option<Value> {
        let mut bytes = [0; 8];
        let wanted = bytes.get_mut(..size.into())?;
        if !self.machine.read(Addr(address), wanted) {
            return None;
        }
        value_of(self.value_type(base_type)?, u64::from_le_bytes(bytes))
    }

    /// Returns the base type at `offset`, of a typed value (DWARF 5, 2.5.1.2); `None` if there is
    /// none. Zero is the generic type.
    fn value_type(&self, offset: gimli::UnitOffset) -> Option<ValueType> {
        if offset.0 == 0 {
            return Some(ValueType::Generic);
        }
        let entry = self.unit.entry(offset).ok()?;
        ValueType::from_entry(&entry).ok()?
    }
}

/// Returns the value of a type whose lowest bytes are those of `word`; `None` if there is no such
/// type. `Value::from_u64` would convert the number to a floating-point type.
fn value_of(kind: ValueType, word: u64) -> Option<Value> {
    match kind {
        ValueType::Generic => Some(Value::Generic(word)),
        kind => Value::parse(kind, EndianSlice::new(&word.to_le_bytes(), LittleEndian)).ok(),
    }
}

/// Returns the bytes of a computed value in memory order: as many as its type has, or eight.
fn bytes_of(value: Value) -> Vec<u8> {
    match value {
        Value::Generic(value) | Value::U64(value) => value.to_le_bytes().to_vec(),
        Value::I8(value) => value.to_le_bytes().to_vec(),
        Value::U8(value) => value.to_le_bytes().to_vec(),
        Value::I16(value) => value.to_le_bytes().to_vec(),
        Value::U16(value) => value.to_le_bytes().to_vec(),
        Value::I32(value) => value.to_le_bytes().to_vec(),
        Value::U32(value) => value.to_le_bytes().to_vec(),
        Value::I64(value) => value.to_le_bytes().to_vec(),
        Value::F32(value) => value.to_le_bytes().to_vec(),
        Value::F64(value) => value.to_le_bytes().to_vec(),
    }
}
