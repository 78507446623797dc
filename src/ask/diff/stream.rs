//! The path of a thread as a sequence of places that two recordings can have in common.

use super::meet::{Item, Items};
use crate::ask::functions::Functions;
use crate::ask::opened::Asked;
use crate::ask::tracker::{Change, Tracker};
use crate::ask::walk::walk;
use crate::common::{Addr, Tid};
use crate::flow::Exit;
use crate::image::{Image, Section};
use crate::timeline::Visit;
use crate::translate::AddressMap;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender};
use std::vec;

/// The number of items that a walker sends at a time.
const CHUNK: usize = 4096;
/// The maximum number of addresses in [`Keys::known`], which is cleared beyond that.
const KEYS: usize = 1 << 20;

/// Instructions in a straight line, up to a branch; where the files of the two runs differ, the
/// instructions of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    key: u64,
    /// The address of the first instruction.
    pub(super) first: Addr,
    /// The address of the last one.
    pub(super) last: Addr,
    /// The number of the first instruction, counted per thread.
    pub(super) index: u64,
    /// The number of the last one.
    pub(super) last_index: u64,
    /// The positions of the first instruction and of the last one.
    pub(super) position: u64,
    pub(super) last_position: u64,
    depth: usize,
    /// The way in which control left the stretch.
    pub(super) exit: Exit,
}

impl Stretch {
    /// The stretch of a path without instructions.
    pub(super) const NONE: Self = Self {
        key: 0,
        first: Addr(0),
        last: Addr(0),
        index: 0,
        last_index: 0,
        position: 0,
        last_position: 0,
        depth: 0,
        exit: Exit::Unknown,
    };
}

impl Item for Stretch {
    fn key(&self) -> u64 {
        self.key
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

/// The receiving end of a walk: the stretches of a thread's path.
pub(super) struct Stream {
    chunks: Receiver<Vec<Stretch>>,
    items: vec::IntoIter<Stretch>,
    /// The stretches that were put back, in reverse order.
    back: Vec<Stretch>,
}

impl Stream {
    pub(super) fn new(chunks: Receiver<Vec<Stretch>>) -> Self {
        Self { chunks, items: Vec::new().into_iter(), back: Vec::new() }
    }
}

impl Items for Stream {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if let Some(item) = self.back.pop() {
            return Some(item);
        }
        loop {
            if let Some(item) = self.items.next() {
                return Some(item);
            }
            self.items = self.chunks.recv().ok()?.into_iter();
        }
    }

    fn put_back(&mut self, items: &[Stretch]) {
        self.back.extend(items.iter().rev());
    }
}

/// The keys of code addresses in one of the recordings.
struct Keys<'a> {
    image: Option<&'a Image>,
    /// The names, without directories, of the files that are the same in both recordings.
    same_files: &'a BTreeSet<String>,
    /// The lowest address of each file.
    starts: HashMap<&'a str, Addr>,
    functions: &'a Functions<'a>,
    asked: &'a Asked,
    known: AddressMap<Addr, Key>,
}

/// An identifier of a place in the code, which is the same in both recordings.
#[derive(Clone, Copy, Debug)]
struct Key {
    /// Equal for equal places.
    number: u64,
    /// True if no two instructions have this number.
    is_exact: bool,
    /// The start of the function at the place; `None` if the code has no symbols.
    start: Option<Addr>,
}

impl Keys<'_> {
    /// Returns the key of an address.
    fn of(&mut self, addr: Addr) -> Key {
        if let Some(known) = self.known.get(&addr) {
            return *known;
        }
        let (number, is_exact) = self.find(addr);
        let start = self.functions.at(addr).map(|function| function.start);
        let key = Key { number, is_exact, start };
        if self.known.len() >= KEYS {
            self.known.clear();
        }
        self.known.insert(addr, key);
        key
    }

    /// Returns the number of an address's key, and true if no two instructions have this number.
    fn find(&self, addr: Addr) -> (u64, bool) {
        let section = self.image.and_then(|image| image.section_at(addr));
        match section.and_then(name_of) {
            // Files are mapped at any address, and parts of them may be stored alone.
            Some(name) if self.same_files.contains(name) => {
                let start = self.starts.get(name).copied().unwrap_or_default();
                (hash(&(name, addr.0.wrapping_sub(start.0))), true)
            }
            // Lines are counted from the start of their function: lines above it may have been
            // added.
            Some(_) => match self.functions.at(addr) {
                Some(function) => {
                    let line = |addr| self.asked.symbols.location_at(addr).map(|at| at.line);
                    let (here, start) = (line(addr), line(function.start));
                    let line = here.zip(start).map(|(here, start)| here.wrapping_sub(start));
                    (hash(&(&function.name, line)), false)
                }
                None => (hash(&"no symbols"), false),
            },
            // Code that was made at run time.
            None => (hash(&addr.0), true),
        }
    }
}

