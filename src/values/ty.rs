//! Types of intermediate values: those of the program, and those that operators make.

use super::evaluate::Evaluator;
use super::parse::Basic;
use crate::symbols::{Kind, Language, Type, TypeId};
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug)]
pub(super) enum Ty {
    /// None: nothing is known of the value but its address.
    Void,
    /// One of the program.
    Of(TypeId),
    /// A basic one.
    Basic(Basic),
    /// A pointer.
    Pointer(Arc<Ty>),
    /// A row of an array with several dimensions: the element's type, and the sizes that are left.
    Row(Option<TypeId>, Arc<[Option<u64>]>),
}

impl Ty {
    pub(super) fn or_void(type_id: Option<TypeId>) -> Self {
        type_id.map_or(Self::Void, Self::Of)
    }
}

impl Evaluator<'_> {
    /// Returns the description of a type. `None` if it is void, or damaged.
    pub(super) fn shape(&self, ty: &Ty) -> Option<Arc<Type>> {
        let made = |kind, size_bytes| {
            Some(Arc::new(Type { name: None, size_bytes, kind, language: Language::Other }))
        };
        match ty {
            Ty::Void | Ty::Basic(Basic::Void) => None,
            Ty::Of(type_id) => self.type_of(*type_id),
            Ty::Basic(Basic::Integer { size_bytes, is_signed }) => {
                made(Kind::Integer { is_signed: *is_signed }, Some(*size_bytes))
            }
            Ty::Basic(Basic::Character { is_signed }) => {
                made(Kind::Character { is_signed: *is_signed }, Some(1))
            }
            Ty::Basic(Basic::Float { size_bytes }) => made(Kind::Float, Some(*size_bytes)),
            Ty::Basic(Basic::Boolean) => made(Kind::Boolean, Some(1)),
            Ty::Pointer(_) => made(Kind::Pointer { target: None, is_reference: false }, Some(8)),
            Ty::Row(element, counts) => {
                made(Kind::Array { element: *element, counts: counts.to_vec() }, None)
            }
        }
    }

    /// Returns the type of a pointer's target.
    pub(super) fn target_of(&self, ty: &Ty) -> Option<Ty> {
        match ty {
            Ty::Pointer(target) => Some((**target).clone()),
            _ => match self.shape(ty)?.kind {
                Kind::Pointer { target, .. } => Some(Ty::or_void(target)),
                _ => None,
            },
        }
    }

    /// Returns the size of a type's values.
    pub(super) fn size_of(&self, ty: &Ty) -> Option<u64> {
        let shape = self.shape(ty)?;
        match &shape.kind {
            Kind::Array { element, counts } => {
                let element = self.size_of(&Ty::or_void(*element))?;
                counts.iter().try_fold(element, |size, count| size.checked_mul((*count)?))
            }
            _ => shape.size_bytes,
        }
    }

    /// Returns a type in words.
    pub(super) fn name_of(&self, ty: &Ty) -> String {
        let Some(shape) = self.shape(ty) else { return "a value without a type".to_owned() };
        match (&shape.kind, &shape.name) {
            (Kind::Pointer { .. }, None) => match self.target_of(ty) {
                Some(target) if self.shape(&target).is_some() => {
                    format!("a pointer to {}", self.name_of(&target))
                }
                _ => "a pointer to void".to_owned(),
            },
            (_, Some(name)) => format!("a value of type {name}"),
            (Kind::Array { .. }, None) => "an array".to_owned(),
            (Kind::Structure(_) | Kind::Union(_), None) => "an anonymous structure".to_owned(),
            (Kind::Float, None) => "a floating-point number".to_owned(),
            (Kind::Function, None) => "a function".to_owned(),
            (Kind::Integer { .. } | Kind::Character { .. } | Kind::Boolean, None) => {
                "an integer".to_owned()
            }
            _ => "a value of an anonymous type".to_owned(),
        }
    }
}
