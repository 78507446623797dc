//! Reads a [`Type`] from its DWARF entry (a [`Die`]). Skips the typedefs and qualifiers around it.

use super::Reader;
use super::die::{Context, Die, is_aggregate, is_declaration};
use super::units::text;
use crate::common::Addr;
use crate::symbols::types::{FloatFormat, Kind, Language, Member, Type, TypeId, Variant};
use gimli::{AttributeValue, DebuggingInformationEntry as Entry, DwAt, UnitRef};

/// The limit on typedefs and qualifiers around a type. More are a loop.
const MAX_LAYERS: usize = 64;
/// The limit on dimensions of an array.
const MAX_DIMENSIONS: usize = 16;

/// A reader of the types of one module.
#[derive(Clone, Copy)]
pub(super) struct Types<'a> {
    pub(super) module: Addr,
    pub(super) context: Context<'a>,
}

impl<'a> Types<'a> {
    /// Returns the identity of the type that an attribute, inherited or not, refers to; `None`
    /// without one, or if it cannot be followed ([`Die::follow`]). Does not read the type.
    pub(super) fn referenced_type(&self, die: Die<'a>, attribute: DwAt) -> Option<TypeId> {
        let (owner, value) = die.inherited_attribute(attribute, self.context)?;
        let target = owner.follow(&value, self.context)?;
        Some(TypeId { module: self.module, entry: target.id })
    }

    /// Reads a type, under the name of its outermost typedef. Returns `None` if it is void, or
    /// damaged.
    pub(super) fn read_type(&self, die: Die<'a>) -> Option<Type> {
        let (mut die, mut name) = (die, None);
        for _ in 0..MAX_LAYERS {
            let entry = die.read()?;
            let own = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(die.unit, name));
            name = name.or(own);
            match entry.tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_immutable_type => {
                    let target = entry.attr_value(gimli::DW_AT_type)?;
                    die = die.follow(&target, self.context)?;
                }
                _ => return Some(self.read_unqualified(die, &entry, name)),
            }
        }
        None
    }

    /// Reads a type that is no typedef or qualifier, with `name` as its name.
    fn read_unqualified(&self, die: Die<'a>, entry: &Entry<Reader>, name: Option<String>) -> Type {
        let size = entry.attr_value(gimli::DW_AT_byte_size).and_then(|size| size.udata_value());
        let language = language_of(die.unit);
        let mut size_bytes = size;
        let kind = match entry.tag {
            gimli::DW_TAG_base_type => base_kind(die, entry),
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                size_bytes = size.or(Some(8));
                let is_reference = entry.tag != gimli::DW_TAG_pointer_type;
                Kind::Pointer { target: self.referenced_type(die, gimli::DW_AT_type), is_reference }
            }
            tag if is_aggregate(tag) && is_declaration(entry) => Kind::Other,
            gimli::DW_TAG_union_type => Kind::Union(self.members(die)),
            tag if is_aggregate(tag) => self.structure_or_variants(die),
            gimli::DW_TAG_array_type => {
                let element = self.referenced_type(die, gimli::DW_AT_type);
                let is_vector = entry.attr_value(gimli::DW_AT_GNU_vector).is_some();
                Kind::Array { element, counts: element_counts(die), is_vector }
            }
            gimli::DW_TAG_enumeration_type => self.enumeration(die, &mut size_bytes),
            gimli::DW_TAG_subroutine_type => Kind::Function,
            gimli::DW_TAG_unspecified_type => {
                // `decltype(nullptr)`.
                size_bytes = size.or(Some(8));
                Kind::Other
            }
            _ => Kind::Other,
        };
        Type { name, size_bytes, kind, language }
    }

    /// Reads the members of a structure, or the variants of an enum of Rust.
    fn structure_or_variants(&self, die: Die<'a>) -> Kind {
        let children = die.children();
        let variant_part =
            children.iter().find(|(_, entry)| entry.tag == gimli::DW_TAG_variant_part);
        match variant_part {
            Some((part, entry)) => self.variants(*part, entry),
            None => Kind::Structure(self.members(die)),
        }
    }

    /// Reads the members of a structure or union, and its base classes, in the order of the debug
    /// information. Leaves out static members.
    fn members(&self, die: Die<'a>) -> Vec<Member> {
        let children = die.children();
        let members = children.iter().filter_map(|(die, entry)| self.member(*die, entry));
        members.collect()
    }

    /// Returns the member that an entry describes; `None` for static members and other entries.
    fn member(&self, die: Die<'a>, entry: &Entry<Reader>) -> Option<Member> {
        let is_base = entry.tag == gimli::DW_TAG_inheritance;
        let is_member = is_base || entry.tag == gimli::DW_TAG_member;
        let is_static = entry.attr_value(gimli::DW_AT_external).is_some() || is_declaration(entry);
        if !is_member || is_static {
            return None;
        }
        let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(die.unit, name));
        let type_id = self.referenced_type(die, gimli::DW_AT_type);
        let offset_bytes = member_offset(die.unit, entry);
        let bits = bit_field(entry, offset_bytes, || self.size_of(type_id));
        Some(Member { name, offset_bytes, bits, type_id, is_base })
    }

    /// Reads a type to return its size in bytes; `None` if it is unknown.
    fn size_of(&self, type_id: Option<TypeId>) -> Option<u64> {
        let die = self.context.die(type_id?.entry)?;
        self.read_type(die)?.size_bytes
    }

    /// Reads the variants of an enum of Rust from its variant part, each with its first member.
    /// Leaves out those without one.
    fn variants(&self, part: Die<'a>, entry: &Entry<Reader>) -> Kind {
        let discriminant = entry.attr_value(gimli::DW_AT_discr).and_then(|reference| {
            let die = part.follow(&reference, self.context)?;
            self.member(die, &die.read()?)
        });
        let variant = |(die, entry): &(Die<'a>, Entry<Reader>)| {
            if entry.tag != gimli::DW_TAG_variant {
                return None;
            }
            let value = entry.attr_value(gimli::DW_AT_discr_value).as_ref().and_then(constant);
            let children = die.children();
            let member = children.iter().find_map(|(die, entry)| self.member(*die, entry))?;
            Some(Variant { value, member })
        };
        let variants = part.children().iter().filter_map(variant).collect();
        Kind::Variants { discriminant, variants }
    }

    /// Reads an enumeration. An unknown `size_bytes` becomes that of the underlying type.
    fn enumeration(&self, die: Die<'a>, size_bytes: &mut Option<u64>) -> Kind {
        let underlying = self.referenced_type(die, gimli::DW_AT_type);
        let underlying = underlying.and_then(|id| self.read_type(self.context.die(id.entry)?));
        *size_bytes = size_bytes.or(underlying.as_ref().and_then(|of| of.size_bytes));
        let mask = match *size_bytes {
            Some(size @ 1..8) => (1_u64 << (8 * size)) - 1,
            _ => u64::MAX,
        };
        let mut has_negative = false;
        let mut names = Vec::new();
        for (die, entry) in die.children() {
            let value = entry.attr_value(gimli::DW_AT_const_value);
            let name = entry.attr_value(gimli::DW_AT_name).and_then(|name| text(die.unit, name));
            if let (gimli::DW_TAG_enumerator, Some(value), Some(name)) = (entry.tag, value, name) {
                has_negative |= matches!(value, AttributeValue::Sdata(value) if value < 0);
                names.extend(constant(&value).map(|value| (value & mask, name)));
            }
        }
        let is_signed = match underlying.map(|of| of.kind) {
            Some(Kind::Integer { is_signed } | Kind::Character { is_signed }) => is_signed,
            _ => has_negative,
        };
        Kind::Enumeration { is_signed, names }
    }
}

