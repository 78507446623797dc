//! Where two paths that parted meet again: at the same place in the same activation of a function,
//! which is one run of it, or in that of one of its callers.
//!
//! The search begins in the activation in which they parted. Both paths are read in turn, an item
//! of this activation at a time; calls that it makes are passed over. They meet when one comes to a
//! place that the other has passed. Once each has left the activation, the search begins anew in
//! the outermost activation that either is in; once one path has ended, there is no meeting.

use crate::translate::AddressMap;

/// The maximum number of items of each path that are kept during a search.
const MOST_KEPT: usize = 1 << 21;

/// A part of a path, at one place of the program.
pub(super) trait Item: Copy {
    /// Returns the number of the item's place in the program, which is the same in both paths.
    fn key(&self) -> u64;
    /// Returns the number of open calls at the item.
    fn depth(&self) -> usize;
}

/// The items of a path that were not compared yet, as a queue.
pub(super) trait Items {
    type Item: Item;

    /// Takes the next item; `None` at the end of the path.
    fn next(&mut self) -> Option<Self::Item>;

    /// Puts back items that were taken last, in the order of the path: they are the next ones
    /// again.
    fn put_back(&mut self, items: &[Self::Item]);
}

/// The result of a search for the place where two paths meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// They are at the same place again, which is next in both.
    Met,
    /// One of the paths ended first.
    Ended,
    /// They did not meet within the items that are searched.
    Far,
}

/// The result of reading one path up to its next item in the activation that is searched.
enum Next {
    /// The path is there, at an item with this key.
    At(u64),
    /// The path has left the activation.
    Left,
    Ended,
    /// The maximum number of items is kept.
    Full,
}

/// One of the two paths, in a search for where they meet. Activations are numbered by level: 0 is
/// the function in which the paths parted, -1 its caller.
struct Side<'a, S: Items> {
    items: &'a mut S,
    /// The depth at which the paths parted.
    origin: usize,
    /// The items that were read in the current activation, and the one with which the path left the
    /// previous one.
    kept: Vec<S::Item>,
    /// The index in `kept` of the first item at each place of the activation that is searched, by
    /// the item's key.
    places: AddressMap<u64, usize>,
    /// True if the path has left the activation that is searched: its last item is outside.
    has_left: bool,
    has_ended: bool,
}

impl<'a, S: Items> Side<'a, S> {
    fn new(items: &'a mut S, origin: usize) -> Self {
        let places = AddressMap::default();
        Self { items, origin, kept: Vec::new(), places, has_left: false, has_ended: false }
    }

    /// Returns the depth of an item, relative to where the paths parted.
    fn level(&self, item: S::Item) -> isize {
        item.depth().cast_signed() - self.origin.cast_signed()
    }

    const fn can_go_on(&self) -> bool {
        !self.has_left && !self.has_ended
    }

    /// Reads up to the next item in the activation at `level`.
    fn advance(&mut self, level: isize) -> Next {
        while self.kept.len() < MOST_KEPT {
            let Some(item) = self.items.next() else {
                self.has_ended = true;
                return Next::Ended;
            };
            self.kept.push(item);
            let here = self.level(item);
            if here < level {
                self.has_left = true;
                return Next::Left;
            }
            if here == level {
                self.places.entry(item.key()).or_insert(self.kept.len() - 1);
                return Next::At(item.key());
            }
        }
        Next::Full
    }

    /// Begins the search of the outer activation at `level`, which the path is in or inside of.
    /// Only the last item is kept; it is the first place of the activation if it is at its level.
    fn enter_outer(&mut self, level: isize) {
        self.kept.drain(..self.kept.len().saturating_sub(1));
        self.places.clear();
        self.has_left = false;
        if let Some(last) = self.kept.last().filter(|last| self.level(**last) == level) {
            self.places.insert(last.key(), 0);
        }
    }

    /// Returns the level of the last item that was read.
    fn last_level(&self) -> Option<isize> {
        self.kept.last().map(|last| self.level(*last))
    }

    /// Puts back the items from the first one at a place of the activation on, so that it is next.
    /// Does nothing if the path did not pass that place.
    fn put_back_from(&mut self, key: u64) {
        if let Some(first) = self.places.get(&key) {
            self.items.put_back(&self.kept[*first..]);
        }
    }
}

