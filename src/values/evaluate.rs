//! Evaluates bound questions in a state of the program.
//!
//! An expression evaluates to a [`Val`]: a type, and the home of the bytes ([`Home`]: where they
//! are, in pieces). So `a.b` only moves the home; bytes are read where an operator, a pointer or
//! the user needs them. The *shape* of a type ([`Evaluator::shape`]) is what the debug information
//! says of it. An evaluation fails ([`Fail`]) if the value is missing in this state, or if the
//! expression is wrong.
//!
//! [`Evaluator`] knows the symbols only, and [`Evaluation`] a question and a frame as well.

use super::arithmetic;
use super::bind::{Bound, Meaning};
use super::error::Error;
use super::home::{InFrame, address, part, read};
use super::number::{Number, integer_of, real_of, signedness};
use super::parse::{Basic, Expr, Item};
use super::shown::{Missing, Shown};
use super::ty::{MAX_LEVELS, Ty};
use crate::common::Addr;
use crate::insn::Registers;
use crate::symbols::{
    FrameRegisters, Home, Kind, Language, Machine, Member, Piece, Signature, Symbols, Type, TypeId,
    Variant,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// An evaluator of expressions, by the symbols of a process. It caches the types that it reads.
pub struct Evaluator<'s> {
    pub(super) symbols: &'s Symbols,
    /// The types that were read; `None` for void and damaged ones.
    types: RefCell<HashMap<TypeId, Option<Arc<Type>>>>,
}

/// A frame of a thread in a state of the program.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The frame's registers.
    pub registers: &'a FrameRegisters,
    /// The memory, and the registers of the thread, which are those of its innermost frame.
    pub machine: &'a dyn Machine,
    /// True if this is the innermost frame of its call stack.
    pub is_innermost: bool,
}

/// An intermediate value: its type, and where its bytes are.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub(super) ty: Ty,
    pub(super) home: Home,
}

/// The reason why an expression has no value: its state lacks it, or the expression is wrong.
pub(super) enum Fail {
    /// The value is missing in this state.
    Missing(Missing),
    /// The expression is wrong, whatever the state.
    Error(Error),
}

impl From<Missing> for Fail {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

/// The result of an evaluation.
pub(super) type Evaluated<T> = Result<T, Fail>;

impl<'s> Evaluator<'s> {
    /// Creates an evaluator that uses `symbols`.
    pub fn new(symbols: &'s Symbols) -> Self {
        Self { symbols, types: RefCell::default() }
    }

    /// Returns the arguments and the result of the innermost function at an address, if known.
    pub fn signature_at(&self, addr: Addr) -> Option<Signature> {
        self.symbols.signature_at(addr)
    }

    /// Reads a type, at first use; later uses take it from the cache. `None` if it is void, or
    /// damaged.
    pub(super) fn read_type(&self, type_id: TypeId) -> Option<Arc<Type>> {
        if let Some(known) = self.types.borrow().get(&type_id) {
            return known.clone();
        }
        let read = self.symbols.read_type(type_id).map(Arc::new);
        self.types.borrow_mut().insert(type_id, read.clone());
        read
    }

    /// Evaluates the items of a question in a frame, which has to be at the address for which the
    /// question was bound. Returns a value for each item, in order. A value that the state lacks is
    /// [`Shown::Missing`]. Fails, for the whole question, if an expression is wrong.
    pub fn answer(&self, bound: &Bound, frame: &Frame<'_>) -> Result<Vec<Shown>, Error> {
        let machine = InFrame {
            registers: frame.registers,
            machine: frame.machine,
            is_innermost: frame.is_innermost,
        };
        let evaluation = Evaluation { evaluator: self, bound, frame, machine: &machine };
        let answer = |(_, item): &(String, Item)| match item {
            Item::Backtrace(count) => Ok(Shown::Frames(self.backtrace(frame, *count))),
            Item::Value(expr) => match evaluation.value(expr) {
                Ok(value) => Ok(evaluation.evaluator.show(&value, &machine)),
                Err(Fail::Missing(missing)) => Ok(Shown::Missing(missing)),
                Err(Fail::Error(error)) => Err(error),
            },
        };
        bound.items.iter().map(answer).collect()
    }

