//! Finds the members of structures by their names, also in anonymous members and in base classes.

use super::evaluate::Evaluator;
use super::ty::Ty;
use crate::symbols::{Kind, Member, TypeId};
use std::collections::VecDeque;

/// The limit on the structures in which a member is sought.
const MAX_STRUCTURES: usize = 1000;

impl Evaluator<'_> {
    /// Returns true if the structure to which a pointer type points has a member called `name`.
    pub(super) fn has_member(&self, pointer: Option<TypeId>, name: &str) -> bool {
        let target = self.target_of(&Ty::or_void(pointer));
        target.is_some_and(|target| self.find_member(&target, name).is_some())
    }

    /// Finds a member in a structure, its anonymous members and its bases. Returns its offset in
    /// bytes and the member, whose `bits` too count from the start of `ty` then. `None` if there is
    /// none, its offset is unknown, or after [`MAX_STRUCTURES`].
    pub(super) fn find_member(&self, ty: &Ty, name: &str) -> Option<(u64, Member)> {
        let mut structures = VecDeque::from([(ty.clone(), 0_u64)]);
        for _ in 0..MAX_STRUCTURES {
            let (ty, base) = structures.pop_front()?;
            let Some(shape) = self.shape(&ty) else { continue };
            let (Kind::Structure(members) | Kind::Union(members)) = &shape.kind else { continue };
            let is_meant =
                |member: &&Member| !member.is_base && member.name.as_deref() == Some(name);
            if let Some(member) = members.iter().find(is_meant) {
                let mut member = member.clone();
                if let Some((first, _)) = &mut member.bits {
                    *first = first.checked_add(base.checked_mul(8)?)?;
                }
                return Some((base.checked_add(member.offset_bytes?)?, member));
            }
            let inner = members.iter().filter(|member| member.is_base || member.name.is_none());
            structures.extend(inner.filter_map(|inner| {
                Some((Ty::or_void(inner.type_id), base.checked_add(inner.offset_bytes?)?))
            }));
        }
        None
    }

    /// Returns true if a structure has a base whose place only the program knows: a virtual one.
    /// [`Self::find_member`] does not search it.
    pub(super) fn may_inherit(&self, ty: &Ty) -> bool {
        let mut structures = VecDeque::from([ty.clone()]);
        for _ in 0..MAX_STRUCTURES {
            let Some(ty) = structures.pop_front() else { return false };
            let Some(shape) = self.shape(&ty) else { continue };
            let Kind::Structure(members) = &shape.kind else { continue };
            let bases = || members.iter().filter(|member| member.is_base);
            if bases().any(|base| base.offset_bytes.is_none()) {
                return true;
            }
            structures.extend(bases().map(|base| Ty::or_void(base.type_id)));
        }
        true
    }
}
