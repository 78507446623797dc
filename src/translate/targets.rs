//! The expected targets of indirect branches and returns: the usual ones, by samples. In code that
//! counts ticks, a path goes on at the first expected target of its branch, after a comparison. If
//! that fails, the exit compares the second one.

use super::address_map::AddressMap;
use super::superblock::Step;
use super::translator::{CacheMemory, Translator};

/// The minimum number of samples of a branch after which one target is expected.
const FEW_SAMPLES: u32 = 3;
/// The minimum number of samples after which two targets are expected, and of misses after which
/// another target is.
const MANY_SAMPLES: u32 = 8;
/// The targets of a branch change only if its misses are at least one in this many of all samples.
const MISSES_SHARE: u64 = 8;
/// The number of samples after which a branch without expected targets is no longer sampled often.
const OPEN_SAMPLES: u32 = 16;
/// The maximum number of times that the expected targets of a branch change.
const MOST_CHANGES: u8 = 4;
/// The maximum number of targets of a branch whose samples are counted.
const TARGETS: usize = 4;

/// All sampled branches, by address.
#[derive(Debug, Default)]
pub(super) struct Targets {
    branches: AddressMap<u64, Branch>,
    /// Samples of all branches.
    samples: u64,
}

/// The samples of one branch since its expected targets changed. If there are expected targets,
/// only samples with another target than the first one count: misses.
#[derive(Clone, Debug, Default)]
struct Branch {
    /// The branch's first targets, with the number of samples of each.
    seen: [(u64, u32); TARGETS],
    count: u32,
    /// The number of samples of all branches before these.
    since: u64,
    /// The expected target at which a path goes on, and perhaps a second one; empty if none is
    /// expected.
    expected: Vec<u64>,
    /// The number of times that `expected` changed.
    changes: u8,
}

impl Targets {
    /// Returns the expected targets of the branch at an address, first the one at which a path goes
    /// on; at most two, and none if samples showed none.
    pub(super) fn expected(&self, branch: u64) -> &[u64] {
        self.branches.get(&branch).map_or(&[], |branch| &branch.expected)
    }

    /// Returns each branch with expected targets, and these targets.
    pub(super) fn hints(&self) -> Vec<(u64, Vec<u64>)> {
        let branches = self.branches.iter().filter(|(_, branch)| !branch.expected.is_empty());
        branches.map(|(addr, branch)| (*addr, branch.expected.clone())).collect()
    }

    /// Adds the expected targets of earlier runs ([`Self::hints`]), at most two for each branch, in
    /// place of all that is known of the branch, its samples too.
    pub(super) fn add_hints(&mut self, hints: Vec<(u64, Vec<u64>)>) {
        for (addr, mut expected) in hints {
            expected.truncate(2);
            let since = self.samples;
            self.branches.insert(addr, Branch { since, expected, ..Branch::default() });
        }
    }

    /// Forgets the branches of a path whose code has changed.
    pub(super) fn forget_path(&mut self, path: &[Step]) {
        if !self.branches.is_empty() {
            for step in path {
                self.branches.remove(&step.ip);
            }
        }
    }
}

impl Branch {
    /// Adds a sample of the branch, which went to `target`; `samples` is the number of samples of
    /// all branches. If the samples of the branch call for other expected targets, sets these,
    /// forgets the samples, and returns true; at most [`MOST_CHANGES`] times.
    fn add_sample(&mut self, target: u64, samples: u64) -> bool {
        self.count += 1;
        let place = self.seen.iter_mut().find(|(seen, count)| *seen == target || *count == 0);
        if let Some((seen, count)) = place {
            *seen = target;
            *count += 1;
        }
        self.seen.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let expected = if self.expected.is_empty() {
            self.first_targets()
        } else {
            self.targets_after_misses(samples)
        };
        if expected.is_empty() || self.changes == MOST_CHANGES {
            return false;
        }
        *self = Self { expected, changes: self.changes + 1, since: samples, ..Self::default() };
        true
    }

    /// Returns true if no target is expected, and the branch has some samples, but too few to know
    /// that none is to be expected.
    fn is_undecided(&self) -> bool {
        self.expected.is_empty() && (1..OPEN_SAMPLES).contains(&self.count)
    }