/// Reads both paths, which parted at these depths, up to the place where they meet again. This
/// place is the next item of both if they do; otherwise the items that were read are gone.
pub(super) fn meet<S: Items>(items: [&mut S; 2], depths: [usize; 2]) -> Meeting {
    let [good, bad] = items;
    let mut sides = [Side::new(good, depths[0]), Side::new(bad, depths[1])];
    let mut level = 0;
    loop {
        // Both advance in turn, so that the nearest place is found.
        for this in 0..2 {
            if !sides[this].can_go_on() {
                continue;
            }
            match sides[this].advance(level) {
                Next::At(key) if sides[1 - this].places.contains_key(&key) => {
                    for side in &mut sides {
                        side.put_back_from(key);
                    }
                    return Meeting::Met;
                }
                Next::At(_) | Next::Left | Next::Ended => {}
                Next::Full => return Meeting::Far,
            }
        }
        if sides.iter().any(Side::can_go_on) {
            continue;
        }
        if sides.iter().any(|side| side.has_ended) {
            return Meeting::Ended;
        }
        level = sides.iter().filter_map(Side::last_level).min().unwrap_or(level);
        for side in &mut sides {
            side.enter_outer(level);
        }
        let [good, bad] = &sides;
        let both = good.places.keys().find(|key| bad.places.contains_key(key)).copied();
        if let Some(key) = both {
            for side in &mut sides {
                side.put_back_from(key);
            }
            return Meeting::Met;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct At(char, usize);

    impl Item for At {
        fn key(&self) -> u64 {
            self.0.into()
        }

        fn depth(&self) -> usize {
            self.1
        }
    }

    struct Path(VecDeque<At>);

    impl Items for Path {
        type Item = At;

        fn next(&mut self) -> Option<At> {
            self.0.pop_front()
        }

        fn put_back(&mut self, items: &[At]) {
            items.iter().rev().for_each(|item| self.0.push_front(*item));
        }
    }

    /// Returns a path: each letter is a place, and a digit is the depth from there on.
    fn path(text: &str) -> Path {
        let mut depth = 5;
        let mut items = VecDeque::new();
        for c in text.chars() {
            match c.to_digit(10) {
                Some(digit) => depth = digit as usize,
                None => items.push_back(At(c, depth)),
            }
        }
        Path(items)
    }

    fn met(good: &str, bad: &str) -> (Meeting, String, String) {
        let (mut good, mut bad) = (path(good), path(bad));
        let meeting = meet([&mut good, &mut bad], [5, 5]);
        let rest = |path: Path| path.0.into_iter().map(|at| at.0).collect();
        (meeting, rest(good), rest(bad))
    }

    fn meets(good: &str, bad: &str, good_rest: &str, bad_rest: &str) {
        let wanted = (Meeting::Met, good_rest.to_owned(), bad_rest.to_owned());
        assert_eq!(met(good, bad), wanted, "{good} and {bad}");
    }

    #[test]
    fn branches_meet_where_they_join() {
        meets("tjx", "ejx", "jx", "jx");
        meets("jx", "ejx", "jx", "jx");
        // Calls on the way do not count.
        meets("t6jab5jx", "e6j5jx", "jx", "jx");
        // A loop that one of them goes round once more.
        meets("axyz", "bcbcaxyz", "axyz", "axyz");
    }

    #[test]
    fn functions_that_part_meet_after_their_return() {
        meets("ab4rx", "cd4rx", "rx", "rx");
        meets("a4rx", "cdefg4rx", "rx", "rx");
        // Their callers part as well; one is left by an exception.
        meets("a4pq3rx", "b4uv3rx", "rx", "rx");
        meets("a4pq3rx", "b3rx", "rx", "rx");
        meets("a4pqx", "b4uqx", "qx", "qx");
    }

    #[test]
    fn paths_that_end_or_go_far_do_not_meet() {
        assert_eq!(met("abc", "def").0, Meeting::Ended);
        assert_eq!(met("", "def").0, Meeting::Ended);
        assert_eq!(met("a4b", "d").0, Meeting::Ended);
        let mut long = path("z");
        long.0.extend((0..MOST_KEPT).map(|_| At('q', 9)));
        let mut other = path("y");
        other.0.extend((0..MOST_KEPT).map(|_| At('p', 9)));
        assert_eq!(meet([&mut long, &mut other], [5, 5]), Meeting::Far);
    }
}