    /// Returns a member of the structure `of`, at byte `at`; a bit field, at its `bits` instead. A
    /// member of unknown size is taken as empty.
    pub(super) fn member(&self, of: &Val, member: &Member, at: u64, machine: &dyn Machine) -> Val {
        let ty = Ty::or_void(member.type_id);
        let Some((first, bits)) = member.bits else {
            let size = self.size_of(&ty).unwrap_or(0);
            return Val { ty, home: part(&of.home, at, size, machine) };
        };
        let home = self.bit_field(of, first, bits, &ty, machine);
        Val { ty, home: Home::of(home) }
    }

    /// Reads `bits` bits of a structure, from bit `first` on, as a value of type `ty`. It is
    /// unavailable if `ty` is no integer, or for more than 64 bits.
    fn bit_field(&self, of: &Val, first: u64, bits: u64, ty: &Ty, machine: &dyn Machine) -> Piece {
        let Some(shape) = self.shape(ty) else { return Piece::Unavailable };
        let is_signed = signedness(&shape.kind);
        let (Some(is_signed), Some(size), 1..=64) = (is_signed, shape.size_bytes, bits) else {
            return Piece::Unavailable;
        };
        let Some(end) = first.checked_add(bits) else { return Piece::Unavailable };
        let (begin, end) = (first / 8, end.div_ceil(8));
        let around = part(&of.home, begin, end - begin, machine);
        match read(&around, end - begin, machine) {
            Err(Missing::OptimizedOut) => Piece::OptimizedOut,
            Err(Missing::Unavailable) => Piece::Unavailable,
            Ok(bytes) => {
                let word = integer_of(&bytes, false).unwrap_or(0) >> (first % 8);
                let shift = 128 - bits;
                let value =
                    if is_signed { word << shift >> shift } else { word & ((1_i128 << bits) - 1) };
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.truncate(usize::try_from(size).unwrap_or(8));
                Piece::Bytes(bytes)
            }
        }
    }

    /// Returns the members of a Rust enum's active variant, as one value: the variant for the value
    /// of the discriminant, else the one for all other values. `None` if there is neither. Fails if
    /// the discriminant is missing.
    pub(super) fn variant(
        &self,
        of: &Val,
        discriminant: Option<&Member>,
        variants: &[Variant],
        machine: &dyn Machine,
    ) -> Result<Option<Val>, Missing> {
        let value = match discriminant {
            None => None,
            Some(member) => {
                let at = member.offset_bytes.ok_or(Missing::Unavailable)?;
                let value = self.member(of, member, at, machine);
                let size = self.size_of(&value.ty).ok_or(Missing::Unavailable)?;
                let bytes = read(&value.home, size, machine)?;
                let value = integer_of(&bytes, false).ok_or(Missing::Unavailable)?;
                Some((u64::try_from(value).map_err(|_| Missing::Unavailable)?, size))
            }
        };
        let is_meant = |variant: &&Variant| match (variant.value, value) {
            (Some(wanted), Some((value, size))) => {
                let mask = if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
                wanted & mask == value
            }
            _ => false,
        };
        let found = variants.iter().find(is_meant);
        let found = found.or_else(|| variants.iter().find(|variant| variant.value.is_none()));
        let Some(variant) = found else { return Ok(None) };
        let at = variant.member.offset_bytes.ok_or(Missing::Unavailable)?;
        Ok(Some(self.member(of, &variant.member, at, machine)))
    }