/// Returns the lowest address of each file.
fn starts_of(image: Option<&Image>) -> HashMap<&str, Addr> {
    let mut starts: HashMap<&str, Addr> = HashMap::new();
    for section in image.into_iter().flat_map(Image::sections) {
        if let Some(name) = name_of(section) {
            let start = starts.entry(name).or_insert(section.range.start);
            *start = section.range.start.min(*start);
        }
    }
    starts
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns the name of a section's file, without its directory.
pub(super) fn name_of(section: &Section) -> Option<&str> {
    Path::new(&*section.name).file_name()?.to_str()
}

/// The depths of open calls. They are corrected where longjmp(3) or an exception leaves functions:
/// the path shows this as a branch into the middle of a function that is open farther out.
#[derive(Default)]
struct Depths {
    /// The function at each depth.
    functions: Vec<Option<Addr>>,
    /// The corrections, as pairs: from the first depth on, as calls and returns count it, that
    /// depth is really the second one.
    shifts: Vec<(usize, usize)>,
    /// The way in which control left the last block.
    left: Option<Exit>,
}

impl Depths {
    /// Returns the corrected depth of a block at `ip` in the function that begins at `start`. Calls
    /// and returns count the depth `counted`.
    fn pass(&mut self, counted: usize, ip: Addr, start: Option<Addr>, exit: Exit) -> usize {
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

/// The sending end of a stream.
struct Sender {
    chunks: SyncSender<Vec<Stretch>>,
    items: Vec<Stretch>,
}

impl Sender {
    /// Sends an item. Breaks if the receiver is gone.
    fn send(&mut self, item: Stretch) -> ControlFlow<()> {
        self.items.push(item);
        if self.items.len() < CHUNK { ControlFlow::Continue(()) } else { self.flush() }
    }

    fn flush(&mut self) -> ControlFlow<()> {
        let items = std::mem::take(&mut self.items);
        match self.chunks.send(items) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Walks a thread's path, and sends its stretches until the receiver is gone.
pub(super) fn stretches(
    asked: &Asked,
    tid: Tid,
    same_files: &BTreeSet<String>,
    chunks: SyncSender<Vec<Stretch>>,
) {
    let functions = asked.functions();
    let starts = |addr| functions.at(addr).map(|function| function.start);
    let image = asked.timeline.images().last().map(AsRef::as_ref);
    let known = AddressMap::default();
    let mut keys =
        Keys { image, same_files, starts: starts_of(image), functions: &functions, asked, known };
    let mut tracker: Tracker<()> = Tracker::default();
    let mut depths = Depths::default();
    let mut sender = Sender { chunks, items: Vec::new() };
    let mut current: Option<Stretch> = None;
    // The address at which the last block continues without a branch, and true if its key is exact.
    let (mut next, mut was_exact) = (None, false);
    let walked = walk(&asked.timeline, asked.places.as_ref(), tid, &mut |passed| {
        tracker
            .pass(passed, &starts, &mut |change| matches!(change, Change::Began(_)).then_some(()));
        let Visit::Block { index, span, addrs, last, .. } = passed.visit else {
            return ControlFlow::Continue(());
        };
        let exit = span.exit;
        let Key { is_exact, start, .. } = keys.of(span.ip);
        let depth = depths.pass(tracker.depth(), span.ip, start, exit);
        // A block is one stretch if its key is exact, or else each instruction may begin a line.
        let parts = if is_exact { std::slice::from_ref(&span.ip) } else { addrs.list() };
        for (number, addr) in (*index..).zip(parts) {
            let (last, last_index) = if is_exact {
                (span.last, index + u64::from(span.insns.saturating_sub(1)))
            } else {
                (*addr, number)
            };
            // Control reached the first address of the block without a branch.
            let goes_on = number > *index || next == Some(*addr);
            let key = keys.of(*addr).number;
            let stays =
                |of: &&mut Stretch| goes_on && of.depth == depth && (is_exact || of.key == key);
            if let Some(current) = current.as_mut().filter(stays) {
                (current.last, current.last_index, current.exit) = (last, last_index, exit);
                continue;
            }
            let item = Stretch {
                key,
                first: *addr,
                last,
                index: number,
                last_index,
                position: passed.clock.position(number),
                last_position: 0,
                depth,
                exit,
            };
            was_exact = is_exact;
            if let Some(mut done) = current.replace(item) {
                // The clock knows positions of this block only; earlier blocks set theirs at
                // their end.
                if done.last_index >= *index {
                    done.last_position = passed.clock.position(done.last_index);
                }
                sender.send(done)?;
            }
        }
        // The stretch may end with this block.
        if let Some(current) = &mut current {
            current.last_position = passed.clock.position(current.last_index);
        }
        // A line continues over branches that are not taken.
        let end = last.map(|last| last.end);
        next = end.filter(|_| exit == Exit::Next || (!was_exact && exit == Exit::NotTaken));
        ControlFlow::Continue(())
    });
    if walked.is_continue() && current.is_none_or(|last| sender.send(last).is_continue()) {
        // If the receiver is gone, the last stretches are dropped.
        let _ = sender.flush();
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