    /// Returns the targets to expect of a branch of which none is expected: the one of at least
    /// three quarters of the samples, else the two of at least seven eighths; empty if there are
    /// none such, or too few samples.
    fn first_targets(&self) -> Vec<u64> {
        let [(first, of_first), (second, of_second), ..] = self.seen;
        if self.count >= FEW_SAMPLES && of_first * 4 >= self.count * 3 {
            vec![first]
        } else if self.count >= MANY_SAMPLES && (of_first + of_second) * 8 >= self.count * 7 {
            vec![first, second]
        } else {
            Vec::new()
        }
    }

    /// Returns new expected targets if there are many misses and at least half of them went to one
    /// target; else an empty vector. That target is added after a single expected one. Of two, it
    /// replaces the second, and comes first.
    fn targets_after_misses(&self, samples: u64) -> Vec<u64> {
        let [(target, count), ..] = self.seen;
        let are_many = self.count >= MANY_SAMPLES
            && u64::from(self.count) * MISSES_SHARE >= samples - self.since;
        match self.expected[..] {
            _ if !are_many || count * 2 < self.count => Vec::new(),
            [first] => vec![first, target],
            [first, ..] => vec![target, first],
            [] => Vec::new(),
        }
    }
}

impl<M: CacheMemory> Translator<M> {
    /// Counts a sample, in code that counts ticks: a thread was found at the exit of an indirect
    /// branch, with the number of its edge, which leads to `target`. Drops the superblock if its
    /// path should go on at an expected target from now on: one that is expected since this sample,
    /// or was not yet when the path was built. Returns true if it was dropped, or if the branch had
    /// some samples before this one, but too few to decide: more may then have that effect. Returns
    /// false for an unknown edge, or one of another kind.
    pub fn note_target_sample(&mut self, edge: u64, target: u64) -> bool {
        self.targets.samples += 1;
        let samples = self.targets.samples;
        let edge = usize::try_from(edge).ok().and_then(|edge| self.edges.get(edge)).copied();
        let Some(edge) = edge.filter(|edge| edge.kind.is_indirect()) else { return false };
        let Some(last) = self.path_of(&edge).pop() else { return false };
        let branch = self.targets.branches.entry(last.ip).or_default();
        let is_undecided = branch.is_undecided();
        // A path that goes on at the target does not leave here for it.
        let is_expected = branch.expected.first() == Some(&target);
        let wants_new_path = is_expected || branch.add_sample(target, samples);
        wants_new_path && self.drop_hot(edge.superblock) || is_undecided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(targets: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut branch = Branch::default();
        for (count, target) in (1..).zip(targets) {
            branch.add_sample(target, count);
        }
        branch.expected
    }

    #[test]
    fn one_target_is_expected_after_few_samples() {
        assert!(expected([7, 7]).is_empty());
        assert_eq!(expected([7, 7, 7]), [7]);
        assert!(expected([9, 7, 7]).is_empty());
        assert_eq!(expected([9, 7, 7, 7]), [7]);
    }

    #[test]
    fn two_targets_are_expected_after_many() {
        assert!(expected([1, 2, 1, 2, 1, 2, 1]).is_empty());
        assert_eq!(expected([1, 2, 1, 2, 1, 2, 1, 2]), [1, 2]);
    }

    #[test]
    fn none_is_expected_of_a_branch_with_many_targets() {
        assert!(expected((0..500).map(|number| number % 5)).is_empty());
    }

    #[test]
    fn a_branch_with_many_targets_is_not_sampled_for_ever() {
        let mut branch = Branch::default();
        let opens = (1..500_u64).filter(|number| {
            branch.add_sample(number % 5, *number);
            branch.is_undecided()
        });
        assert_eq!(opens.count(), OPEN_SAMPLES as usize - 1);
    }

    #[test]
    fn other_targets_are_expected_after_many_misses_and_not_without_end() {
        assert_eq!(expected([7, 7, 7].into_iter().chain([9; 7])), [7]);
        assert_eq!(expected([7, 7, 7].into_iter().chain([9; 8])), [7, 9]);
        assert_eq!(expected([7, 7, 7].into_iter().chain([9; 8]).chain([4; 8])), [4, 7]);
        let mut branch = Branch::default();
        let targets = (0..100).flat_map(|phase| [phase; 1000]);
        let changes =
            (1..).zip(targets).filter(|(count, target)| branch.add_sample(*target, *count));
        assert_eq!(changes.count(), usize::from(MOST_CHANGES));
    }

    #[test]
    fn few_misses_change_nothing() {
        let mut branch = Branch::default();
        assert!((1..=3).any(|count| branch.add_sample(7, count)));
        assert!(!(1..1000).any(|count| branch.add_sample(9, 3 + 20 * count)));
    }
}
