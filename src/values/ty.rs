//! Types of intermediate values: those of the program, and those that operators make. The *shape*
//! of either is a [`Type`], as the debug information describes types.

use super::evaluate::Evaluator;
use super::parse::Basic;
use crate::symbols::{FloatFormat, Kind, Language, Type, TypeId};
use std::sync::Arc;

/// The limit on nested types: damaged debug information may have circles.
pub(super) const MAX_LEVELS: usize = 32;

/// The type of an intermediate value.
#[derive(Clone, Debug)]
pub(super) enum Ty {
    /// Void, or unknown: nothing is known of the value but its address.
    Void,
    /// A type in the program's debug information.
    Of(TypeId),
    /// A basic type, of a literal, a cast or an operator's result.
    Basic(Basic),
    /// A pointer to a value of this type.
    Pointer(Arc<Ty>),
    /// An element of an array with several dimensions, itself an array: the type of the innermost
    /// elements, and the sizes of the remaining dimensions.
    Row(Option<TypeId>, Arc<[Option<u64>]>),
}

impl Ty {
    pub(super) fn or_void(type_id: Option<TypeId>) -> Self {
        type_id.map_or(Self::Void, Self::Of)
    }
}

impl Evaluator<'_> {
    /// Returns the shape of a type; `None` if it is void, or damaged. The shape of a pointer that
    /// an expression made lacks the target, and that of an array can lack the size: use
    /// [`Self::target_of`] and [`Self::size_of`] for these.
    pub(super) fn shape(&self, ty: &Ty) -> Option<Arc<Type>> {
        let made = |kind, size_bytes| {
            Some(Arc::new(Type { name: None, size_bytes, kind, language: Language::Other }))
        };
        match ty {
            Ty::Void | Ty::Basic(Basic::Void) => None,
            Ty::Of(type_id) => self.read_type(*type_id),
            Ty::Basic(Basic::Integer { size_bytes, is_signed }) => {
                made(Kind::Integer { is_signed: *is_signed }, Some(*size_bytes))
            }
            Ty::Basic(Basic::Character { is_signed }) => {
                made(Kind::Character { is_signed: *is_signed }, Some(1))
            }
            Ty::Basic(Basic::Float { size_bytes }) => {
                let format =
                    if *size_bytes == 4 { FloatFormat::Single } else { FloatFormat::Double };
                made(Kind::Float { format: Some(format) }, Some(*size_bytes))
            }
            Ty::Basic(Basic::Boolean) => made(Kind::Boolean, Some(1)),
            Ty::Pointer(_) => made(Kind::Pointer { target: None, is_reference: false }, Some(8)),
            Ty::Row(element, counts) => {
                let counts = counts.to_vec();
                made(Kind::Array { element: *element, counts, is_vector: false }, None)
            }
        }
    }

    /// Returns the type of the target of a pointer or reference; `None` for other types.
    pub(super) fn target_of(&self, ty: &Ty) -> Option<Ty> {
        match ty {
            Ty::Pointer(target) => Some((**target).clone()),
            _ => match self.shape(ty)?.kind {
                Kind::Pointer { target, .. } => Some(Ty::or_void(target)),
                _ => None,
            },
        }
    }

    /// Returns the size of a type's values in bytes; `None` if it is unknown, as for an array
    /// without a count.
    pub(super) fn size_of(&self, ty: &Ty) -> Option<u64> {
        let (mut shape, mut elements) = (self.shape(ty)?, 1_u64);
        for _ in 0..MAX_LEVELS {
            let Kind::Array { element, counts, is_vector } = &shape.kind else {
                return shape.size_bytes?.checked_mul(elements);
            };
            // A vector of three elements may be as large as one of four.
            if *is_vector && let Some(size) = shape.size_bytes {
                return size.checked_mul(elements);
            }
            elements = counts
                .iter()
                .try_fold(elements, |product, count| product.checked_mul((*count)?))?;
            shape = self.shape(&Ty::or_void(*element))?;
        }
        None
    }

    /// Returns words for a value of a type, such as `a value of type int`.
    pub(super) fn description_of(&self, ty: &Ty) -> String {
        self.description_within(ty, 0)
    }

    /// Returns words for a type that `level` pointers lead to.
    fn description_within(&self, ty: &Ty, level: usize) -> String {
        let Some(shape) = self.shape(ty) else { return "a value without a type".to_owned() };
        match (&shape.kind, &shape.name) {
            (Kind::Pointer { .. }, None) => match self.target_of(ty) {
                Some(target) if self.shape(&target).is_some() && level < MAX_LEVELS => {
                    format!("a pointer to {}", self.description_within(&target, level + 1))
                }
                _ => "a pointer to void".to_owned(),
            },
            (_, Some(name)) => format!("a value of type {name}"),
            (Kind::Array { .. }, None) => "an array".to_owned(),
            (Kind::Structure(_) | Kind::Union(_), None) => "an anonymous structure".to_owned(),
            (Kind::Float { .. }, None) => "a floating-point number".to_owned(),
            (Kind::Function, None) => "a function".to_owned(),
            (Kind::Integer { .. } | Kind::Character { .. } | Kind::Boolean, None) => {
                "an integer".to_owned()
            }
            _ => "a value of an anonymous type".to_owned(),
        }
    }
}
