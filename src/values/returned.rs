//! The value that a function returned, by the ABI of C (System V ABI for AMD64, 3.2.3): a value of
//! at most 16 bytes is in registers. The ABI divides it into two eightbytes, its lower and upper 8
//! bytes, and the class of each selects the register. A larger one is in memory, at the address in
//! RAX.

use super::evaluate::{Evaluator, Frame, Val};
use super::home::InFrame;
use super::shown::{Missing, Shown};
use super::ty::Ty;
use crate::common::Addr;
use crate::symbols::{Home, Kind, Language, Piece, Signature, TypeId, XMM0};

const RAX: u16 = 0;
const RDX: u16 = 1;
const XMM1: u16 = 18;
/// The maximum size of a value that is returned in registers, in bytes.
const IN_REGISTERS: u64 = 16;
/// The size of the largest vector register, ZMM0.
const LARGEST_VECTOR: u64 = 64;
/// The limit on the nested members and elements of a value that is returned in registers.
const MAX_PARTS: usize = 128;

/// The class of an eightbyte of a value, by which the ABI selects a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// No member is in the eightbyte.
    Nothing,
    /// In a general register.
    Integer,
    /// In an SSE register.
    Sse,
    /// In the upper half of the SSE register of the eightbyte before.
    SseUp,
}

