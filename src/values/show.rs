//! Reads values into the form that the user sees.

use super::evaluate::{Evaluator, Val, element_of, is_slice_pointer};
use super::home::{part, read};
use super::number::{integer_of, real_of};
use super::shown::{Missing, Shown, Text};
use super::ty::Ty;
use crate::common::Addr;
use crate::symbols::{Home, Kind, Language, Machine, Member, Piece, Type};

/// The maximum depth of nested structures and arrays in a shown value.
const MAX_DEPTH: usize = 12;
/// The maximum number of elements of an array, and of bytes of a string, that are shown; gdb's
/// `print elements`.
const ELEMENTS: usize = 200;
/// The limit on all values nested in one shown value.
const MAX_VALUES: usize = 10_000;
const PAGE_BYTES: u64 = 4096;

/// The state of reading one value with all values nested in it.
struct Show<'a, 's> {
    evaluator: &'a Evaluator<'s>,
    machine: &'a dyn Machine,
    /// The number of nested values that may still be added.
    left: usize,
}

impl Evaluator<'_> {
    /// Returns a value as the user sees it. Pointers are not followed, except to strings.
    pub(super) fn show(&self, value: &Val, machine: &dyn Machine) -> Shown {
        Show { evaluator: self, machine, left: MAX_VALUES }.value(value, 0)
    }
}

impl Show<'_, '_> {
    /// Reads a value as [`Self::known`] does; [`Shown::Missing`] if that fails.
    fn value(&mut self, value: &Val, depth: usize) -> Shown {
        self.known(value, depth).unwrap_or_else(Shown::Missing)
    }

    /// Reads a value by the kind of its type. Fails if it is missing, if it is nested too deeply,
    /// or if the limit on nested values is reached.
    fn known(&mut self, value: &Val, depth: usize) -> Result<Shown, Missing> {
        self.left = self.left.checked_sub(1).ok_or(Missing::Unavailable)?;
        if let [(_, Piece::OptimizedOut)] = value.home.pieces.as_slice() {
            return Err(Missing::OptimizedOut);
        }
        let shape = self.evaluator.shape(&value.ty).ok_or(Missing::Unavailable)?;
        if depth > MAX_DEPTH {
            return Err(Missing::Unavailable);
        }
        match &shape.kind {
            Kind::Structure(members) => self.structure(value, &shape, members, depth),
            Kind::Union(members) => Ok(self.members(value, &shape, members, depth)),
            Kind::Variants { discriminant, variants } => {
                let found =
                    self.evaluator.variant(value, discriminant.as_ref(), variants, self.machine)?;
                let found = found.ok_or(Missing::Unavailable)?;
                let inner = self.evaluator.shape(&found.ty).ok_or(Missing::Unavailable)?;
                let shown = self.known(&found, depth + 1)?;
                let (Shown::Structure { members, .. }, Some(name)) = (shown, inner.name.clone())
                else {
                    return Err(Missing::Unavailable);
                };
                Ok(Shown::Structure { variant: Some(name), members, is_rust: true })
            }
            Kind::Array { counts, .. } => self.array(value, &shape, counts, depth),
            Kind::Pointer { is_reference: true, .. } => {
                let target = self.target(value)?;
                self.known(&target, depth + 1)
            }
            Kind::Pointer { .. } => self.pointer(value),
            Kind::Function | Kind::Other => Err(Missing::Unavailable),
            _ => self.scalar(value, &shape),
        }
    }