/// Returns the kind of a base type, by its encoding; [`Kind::Other`] for one that is unknown.
fn base_kind(die: Die<'_>, entry: &Entry<Reader>) -> Kind {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else {
        return Kind::Other;
    };
    match encoding {
        gimli::DW_ATE_boolean => Kind::Boolean,
        gimli::DW_ATE_signed => Kind::Integer { is_signed: true },
        gimli::DW_ATE_unsigned | gimli::DW_ATE_address => Kind::Integer { is_signed: false },
        gimli::DW_ATE_signed_char => Kind::Character { is_signed: true },
        gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => Kind::Character { is_signed: false },
        gimli::DW_ATE_float => Kind::Float { format: float_format(die, entry) },
        _ => Kind::Other,
    }
}

/// The names of types of 16 bytes in x87's format, with padding, in C, Fortran and Ada. Others may
/// have the format of `__float128`.
const EXTENDED_NAMES: [&str; 5] =
    ["long double", "__float80", "_Float64x", "real(kind=10)", "long_long_float"];

/// Returns the format of a floating-point type, if its size and its own name determine it.
fn float_format(die: Die<'_>, entry: &Entry<Reader>) -> Option<FloatFormat> {
    let size = entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()?;
    let name = || text(die.unit, entry.attr_value(gimli::DW_AT_name)?);
    match size {
        4 => Some(FloatFormat::Single),
        8 => Some(FloatFormat::Double),
        10 | 12 => Some(FloatFormat::Extended),
        16 if EXTENDED_NAMES.contains(&name()?.as_str()) => Some(FloatFormat::Extended),
        // GDC and LDC. The type of this name in Fortran may have either format.
        16 if name()? == "real" && root_language(die.unit) == Some(gimli::DW_LANG_D) => {
            Some(FloatFormat::Extended)
        }
        _ => None,
    }
}

