//! The path of a thread as a sequence of stretches, which two recordings can have in common: each
//! has a key, a number for its place in the code that is the same in both. A walker makes them
//! ([`stretches`]), and a [`Stream`] receives them.
//!
//! In a file that is the same in both recordings, and in code that is in no file, a key is *exact*:
//! no two instructions have it. A stretch ends at a branch there. In other files, all instructions
//! of a function's line have one key, and a stretch is those of one line in a row. The walker can
//! lengthen its last stretch block by block, so a chunk is sent only when a stretch is added to a
//! full one, or at the end.

use super::depths::Depths;
use super::meet::{Item, Items};
use crate::ask::blocks::BlockFacts;
use crate::ask::clock::Clock;
use crate::ask::functions::Functions;
use crate::ask::opened::Asked;
use crate::ask::tracker::{Change, Tracker};
use crate::ask::walk::PathItem;
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

/// The number of items that a walker sends at a time.
const CHUNK: usize = 1024;
/// The maximum number of addresses in [`Keys::known`], which is cleared beyond that.
const KEYS: usize = 1 << 20;

/// Instructions in a straight line, up to a branch; where the files of the two runs differ, the
/// instructions of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The number of the first instruction's [`Key`].
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
    /// The number of open calls around it, as [`Depths`] corrects it.
    depth: usize,
    /// The kind of exit of the stretch's last block.
    pub(super) exit: Exit,
    /// True if an event, such as a signal, kept the next instruction from executing then.
    pub(super) is_interrupted: bool,
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
        is_interrupted: false,
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

/// Stretches of a path, one after the other. Their keys are stored apart, since most stretches are
/// only compared.
#[derive(Default)]
pub(super) struct Chunk {
    keys: Vec<u64>,
    stretches: Vec<Stretch>,
}

/// The receiving end of a walk: the stretches of a thread's path.
pub(super) struct Stream {
    chunks: Receiver<Chunk>,
    chunk: Chunk,
    /// The index of the next stretch in `chunk`.
    next: usize,
    /// The stretches that were put back, in reverse order.
    back: Vec<Stretch>,
}

impl Stream {
    pub(super) fn new(chunks: Receiver<Chunk>) -> Self {
        Self { chunks, chunk: Chunk::default(), next: 0, back: Vec::new() }
    }

    /// Receives the next chunk if the current one has been passed. Returns false at the end of the
    /// path.
    fn receive(&mut self) -> bool {
        while self.next >= self.chunk.keys.len() {
            let Ok(chunk) = self.chunks.recv() else { return false };
            (self.chunk, self.next) = (chunk, 0);
        }
        true
    }

    /// Skips the next stretches that both paths have in common, up to the end of a chunk; only one
    /// while there are stretches that were put back. Returns the last skipped stretch of each path;
    /// `None`, and skips nothing, if the next ones differ or a path ends.
    pub(super) fn pass_common([good, bad]: &mut [Self; 2]) -> Option<[Stretch; 2]> {
        if !(good.back.is_empty() && bad.back.is_empty()) {
            return match [good.next(), bad.next()] {
                [Some(good), Some(bad)] if good.key == bad.key => Some([good, bad]),
                next => {
                    good.put_back(next[0].as_slice());
                    bad.put_back(next[1].as_slice());
                    None
                }
            };
        }
        if !(good.receive() && bad.receive()) {
            return None;
        }
        let keys = good.chunk.keys[good.next..].iter().zip(&bad.chunk.keys[bad.next..]);
        let count = keys.take_while(|(good, bad)| good == bad).count();
        (good.next, bad.next) = (good.next + count, bad.next + count);
        let last = |stream: &Self| stream.chunk.stretches[stream.next - 1];
        (count > 0).then(|| [last(good), last(bad)])
    }
}

impl Items for Stream {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if let Some(item) = self.back.pop() {
            return Some(item);
        }
        if !self.receive() {
            return None;
        }
        self.next += 1;
        Some(self.chunk.stretches[self.next - 1])
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
}

impl Keys<'_> {
    /// Returns the key of an address.
    fn of(&mut self, addr: Addr) -> Key {
        if let Some(known) = self.known.get(&addr) {
            return *known;
        }
        let (number, is_exact) = self.find(addr);
        let key = Key { number, is_exact };
        if self.known.len() >= KEYS {
            self.known.clear();
        }
        self.known.insert(addr, key);
        key
    }

    /// Returns the number of an address's key, and true if no two instructions of the run have this
    /// number. It is made of the offset in a file that is the same in both recordings. In another
    /// file, it is made of the function and the line, counted from the function's start, or of
    /// nothing if there are no symbols: all such code has one number. For code that is in no file,
    /// it is made of the address.
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

/// Returns the lowest mapped address of each file, by its name without directory.
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

/// The sending end of a stream. Its last stretch may become longer.
struct Sender {
    chunks: SyncSender<Chunk>,
    chunk: Chunk,
}

impl Sender {
    /// Adds a stretch to the chunk, after sending the chunk if it is full. Breaks if the receiver
    /// is gone.
    #[inline]
    fn add(&mut self, item: Stretch) -> ControlFlow<()> {
        if self.chunk.keys.len() >= CHUNK {
            self.flush()?;
        }
        self.chunk.keys.push(item.key);
        self.chunk.stretches.push(item);
        ControlFlow::Continue(())
    }

    /// Returns the last stretch; `None` before the first one.
    #[inline]
    fn last(&mut self) -> Option<&mut Stretch> {
        self.chunk.stretches.last_mut()
    }