    /// Reads a number, a character, a boolean or a value of an enumeration. Fails if it is missing,
    /// or has more than 16 bytes.
    fn scalar(&self, value: &Val, shape: &Type) -> Result<Shown, Missing> {
        let size = shape.size_bytes.filter(|size| *size <= 16).ok_or(Missing::Unavailable)?;
        let bytes = read(&value.home, size, self.machine)?;
        let integer = |is_signed| integer_of(&bytes, is_signed).ok_or(Missing::Unavailable);
        Ok(match &shape.kind {
            Kind::Integer { is_signed } => Shown::Integer(integer(*is_signed)?),
            Kind::Character { is_signed } => {
                let code = integer(*is_signed)?;
                let scalar = u32::try_from(code).ok().and_then(char::from_u32);
                match (shape.language, size, scalar) {
                    (Language::Rust, 4, Some(scalar)) => Shown::Scalar(scalar),
                    // One-byte characters of Rust and Go are shown as integers.
                    (Language::Rust | Language::Go, ..) => Shown::Integer(code),
                    _ => Shown::Character(code),
                }
            }
            Kind::Boolean => match integer(false)? {
                0 => Shown::Boolean(false),
                1 => Shown::Boolean(true),
                other => Shown::Integer(other),
            },
            Kind::Float { format } => Shown::Float(real_of(&bytes, *format)?),
            Kind::Enumeration { is_signed, names } => {
                let cut = u64::try_from(integer(false)?).map_err(|_| Missing::Unavailable)?;
                let name = names.iter().find(|(of, _)| *of == cut).map(|(_, name)| name.clone());
                let name = name.or_else(|| flags(cut, names));
                Shown::Enumerator { name, value: integer(*is_signed)? }
            }
            _ => return Err(Missing::Unavailable),
        })
    }

    fn address_in(&self, value: &Val) -> Result<Addr, Missing> {
        let bytes = read(&value.home, 8, self.machine)?;
        let word = bytes.first_chunk().ok_or(Missing::Unavailable)?;
        Ok(Addr(u64::from_le_bytes(*word)))
    }

    fn target(&self, pointer: &Val) -> Result<Val, Missing> {
        let ty = self.evaluator.target_of(&pointer.ty).ok_or(Missing::Unavailable)?;
        Ok(Val { ty, home: Home::of(Piece::Memory(self.address_in(pointer)?)) })
    }

    /// Reads a pointer, with the string or the name of the function to which it points, if they are
    /// known. Only a pointer to one-byte characters of C or C++ has a string.
    fn pointer(&self, value: &Val) -> Result<Shown, Missing> {
        let addr = self.address_in(value)?;
        let target = self.evaluator.target_of(&value.ty);
        let target = target.and_then(|target| self.evaluator.shape(&target));
        let kind = target.as_ref().map(|target| (&target.kind, target.size_bytes, target.language));
        let (mut string, mut function) = (None, None);
        match kind {
            Some((Kind::Character { .. }, Some(1), Language::C | Language::Other)) => {
                string = self.string(addr);
            }
            Some((Kind::Function, ..)) => {
                let found = self.evaluator.symbols.function_at(addr);
                function = found.filter(|found| found.offset == 0).map(|found| found.name);
            }
            _ => {}
        }
        Ok(Shown::Pointer { addr, string, function })
    }