/// Returns the number of elements in each dimension of an array, outermost first: `None` if it is
/// unknown, 0 if the upper bound is below the lower one. Reads at most [`MAX_DIMENSIONS`], and
/// ignores dimensions that are enumerations.
fn element_counts(die: Die<'_>) -> Vec<Option<u64>> {
    let children = die.children();
    let ranges = children.iter().filter(|(_, entry)| entry.tag == gimli::DW_TAG_subrange_type);
    let count = |(_, entry): &(Die<'_>, Entry<Reader>)| {
        let value = |name| entry.attr_value(name).as_ref().and_then(constant);
        let between = || {
            let lower = match entry.attr_value(gimli::DW_AT_lower_bound) {
                Some(lower) => constant(&lower)?,
                None => default_lower_bound(die.unit),
            };
            let (lower, upper) =
                (lower.cast_signed(), value(gimli::DW_AT_upper_bound)?.cast_signed());
            // The upper bound of an array of size zero is below the lower one.
            Some(u64::try_from(upper.checked_sub(lower)?.checked_add(1)?).unwrap_or(0))
        };
        value(gimli::DW_AT_count).or_else(between)
    };
    ranges.take(MAX_DIMENSIONS).map(count).collect()
}

/// Returns a member's offset in bytes: 0 if the entry has none; `None` if it must be computed, as
/// for virtual bases.
fn member_offset(unit: UnitRef<'_, Reader>, entry: &Entry<Reader>) -> Option<u64> {
    match entry.attr_value(gimli::DW_AT_data_member_location) {
        None => Some(0),
        Some(AttributeValue::Exprloc(expression)) => {
            let mut operations = expression.operations(unit.encoding());
            match (operations.next().ok()??, operations.next().ok()?) {
                (gimli::Operation::PlusConstant { value }, None) => Some(value),
                _ => None,
            }
        }
        Some(value) => value.udata_value(),
    }
}

/// Returns the first bit of a bit field, counted from the start of the structure, and its size in
/// bits; `None` for other members, and if the first bit cannot be computed. DWARF 3 counts from the
/// high end of the storage unit.
fn bit_field(
    entry: &Entry<Reader>,
    offset_bytes: Option<u64>,
    size_bytes: impl Fn() -> Option<u64>,
) -> Option<(u64, u64)> {
    let value = |name| entry.attr_value(name).and_then(|value| value.udata_value());
    let size = value(gimli::DW_AT_bit_size)?;
    let offset = offset_bytes?.checked_mul(8)?;
    if let Some(first) = value(gimli::DW_AT_data_bit_offset) {
        return Some((offset.checked_add(first)?, size));
    }
    let Some(from_high) = value(gimli::DW_AT_bit_offset) else { return Some((offset, size)) };
    let unit = value(gimli::DW_AT_byte_size).or_else(size_bytes)?.checked_mul(8)?;
    Some((offset.checked_add(unit)?.checked_sub(from_high)?.checked_sub(size)?, size))
}

/// Returns the constant of up to 64 bits that is the value of an attribute; a negative one in two's
/// complement. `None` if it is not such a constant.
pub(super) fn constant(value: &AttributeValue<Reader>) -> Option<u64> {
    match value {
        AttributeValue::Sdata(value) => Some(value.cast_unsigned()),
        value => value.udata_value(),
    }
}

/// Returns the first index of the arrays of a unit that have no lower bound of their own: that of
/// the language (DWARF 5, table 7.17), or 0 if it is unknown.
fn default_lower_bound(unit: UnitRef<'_, Reader>) -> u64 {
    let bound = root_language(unit).and_then(gimli::DwLang::default_lower_bound);
    bound.map_or(0, |bound| bound as u64)
}

/// Returns the source language of a unit; [`Language::Other`] for C++ and others, and if it is
/// unknown.
pub(super) fn language_of(unit: UnitRef<'_, Reader>) -> Language {
    let Some(language) = root_language(unit) else { return Language::Other };
    match language {
        gimli::DW_LANG_Rust => Language::Rust,
        gimli::DW_LANG_Go => Language::Go,
        gimli::DW_LANG_C
        | gimli::DW_LANG_C89
        | gimli::DW_LANG_C99
        | gimli::DW_LANG_C11
        | gimli::DW_LANG_C17 => Language::C,
        _ => Language::Other,
    }
}

/// Returns the language that a unit names, if it does.
fn root_language(unit: UnitRef<'_, Reader>) -> Option<gimli::DwLang> {
    let mut entries = unit.entries();
    match entries.next_dfs().ok()??.attr_value(gimli::DW_AT_language)? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}