    /// Returns a value as a number, a pointer or reference as its address; `None` for others.
    pub(super) fn number(&self, value: &Val, machine: &dyn Machine) -> Evaluated<Option<Number>> {
        let Some(shape) = self.shape(&value.ty) else { return Ok(None) };
        let is_signed = match &shape.kind {
            Kind::Pointer { .. } => Some(false),
            kind => signedness(kind),
        };
        let format = match (is_signed, &shape.kind) {
            (Some(_), _) => None,
            (None, Kind::Float { format }) => *format,
            (None, _) => return Ok(None),
        };
        let size = shape.size_bytes.ok_or(Missing::Unavailable)?;
        let bytes = read(&value.home, size, machine)?;
        if let Some(is_signed) = is_signed {
            let integer = integer_of(&bytes, is_signed).ok_or(Missing::Unavailable)?;
            return Ok(Some(Number::Integer { value: integer, size_bytes: size, is_signed }));
        }
        let real = real_of(&bytes, format)?;
        Ok(Some(Number::Real { value: real, size_bytes: size.min(8) }))
    }
}

/// The evaluation of a bound question, in one frame and one state of the program.
pub(super) struct Evaluation<'a, 's> {
    pub(super) evaluator: &'a Evaluator<'s>,
    pub(super) bound: &'a Bound,
    pub(super) frame: &'a Frame<'a>,
    pub(super) machine: &'a InFrame<'a>,
}

impl Evaluation<'_, '_> {
    /// Evaluates an expression. A register is a signed integer of 64 bits.
    pub(super) fn value(&self, expr: &Expr) -> Evaluated<Val> {
        match expr {
            Expr::Name(name) => self.named(name),
            Expr::Register(name) => {
                let number = register(name).ok_or(Missing::Unavailable)?;
                let ty = Ty::Basic(Basic::Integer { size_bytes: 8, is_signed: true });
                Ok(Val { ty, home: Home::of(Piece::Register(number)) })
            }
            Expr::Integer(value) => {
                let is_small = i32::try_from(*value).is_ok();
                let is_signed = i64::try_from(*value).is_ok();
                let size = if is_small { 4 } else { 8 };
                Ok(value_of(Number::integer((*value).into(), size, is_signed)))
            }
            Expr::Real(value) => Ok(value_of(Number::Real { value: *value, size_bytes: 8 })),
            Expr::Member(of, name) => self.member_by_name(&self.value(of)?, name),
            Expr::Index(of, index) => {
                let of = self.without_reference(&self.value(of)?)?;
                self.index(&of, &self.value(index)?)
            }
            Expr::Target(of) => self.target(&self.without_reference(&self.value(of)?)?),
            Expr::Address(of) => {
                let value = self.without_reference(&self.value(of)?)?;
                pointer_to(&value.home, value.ty)
            }
            Expr::Unary(operator, of) => {
                let number = self.required_number(&self.value(of)?, "this operator")?;
                let result = arithmetic::unary(*operator, number);
                Ok(value_of(result.ok_or(Missing::Unavailable)?))
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::Cast(basic, stars, of) => self.cast(*basic, *stars, &self.value(of)?),
        }
    }

    /// Returns the value of a name. It is missing if the name has no meaning at the address.
    fn named(&self, name: &str) -> Evaluated<Val> {
        match self.bound.names.get(name) {
            Some(Meaning::Variable(location, type_id)) => {
                let home = location.as_ref().and_then(|location| {
                    let symbols = self.evaluator.symbols;
                    symbols.home_of(location, self.frame.registers, self.machine)
                });
                let home = home.unwrap_or(Home::of(Piece::Unavailable));
                Ok(Val { ty: Ty::or_void(*type_id), home })
            }
            Some(Meaning::MemberOfThis) => self.member_by_name(&self.named("this")?, name),
            Some(Meaning::Nothing) | None => Err(Missing::Unavailable.into()),
        }
    }

    /// Follows references and pointers to a value that is neither. Fails after [`MAX_LEVELS`],
    /// since a damaged pointer type may point to itself.
    fn dereferenced(&self, value: &Val) -> Evaluated<Val> {
        let mut value = value.clone();
        for _ in 0..MAX_LEVELS {
            if self.evaluator.target_of(&value.ty).is_none() {
                return Ok(value);
            }
            value = self.target(&value)?;
        }
        Err(Missing::Unavailable.into())
    }

    /// Returns a member by name. `of` may be a pointer to the structure, or an enum of Rust, whose
    /// active variant is searched. Fails if there is no such member; as missing if no variant is
    /// active, or the member may be in a base class whose place is unknown.
    fn member_by_name(&self, of: &Val, name: &str) -> Evaluated<Val> {
        let mut of = self.dereferenced(of)?;
        if let Some(shape) = self.evaluator.shape(&of.ty)
            && let Kind::Variants { discriminant, variants } = &shape.kind
        {
            let found =
                self.evaluator.variant(&of, discriminant.as_ref(), variants, self.machine)?;
            of = found.ok_or(Missing::Unavailable)?;
        }
        let Some((at, member)) = self.evaluator.find_member(&of.ty, name) else {
            if self.evaluator.may_inherit(&of.ty) {
                return Err(Missing::Unavailable.into());
            }
            let of = self.evaluator.description_of(&of.ty);
            return Err(Fail::Error(Error::NoMember { of, name: name.to_owned() }));
        };
        Ok(self.evaluator.member(&of, &member, at, self.machine))
    }

    /// Returns the error for an operand of the wrong type: `what` needs `needs`.
    pub(super) fn wrong(&self, what: &'static str, needs: &'static str, value: &Val) -> Fail {
        let of = self.evaluator.description_of(&value.ty);
        Fail::Error(Error::WrongType { what, needs, of })
    }

    /// Returns the target of a pointer or reference, or the first element of an array or slice.
    /// Fails for other values. Does not check that the target's memory is known.
    fn target(&self, value: &Val) -> Evaluated<Val> {
        let Some(ty) = self.evaluator.target_of(&value.ty) else {
            if let Some((ty, home)) = self.first_element(value) {
                return Ok(Val { ty, home });
            }
            if let Some(pointer) = self.slice_pointer(value) {
                return self.target(&pointer);
            }
            return Err(self.wrong("*", "a pointer", value));
        };
        let bytes = read(&value.home, 8, self.machine)?;
        let addr = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let addr = Addr(addr.ok_or(Missing::Unavailable)?);
        Ok(Val { ty, home: Home::of(Piece::Memory(addr)) })
    }

    /// Returns the type and the home of an array's first element; `None` for other values, and for
    /// elements of unknown size.
    fn first_element(&self, array: &Val) -> Option<(Ty, Home)> {
        let shape = self.evaluator.shape(&array.ty)?;
        let ty = element_of(&shape)?;
        let size = self.evaluator.size_of(&ty)?;
        Some((ty, part(&array.home, 0, size, self.machine)))
    }

    /// Returns the pointer to the elements of a slice of Rust or Go; `None` for other values.
    fn slice_pointer(&self, slice: &Val) -> Option<Val> {
        let shape = self.evaluator.shape(&slice.ty)?;
        if !matches!(shape.language, Language::Rust | Language::Go) {
            return None;
        }
        let Kind::Structure(members) = &shape.kind else { return None };
        let data = members.iter().find(|member| is_slice_pointer(member))?;
        self.evaluator.target_of(&Ty::or_void(data.type_id))?;
        Some(self.evaluator.member(slice, data, data.offset_bytes?, self.machine))
    }

    /// Returns an element of an array, slice or pointer. Does not check `index` against a length,
    /// but a negative one of an array is missing. Fails for other values.
    fn index(&self, of: &Val, index: &Val) -> Evaluated<Val> {
        let Number::Integer { value: index, .. } = self.required_number(index, "[]")? else {
            return Err(self.wrong("[]", "an integer", index));
        };
        let shape = self.evaluator.shape(&of.ty);
        let Some(shape) = shape else { return Err(self.wrong("[]", "an array", of)) };
        if let Some(pointer) = self.slice_pointer(of) {
            return self.offset_pointer(&pointer, index).and_then(|pointer| self.target(&pointer));
        }
        if let Some(ty) = element_of(&shape) {
            let size = self.evaluator.size_of(&ty).ok_or(Missing::Unavailable)?;
            let Ok(at) = u64::try_from(index) else { return Err(Missing::Unavailable.into()) };
            let at = at.checked_mul(size).ok_or(Missing::Unavailable)?;
            return Ok(Val { ty, home: part(&of.home, at, size, self.machine) });
        }
        if self.evaluator.target_of(&of.ty).is_none() {
            return Err(self.wrong("[]", "an array or a pointer", of));
        }
        self.target(&self.offset_pointer(of, index)?)
    }

    /// Returns `pointer + by` as in C: moved by `by` times the size of the pointer's target. A
    /// target without a size counts as one byte, as in GNU C. Fails if `pointer` is no number, with
    /// an error about `[]`.
    pub(super) fn offset_pointer(&self, pointer: &Val, by: i128) -> Evaluated<Val> {
        let target = self.evaluator.target_of(&pointer.ty);
        let size = target.as_ref().and_then(|target| self.evaluator.size_of(target));
        let size = i128::from(size.unwrap_or(1));
        let at = self.required_number(pointer, "[]")?.to_integer();
        let moved = at.wrapping_add(by.wrapping_mul(size));
        let (_, bytes) = Number::integer(moved, 8, false).to_bytes();
        Ok(Val { ty: pointer.ty.clone(), home: Home::of(Piece::Bytes(bytes)) })
    }

    /// Returns a value as a number, an array of C as the address of its first element. Fails if it
    /// is none; `what` is the operator, for that error.
    pub(super) fn required_number(&self, value: &Val, what: &'static str) -> Evaluated<Number> {
        let value = self.decayed(value)?;
        match self.evaluator.number(&value, self.machine)? {
            Some(number) => Ok(number),
            None => Err(self.wrong(what, "a number", &value)),
        }
    }

    /// Returns the target of a reference of C++; any other value as it is.
    pub(super) fn without_reference(&self, value: &Val) -> Evaluated<Val> {
        let shape = self.evaluator.shape(&value.ty);
        let is_reference = shape
            .is_some_and(|shape| matches!(shape.kind, Kind::Pointer { is_reference: true, .. }));
        if is_reference { self.target(value) } else { Ok(value.clone()) }
    }

    /// Returns the value as an operand: the target of a reference, and a pointer to the first
    /// element of an array of C or C++.
    pub(super) fn decayed(&self, value: &Val) -> Evaluated<Val> {
        let value = self.without_reference(value)?;
        let Some(shape) = self.evaluator.shape(&value.ty) else { return Ok(value) };
        match element_of(&shape) {
            Some(element) if decays(&shape) => pointer_to(&value.home, element),
            _ => Ok(value),
        }
    }
}

/// Returns a pointer to the value at `home`, which has the type `target`. Fails if the value is not
/// in memory.
fn pointer_to(home: &Home, target: Ty) -> Evaluated<Val> {
    let Some(at) = address(home) else {
        return Err(match home.pieces.as_slice() {
            [(_, Piece::OptimizedOut)] => Missing::OptimizedOut.into(),
            _ => Missing::Unavailable.into(),
        });
    };
    let home = Home::of(Piece::Bytes(at.0.to_le_bytes().to_vec()));
    Ok(Val { ty: Ty::Pointer(Arc::new(target)), home })
}

/// Returns true if an array is a pointer where a number is needed. Vectors are not, and neither are
/// arrays of Rust and Go.
fn decays(array: &Type) -> bool {
    matches!(array.kind, Kind::Array { is_vector: false, .. })
        && matches!(array.language, Language::C | Language::Other)
}

/// Returns a number as an intermediate value, which has computed bytes.
pub(super) fn value_of(number: Number) -> Val {
    let (ty, bytes) = number.to_bytes();
    Val { ty, home: Home::of(Piece::Bytes(bytes)) }
}

/// Returns true if the member is the pointer of a slice: `data_ptr` in Rust, `array` in Go.
pub(super) fn is_slice_pointer(member: &Member) -> bool {
    matches!(member.name.as_deref(), Some("data_ptr" | "array"))
}

/// Returns the type of an array's elements, which are arrays if it has several dimensions. `None`
/// if the type is not an array.
pub(super) fn element_of(array: &Type) -> Option<Ty> {
    let Kind::Array { element, counts, .. } = &array.kind else { return None };
    match counts.split_first() {
        Some((_, rest)) if !rest.is_empty() => Some(Ty::Row(*element, rest.into())),
        _ => Some(Ty::or_void(*element)),
    }
}

/// Returns the DWARF number of a general register or of RIP; `None` for other names. gdb's names
/// `pc`, `sp` and `fp` are known too.
pub(super) fn register(name: &str) -> Option<u16> {
    Registers::dwarf_number(match name {
        "pc" => "rip",
        "sp" => "rsp",
        "fp" => "rbp",
        name => name,
    })
}