impl Evaluator<'_> {
    /// Returns the value that a function has just returned. `frame` is its caller's frame, at the
    /// return address. `None` if the function returns nothing. The value is missing where the
    /// language does not determine its place, as for structures of Rust.
    pub fn returned(&self, of: &Signature, frame: &Frame<'_>) -> Option<Shown> {
        let type_id = of.returns?;
        let machine = InFrame {
            registers: frame.registers,
            machine: frame.machine,
            is_innermost: frame.is_innermost,
        };
        let Some(home) = self.home_of_result(type_id, of.language, &machine) else {
            return Some(Shown::Missing(Missing::Unavailable));
        };
        Some(self.show(&Val { ty: Ty::Of(type_id), home }, &machine))
    }

    /// Returns the home of a result just after the return; `None` if the ABI does not determine it,
    /// its type is damaged, or its address in RAX is unknown.
    fn home_of_result(
        &self,
        type_id: TypeId,
        language: Language,
        machine: &InFrame<'_>,
    ) -> Option<Home> {
        let ty = Ty::Of(type_id);
        let (shape, size) = (self.shape(&ty)?, self.size_of(&ty)?);
        let is_aggregate = matches!(
            shape.kind,
            Kind::Structure(_)
                | Kind::Union(_)
                | Kind::Array { is_vector: false, .. }
                | Kind::Variants { .. }
        );
        if size == 0 {
            return Some(Home { pieces: Vec::new() });
        }
        let is_known = matches!(language, Language::C | Language::Other);
        if size > IN_REGISTERS {
            // The upper halves of YMM0 and ZMM0 are not read.
            if size <= LARGEST_VECTOR && self.may_have_large_vector(&ty) {
                return None;
            }
            // The function returned the value's address, in Rust not always.
            let addr = crate::symbols::Machine::register(machine, RAX)?;
            return is_known.then_some(Home::of(Piece::Memory(Addr(addr))));
        }
        // Classes of C++ may be returned in memory, and Rust and Go have other rules.
        let is_vector = matches!(shape.kind, Kind::Array { is_vector: true, .. });
        if is_aggregate && language != Language::C || is_vector && !is_known {
            return None;
        }
        let classes = self.classes(&ty)?;
        let (mut general, mut vectors) = ([RAX, RDX].into_iter(), [XMM0, XMM1].into_iter());
        let mut pieces = Vec::new();
        for (number, class) in (0_u64..).zip(classes) {
            let bytes = size.saturating_sub(8 * number).min(8);
            if class == Class::SseUp
                && let Some((bits, Piece::Register(XMM0))) = pieces.last_mut()
            {
                *bits = Some(128);
            } else if bytes > 0 {
                let register = match class {
                    Class::Sse | Class::SseUp => vectors.next()?,
                    Class::Integer => general.next()?,
                    Class::Nothing => return None,
                };
                pieces.push((Some(8 * bytes), Piece::Register(register)));
            }
        }
        Some(Home { pieces })
    }

    /// Returns true if a value may contain a vector that is larger than 16 bytes: also if a type in
    /// it is unknown, or it has more than [`MAX_PARTS`] parts.
    fn may_have_large_vector(&self, ty: &Ty) -> bool {
        let mut parts = vec![ty.clone()];
        for _ in 0..MAX_PARTS {
            let Some(ty) = parts.pop() else { return false };
            let Some(shape) = self.shape(&ty) else { return true };
            match &shape.kind {
                Kind::Structure(members) | Kind::Union(members) => {
                    parts.extend(members.iter().map(|member| Ty::or_void(member.type_id)));
                }
                Kind::Array { is_vector: true, .. }
                    if self.size_of(&ty).is_none_or(|size| size > IN_REGISTERS) =>
                {
                    return true;
                }
                Kind::Array { is_vector: true, .. } => {}
                Kind::Array { element, .. } => parts.push(Ty::or_void(*element)),
                _ => {}
            }
        }
        true
    }

    /// Returns the classes of a value's two eightbytes. `None` for a value that is returned in
    /// memory, or in registers other than RAX, RDX, XMM0 and XMM1, and if that is not known, as for
    /// one with more than [`MAX_PARTS`] parts.
    fn classes(&self, ty: &Ty) -> Option<[Class; 2]> {
        let (mut classes, mut left) = ([Class::Nothing; 2], MAX_PARTS);
        let mut parts = vec![(ty.clone(), 0_u64)];
        while let Some((ty, at)) = parts.pop() {
            left = left.checked_sub(1)?;
            let (shape, size) = (self.shape(&ty)?, self.size_of(&ty)?);
            let class = match &shape.kind {
                Kind::Structure(members) | Kind::Union(members) => {
                    for member in members {
                        let offset = member.offset_bytes?;
                        if let Some((first, bits)) = member.bits {
                            // A packed bit field may be in both eightbytes.
                            let last = first.checked_add(bits.saturating_sub(1))?;
                            for bit in [first, last] {
                                let byte = at.checked_add(bit / 8)?;
                                merge_class(&mut classes, byte, Class::Integer)?;
                            }
                        } else {
                            parts.push((Ty::or_void(member.type_id), at.checked_add(offset)?));
                        }
                    }
                    continue;
                }
                Kind::Array { is_vector: true, .. } if at == 0 && size == IN_REGISTERS => {
                    merge_class(&mut classes, 0, Class::Sse)?;
                    merge_class(&mut classes, 8, Class::SseUp)?;
                    continue;
                }
                // Compilers disagree on smaller vectors, and return one double in memory.
                Kind::Array { is_vector: true, counts, .. }
                    if size == 8 && *counts != [Some(1)] =>
                {
                    Class::Sse
                }
                Kind::Array { is_vector: true, .. } => return None,
                Kind::Array { .. } => {
                    let element = super::evaluate::element_of(&shape)?;
                    let step = self.size_of(&element).filter(|step| *step > 0)?;
                    for number in 0..(size / step).min(IN_REGISTERS) {
                        parts.push((element.clone(), at.checked_add(number * step)?));
                    }
                    continue;
                }
                Kind::Float { .. } if size <= 8 => Class::Sse,
                Kind::Integer { .. }
                | Kind::Character { .. }
                | Kind::Boolean
                | Kind::Enumeration { .. }
                | Kind::Pointer { .. } => Class::Integer,
                _ => return None,
            };
            if size == 0 || !at.is_multiple_of(size) {
                return None;
            }
            merge_class(&mut classes, at, class)?;
            if size > 8 {
                merge_class(&mut classes, at + 8, class)?;
            }
        }
        Some(classes)
    }
}

/// Merges `class` into the class of the eightbyte that contains the byte at offset `at`: one
/// integer makes it an integer. Returns `None`, and merges nothing, beyond 16 bytes.
fn merge_class(classes: &mut [Class; 2], at: u64, class: Class) -> Option<()> {
    let eightbyte = classes.get_mut(usize::try_from(at / 8).ok()?)?;
    *eightbyte = match (*eightbyte, class) {
        (Class::Nothing, class) => class,
        (before, class) if before == class => class,
        (Class::Integer, _) | (_, Class::Integer) => Class::Integer,
        _ => Class::Sse,
    };
    Some(())
}