    /// Reads the string at `addr`: up to its zero byte, the end of known memory, or [`ELEMENTS`]
    /// bytes. `None` if the memory at `addr` is unknown.
    fn string(&self, addr: Addr) -> Option<Text> {
        let (mut bytes, mut at) = (Vec::new(), addr.0);
        while bytes.len() < ELEMENTS {
            let left = PAGE_BYTES - at % PAGE_BYTES;
            let wanted = usize::try_from(left).ok()?.min(ELEMENTS - bytes.len());
            let mut piece = vec![0; wanted];
            if !self.machine.read(Addr(at), &mut piece) {
                // The string ends where the memory ends.
                return (!bytes.is_empty()).then_some(Text { bytes, has_more: true });
            }
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                bytes.extend(piece.get(..end)?);
                return Some(Text { bytes, has_more: false });
            }
            bytes.extend(piece);
            at = at.wrapping_add(left);
        }
        let mut next = [0];
        let after = addr.wrapping_add(ELEMENTS as u64);
        let has_more = !self.machine.read(after, &mut next) || next != [0];
        Some(Text { bytes, has_more })
    }

    /// Reads a structure. Strings and slices of Rust and Go are structures in the debug
    /// information, and are read as strings and arrays.
    fn structure(
        &mut self,
        value: &Val,
        shape: &Type,
        members: &[Member],
        depth: usize,
    ) -> Result<Shown, Missing> {
        let name = shape.name.as_deref().unwrap_or_default();
        match shape.language {
            Language::Rust if name == "&str" || name.starts_with("&mut str") => {
                return self.counted_string(value, members, "data_ptr", "length");
            }
            Language::Go if name == "string" => {
                return self.counted_string(value, members, "str", "len");
            }
            Language::Rust if name.starts_with("&[") || name.starts_with("&mut [") => {
                return self.slice(value, members, "length", depth);
            }
            Language::Go if members.first().is_some_and(is_slice_pointer) => {
                return self.slice(value, members, "len", depth);
            }
            _ => {}
        }
        Ok(self.members(value, shape, members, depth))
    }

    /// Reads all members. If all are missing for one reason, so is the whole value.
    fn members(&mut self, value: &Val, shape: &Type, members: &[Member], depth: usize) -> Shown {
        let shown = members.iter().map(|member| {
            let part = member
                .offset_bytes
                .map(|at| self.evaluator.member(value, member, at, self.machine));
            let shown = part
                .map_or(Shown::Missing(Missing::Unavailable), |part| self.value(&part, depth + 1));
            let name = if member.is_base {
                let base = self.evaluator.shape(&Ty::or_void(member.type_id));
                base.and_then(|base| Some(format!("<{}>", base.name.as_ref()?)))
            } else {
                member.name.clone()
            };
            (name, shown)
        });
        let members: Vec<(Option<String>, Shown)> = shown.collect();
        if let Some((_, Shown::Missing(first))) = members.first()
            && members.iter().all(|(_, shown)| *shown == Shown::Missing(*first))
        {
            return Shown::Missing(*first);
        }
        Shown::Structure { variant: None, members, is_rust: shape.language == Language::Rust }
    }

    /// Returns the member called `name` of `members`. Fails if there is none, or if its offset is
    /// unknown.
    fn field(&self, value: &Val, members: &[Member], name: &str) -> Result<Val, Missing> {
        let member = members.iter().find(|member| member.name.as_deref() == Some(name));
        let member = member.ok_or(Missing::Unavailable)?;
        let at = member.offset_bytes.ok_or(Missing::Unavailable)?;
        Ok(self.evaluator.member(value, member, at, self.machine))
    }

    fn word(&self, value: &Val) -> Result<u64, Missing> {
        let bytes = read(&value.home, 8, self.machine)?;
        Ok(u64::from_le_bytes(*bytes.first_chunk().ok_or(Missing::Unavailable)?))
    }

    /// Reads at most [`ELEMENTS`] bytes of a string that is a pointer and a length: `data` and
    /// `length` are the names of these members. Fails if a byte is unknown.
    fn counted_string(
        &self,
        value: &Val,
        members: &[Member],
        data: &str,
        length: &str,
    ) -> Result<Shown, Missing> {
        let addr = self.address_in(&self.field(value, members, data)?)?;
        let length = self.word(&self.field(value, members, length)?)?;
        let shown = usize::try_from(length).unwrap_or(usize::MAX).min(ELEMENTS);
        let mut bytes = vec![0; shown];
        if shown > 0 && !self.machine.read(addr, &mut bytes) {
            return Err(Missing::Unavailable);
        }
        Ok(Shown::Text(Text { bytes, has_more: length > shown as u64 }))
    }

    /// Reads a slice of Rust or Go like [`Self::elements`]. `length` is the name of the member with
    /// its length. Fails if the pointer or the length is missing.
    fn slice(
        &mut self,
        value: &Val,
        members: &[Member],
        length: &str,
        depth: usize,
    ) -> Result<Shown, Missing> {
        let data =
            members.iter().find(|member| is_slice_pointer(member)).ok_or(Missing::Unavailable)?;
        let at = data.offset_bytes.ok_or(Missing::Unavailable)?;
        let pointer = self.evaluator.member(value, data, at, self.machine);
        let length = self.word(&self.field(value, members, length)?)?;
        let first = self.target(&pointer)?;
        Ok(self.elements(&first.home, &first.ty, length, depth))
    }

    /// Reads an array like [`Self::elements`]; one of one-byte characters of C or C++ is read as a
    /// string, up to its first zero. Fails if the number of elements is unknown.
    fn array(
        &mut self,
        value: &Val,
        shape: &Type,
        counts: &[Option<u64>],
        depth: usize,
    ) -> Result<Shown, Missing> {
        let count = counts.first().copied().flatten().ok_or(Missing::Unavailable)?;
        let element = element_of(shape).ok_or(Missing::Unavailable)?;
        let inner = self.evaluator.shape(&element);
        let is_text = counts.len() == 1
            && shape.language != Language::Rust
            && shape.language != Language::Go
            && inner.is_some_and(|inner| {
                matches!(inner.kind, Kind::Character { .. }) && inner.size_bytes == Some(1)
            });
        if is_text {
            let shown = count.min(ELEMENTS as u64);
            let mut bytes = read(&part(&value.home, 0, shown, self.machine), shown, self.machine)?;
            let end = bytes.iter().position(|byte| *byte == 0);
            let after = part(&value.home, shown, 1, self.machine);
            let has_more = end.is_none()
                && count > shown
                && read(&after, 1, self.machine).map_or(true, |next| next != [0]);
            bytes.truncate(end.unwrap_or(bytes.len()));
            return Ok(Shown::Text(Text { bytes, has_more }));
        }
        Ok(self.elements(&value.home, &element, count, depth))
    }

    /// Reads the first [`ELEMENTS`] of `count` elements that begin at `home`. If all are missing
    /// for one reason, so is the whole value.
    fn elements(&mut self, home: &Home, element: &Ty, count: u64, depth: usize) -> Shown {
        let Some(size) = self.evaluator.size_of(element) else {
            return Shown::Missing(Missing::Unavailable);
        };
        let shown = count.min(ELEMENTS as u64);
        let elements = (0..shown).map(|number| {
            let home = part(home, number.saturating_mul(size), size, self.machine);
            self.value(&Val { ty: element.clone(), home }, depth + 1)
        });
        let elements: Vec<Shown> = elements.collect();
        if let Some(Shown::Missing(first)) = elements.first()
            && elements.iter().all(|element| *element == Shown::Missing(*first))
        {
            return Shown::Missing(*first);
        }
        Shown::Array { elements, has_more: count > shown }
    }
}

/// Returns an enumeration's value as flags, such as `(A | B)`, each by its first name. `None` if
/// the value is 0 or has a bit without a name, or if any name has more than one bit.
fn flags(value: u64, names: &[(u64, String)]) -> Option<String> {
    let is_set = names.iter().all(|(of, _)| of.count_ones() <= 1);
    let is_first = |number: usize, of: u64| names[..number].iter().all(|(other, _)| *other != of);
    let set = names
        .iter()
        .enumerate()
        .filter(|(number, (of, _))| *of != 0 && value & of == *of && is_first(*number, *of));
    let set: Vec<&(u64, String)> = set.map(|(_, name)| name).collect();
    let all = set.iter().fold(0, |all, (of, _)| all | of);
    if !is_set || value == 0 || all != value {
        return None;
    }
    let names: Vec<&str> = set.iter().map(|(_, name)| name.as_str()).collect();
    Some(format!("({})", names.join(" | ")))
}
