//! The depths of open calls on a path, as they are for the comparison with another path.

use crate::common::Addr;
use crate::flow::Exit;

/// The depths of open calls. They are corrected where longjmp(3) or an exception leaves functions:
/// the path shows this as a branch into the middle of a function that is open farther out.
#[derive(Default)]
pub(super) struct Depths {
    /// The function at each depth.
    functions: Vec<Option<Addr>>,
    /// The corrections, as pairs: the first depth, as calls and returns count it, is really the
    /// second one. Deeper ones move by the same difference.
    shifts: Vec<(usize, usize)>,
    /// The kind of exit of the last block.
    left: Option<Exit>,
    /// Of the last block: its depth as calls and returns count it, the start of its function, and
    /// its corrected depth.
    last: (usize, Option<Addr>, usize),
}

impl Depths {
    /// Returns the corrected depth of a block at `ip` in the function that begins at `start`. Calls
    /// and returns count the depth `counted`.
    #[inline]
    pub(super) fn pass(
        &mut self,
        counted: usize,
        ip: Addr,
        start: Option<Addr>,
        exit: Exit,
    ) -> usize {
        let stays = (counted, start) == (self.last.0, self.last.1);
        if stays && !matches!(self.left, Some(Exit::JmpIndirect | Exit::Ret)) {
            self.left = Some(exit);
            return self.last.2;
        }
        let depth = self.correct(counted, ip, start, exit);
        self.last = (counted, start, depth);
        depth
    }

    /// Does the same as [`Self::pass`] where the function may be another. Adds a correction if the
    /// block is in the middle of a function that is open farther out.
    fn correct(&mut self, counted: usize, ip: Addr, start: Option<Addr>, exit: Exit) -> usize {
        while self.shifts.pop_if(|(from, _)| counted < *from).is_some() {}
        let (from, to) = self.shifts.last().copied().unwrap_or_default();
        let mut depth = counted - from + to;
        let left = self.left.replace(exit);
        let may_leave = matches!(left, Some(Exit::JmpIndirect | Exit::Ret)) && start != Some(ip);
        let is_open = |at: usize| start.is_some() && self.functions.get(at) == Some(&start);
        if may_leave
            && !is_open(depth)
            && let Some(outer) = (0..depth).rev().find(|at| is_open(*at))
        {
            self.shifts.push((counted, outer));
            depth = outer;
        }
        self.functions.resize(depth + 1, None);
        self.functions[depth] = start;
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a block to `depths` and returns its depth. The block's function begins at the
    /// multiple of 16 at or below `ip`.
    fn pass(depths: &mut Depths, counted: usize, ip: u64, exit: Exit) -> usize {
        depths.pass(counted, Addr(ip), Some(Addr(ip & !15)), exit)
    }

    #[test]
    fn functions_that_are_left_by_jumps_are_open_no_more() {
        let mut depths = Depths::default();
        let path = [
            (0, 0x10, Exit::Call, 0),
            (1, 0x20, Exit::Call, 1),
            (2, 0x30, Exit::Ret, 2),
            (1, 0x28, Exit::Call, 1),
            (2, 0x40, Exit::JmpIndirect, 2),
            // In place of a call.
            (2, 0x50, Exit::JmpIndirect, 2),
            // To the outermost function; what that calls; back.
            (2, 0x15, Exit::Call, 0),
            (3, 0x30, Exit::Ret, 1),
            (2, 0x18, Exit::Call, 0),
            (3, 0x60, Exit::Call, 1),
            (4, 0x70, Exit::JmpIndirect, 2),
            (4, 0x68, Exit::Ret, 1),
        ];
        for (number, (counted, ip, exit, depth)) in path.into_iter().enumerate() {
            assert_eq!(pass(&mut depths, counted, ip, exit), depth, "block {number}");
        }
        // The outermost function returns.
        assert_eq!(pass(&mut depths, 0, 0x81, Exit::Next), 0);
        assert!(depths.shifts.is_empty());
    }
}
