//! The exits of all superblocks. Each is on at most one list: of the exits that are linked to the
//! superblock of its target ([`super::Superblock`] has that list), or of those that wait for one.

use super::address_map::AddressMap;
use super::builder::Exit;

/// A linked list of exits: the number of the first one. Each exit holds the rest of its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExitList(Option<u32>);

impl ExitList {
    pub(super) const EMPTY: Self = Self(None);
}

/// An exit of a superblock, and its place in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkedExit {
    pub(super) exit: Exit,
    /// The number of the superblock that the exit leaves.
    pub(super) superblock: u32,
    /// The index of the zone that contains the exit's jump.
    pub(super) zone: usize,
    /// The exits after this one in its list; unused if it is on none.
    rest: ExitList,
}

/// All exits, by number.
#[derive(Debug)]
pub(super) struct Links {
    exits: Vec<LinkedExit>,
    /// The exits that wait for the superblock of each target address.
    waiting: AddressMap<u64, ExitList>,
}

impl Links {
    /// Creates an empty collection, which stores its exits in the empty vector `exits`.
    pub(super) fn new(exits: Vec<LinkedExit>) -> Self {
        Self { exits, waiting: AddressMap::default() }
    }

    /// Forgets all exits; the lists that superblocks hold mean nothing then.
    pub(super) fn clear(&mut self) {
        self.exits.clear();
        self.waiting.clear();
    }

    /// Adds an exit of a superblock, on no list yet. Returns its number.
    pub(super) fn add(&mut self, exit: Exit, superblock: u32, zone: usize) -> u32 {
        self.exits.push(LinkedExit { exit, superblock, zone, rest: ExitList::default() });
        u32::try_from(self.exits.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns all exits, those of dropped superblocks included, each with the number of the
    /// superblock that it leaves.
    pub(super) fn exits(&self) -> impl Iterator<Item = (u32, Exit)> {
        self.exits.iter().map(|linked| (linked.superblock, linked.exit))
    }

    /// Adds an exit, which is on no list, to those that wait for the superblock of their target.
    /// Does nothing for an unknown number.
    pub(super) fn add_waiting(&mut self, number: u32) {
        let Some(linked) = self.exits.get_mut(number as usize) else { return };
        let list = self.waiting.entry(linked.exit.target).or_default();
        linked.rest = std::mem::replace(list, ExitList(Some(number)));
    }

    /// Removes and returns the exits that wait for the superblock of `target`; an empty list if
    /// there are none. The caller takes them off the list by [`Self::pop`].
    pub(super) fn take_waiting(&mut self, target: u64) -> ExitList {
        self.waiting.remove(&target).unwrap_or_default()
    }

    /// Removes the first exit from a list and returns it, with its number; `None` if the list is
    /// empty.
    pub(super) fn pop(&self, list: &mut ExitList) -> Option<(u32, LinkedExit)> {
        let number = list.0?;
        let linked = *self.exits.get(number as usize)?;
        *list = linked.rest;
        Some((number, linked))
    }

    /// Adds an exit, which is on no list, at the front of a list. Does nothing for an unknown
    /// number.
    pub(super) fn push(&mut self, list: &mut ExitList, number: u32) {
        if let Some(linked) = self.exits.get_mut(number as usize) {
            linked.rest = std::mem::replace(list, ExitList(Some(number)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(links: &Links, mut list: ExitList) -> Vec<u32> {
        std::iter::from_fn(|| links.pop(&mut list)).map(|(number, _)| number).collect()
    }

    #[test]
    fn an_exit_is_on_one_list_at_a_time() {
        let mut links = Links::new(Vec::new());
        let exits = [7, 9, 7].map(|target| links.add(Exit { target, field: 0 }, 0, 0));
        for number in exits {
            links.add_waiting(number);
        }
        let mut waiting = links.take_waiting(7);
        assert_eq!(numbers(&links, waiting), [2, 0]);
        assert_eq!(links.take_waiting(7), ExitList::default());
        let mut linked = ExitList::default();
        while let Some((number, _)) = links.pop(&mut waiting) {
            links.push(&mut linked, number);
        }
        assert_eq!(numbers(&links, linked), [0, 2]);
        let nines = links.take_waiting(9);
        assert_eq!(numbers(&links, nines), [1]);
    }
}