    /// Sends the chunk, and begins another one. Breaks if the receiver is gone.
    fn flush(&mut self) -> ControlFlow<()> {
        let next = Chunk { keys: Vec::with_capacity(CHUNK), stretches: Vec::with_capacity(CHUNK) };
        match self.chunks.send(std::mem::replace(&mut self.chunk, next)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// A converter of a path to stretches, block by block.
struct Stretcher<'a> {
    keys: Keys<'a>,
    /// The keys of blocks, by their numbers.
    of_blocks: Vec<Key>,
    tracker: Tracker<()>,
    depths: Depths,
    sender: Sender,
    /// The address at which the last block continues without a branch.
    next: Option<Addr>,
    /// True if the key of the last stretch is exact.
    was_exact: bool,
    /// The instruction that an event since the last block kept from executing.
    interrupted: Option<Addr>,
}

impl Stretcher<'_> {
    /// Processes the next item of the path. A block continues the last stretch or begins another
    /// one; in code that is compared by lines, each line does. Breaks if the receiver is gone.
    fn pass(&mut self, passed: &PathItem<'_>) -> ControlFlow<()> {
        self.tracker
            .process(passed, &mut |change| matches!(change, Change::Began(_)).then_some(()));
        let (Visit::Block { index, span, code, .. }, Some(block)) = (passed.visit, passed.block)
        else {
            self.interrupted = self.interrupted.or(passed.ip());
            return ControlFlow::Continue(());
        };
        // Most events, such as the end of a time slice, are followed by what they interrupted.
        if self.interrupted.take().is_some_and(|at| at != span.ip)
            && let Some(last) = self.sender.last()
        {
            last.is_interrupted = true;
        }
        let key = self.key_of(passed, block, span.ip);
        let depth = self.depths.pass(self.tracker.depth(), span.ip, block.function, span.exit);
        let goes_on = self.next == Some(span.ip);
        if key.is_exact {
            let last_index = index + u64::from(span.insns.saturating_sub(1));
            let clock = passed.clock;
            let last_position = clock.position(last_index);
            if let Some(current) = self.sender.last().filter(|of| goes_on && of.depth == depth) {
                (current.last, current.exit) = (span.last, span.exit);
                (current.last_index, current.last_position) = (last_index, last_position);
            } else {
                self.was_exact = true;
                self.sender.add(Stretch {
                    key: key.number,
                    first: span.ip,
                    last: span.last,
                    index: *index,
                    last_index,
                    position: clock.position(*index),
                    last_position,
                    depth,
                    exit: span.exit,
                    is_interrupted: false,
                })?;
            }
        } else {
            self.pass_lines(passed.clock, *index, code.addrs(), depth, span.exit)?;
        }
        // A line continues over branches that are not taken.
        let goes_on = span.exit == Exit::Next || !self.was_exact && span.exit == Exit::NotTaken;
        self.next = goes_on.then_some(block.end);
        ControlFlow::Continue(())
    }

    /// Returns the key of a block at `ip`.
    fn key_of(&mut self, passed: &PathItem<'_>, block: &BlockFacts, ip: Addr) -> Key {
        let number = block.number as usize;
        if let Some(known) = self.of_blocks.get(number).filter(|_| !passed.is_new) {
            return *known;
        }
        let key = self.keys.of(ip);
        self.of_blocks.resize(self.of_blocks.len().max(number + 1), key);
        self.of_blocks[number] = key;
        key
    }

    /// Adds a block of code that is compared by lines: each instruction continues the last stretch,
    /// or begins another one in a new line. `index` is the number of the first one. Breaks if the
    /// receiver is gone.
    fn pass_lines(
        &mut self,
        clock: &Clock<'_>,
        index: u64,
        addrs: &[Addr],
        depth: usize,
        exit: Exit,
    ) -> ControlFlow<()> {
        for (number, addr) in (index..).zip(addrs.iter().copied()) {
            let key = self.keys.of(addr).number;
            // Control reached the first address of the block without a branch.
            let goes_on = number > index || self.next == Some(addr);
            let stays = |of: &&mut Stretch| goes_on && of.depth == depth && of.key == key;
            let position = clock.position(number);
            if let Some(current) = self.sender.last().filter(stays) {
                (current.last, current.exit) = (addr, exit);
                (current.last_index, current.last_position) = (number, position);
                continue;
            }
            self.was_exact = false;
            self.sender.add(Stretch {
                key,
                first: addr,
                last: addr,
                index: number,
                last_index: number,
                position,
                last_position: position,
                depth,
                exit,
                is_interrupted: false,
            })?;
        }
        ControlFlow::Continue(())
    }
}

/// Walks a thread's path, and sends its stretches until the receiver is gone.
pub(super) fn stretches(
    asked: &Asked,
    tid: Tid,
    same_files: &BTreeSet<String>,
    chunks: SyncSender<Chunk>,
) {
    let functions = asked.functions();
    let image = asked.timeline.images().last().map(AsRef::as_ref);
    let known = AddressMap::default();
    let keys =
        Keys { image, same_files, starts: starts_of(image), functions: &functions, asked, known };
    let mut stretcher = Stretcher {
        keys,
        of_blocks: Vec::new(),
        tracker: Tracker::default(),
        depths: Depths::default(),
        sender: Sender { chunks, chunk: Chunk::default() },
        next: None,
        was_exact: false,
        interrupted: None,
    };
    let walked = asked.path(tid).walk(&functions, &mut |passed| stretcher.pass(passed));
    if walked.is_continue() {
        // If the receiver is gone, the last stretches are dropped.
        let _ = stretcher.sender.flush();
    }
}
