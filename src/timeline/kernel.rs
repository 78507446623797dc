//! A path's entries to the kernel: its system calls, with their numbers if known, and the signals
//! whose handlers it runs.
//!
//! The number of a system call is the constant that the path's own instructions move to RAX, also
//! through registers and calls. If they do not show it, the sideband's record of the thread at that
//! time has it. Otherwise the number is unknown.

use super::line::Timeline;
use super::search::{Direction, Found, Search};
use super::segment::MarkContent;
use crate::common::{Addr, Tid, Tsc};
use crate::flow::EventKind;
use crate::image::CodeSource;
use crate::insn::{Assigned, ExecMode, Gpr, MAX_INSN_BYTES, assigned, decode, is_syscall};
use crate::sideband::Event;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The maximum number of instructions searched backwards for the value of a register.
const INSNS_SEARCHED: u64 = 4096;

/// A signal whose handler the path runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivery {
    /// The position of the handler's first instruction.
    pub position: u64,
    /// The thread's ID.
    pub tid: Tid,
    /// The signal's number.
    pub number: i32,
}

/// SYSCALL instructions by address, each with the number of its system call if that never varies;
/// `None` if it may.
type Sites = BTreeMap<Addr, Option<u64>>;

/// The system calls and signals of a timeline, searched once and kept.
#[derive(Clone, Debug, Default)]
pub struct KernelEntries {
    /// All executed SYSCALL instructions; each with its system call number, if the code before it
    /// always sets the same one.
    sites: OnceCell<Sites>,
    /// The system calls in the sideband by thread, each with its time and its number.
    reported: HashMap<Tid, Vec<(Tsc, u64)>>,
    /// The signals of the sideband, sorted by position, at most one at each. They include signals
    /// without a handler: [`Self::is_handled`] tests that.
    signals: Vec<Delivery>,
}

impl KernelEntries {
    /// Collects the system calls and signals of the sideband. The SYSCALL instructions are searched
    /// on first use.
    pub fn of(timeline: &Timeline) -> Self {
        let mut entries = Self::default();
        for record in timeline.records() {
            match record.event {
                Event::Syscall { number, .. } => {
                    entries.reported.entry(record.tid).or_default().push((record.tsc, number));
                }
                Event::Signal { number, .. } => {
                    let position = timeline.position_after(record.tid, record.tsc);
                    let delivery = |position| Delivery { position, tid: record.tid, number };
                    entries.signals.extend(position.map(delivery));
                }
                _ => {}
            }
        }
        entries.reported.values_mut().for_each(|reported| reported.sort_unstable());
        // If several signals arrive at once, the handler of the last runs first.
        entries.signals.reverse();
        entries.signals.sort_by_key(|delivery| delivery.position);
        entries.signals.dedup_by_key(|delivery| delivery.position);
        entries
    }

    fn sites(&self, timeline: &Timeline) -> &Sites {
        self.sites.get_or_init(|| find_sites(timeline))
    }

    /// Returns the addresses of the executed SYSCALL instructions whose number satisfies `wanted`
    /// or may vary, so that each execution has to be tested.
    pub fn call_sites(
        &self,
        timeline: &Timeline,
        wanted: impl Fn(Option<u64>) -> bool,
    ) -> BTreeSet<Addr> {
        let may = |number: &Option<u64>| number.is_none() || wanted(*number);
        let sites = self.sites(timeline).iter();
        sites.filter(|(_, number)| may(number)).map(|(site, _)| *site).collect()
    }

    /// Returns true if a thread's instruction `index` is a system call.
    pub fn is_call(&self, timeline: &Timeline, tid: Tid, index: u64) -> bool {
        index < timeline.instructions(tid)
            && timeline.pc(tid, index).is_some_and(|pc| self.sites(timeline).contains_key(&pc))
            && read_insn(timeline, tid, index).is_some_and(|code| is_syscall(code.known()))
    }

    /// Returns the number of the system call at a thread's instruction `index`, which is a SYSCALL,
    /// if known: from the code before it, or else from the sideband.
    pub fn number(&self, timeline: &Timeline, tid: Tid, index: u64) -> Option<u64> {
        let site = timeline.pc(tid, index)?;
        let of_site = self.sites(timeline).get(&site).copied().flatten();
        of_site
            .or_else(|| constant_in_rax(timeline, tid, index))
            .or_else(|| self.reported_number(timeline, tid, index))
    }

    /// Returns the number that the sideband has for the call at a thread's instruction `index`, if
    /// it is the last instruction and the only call of its slice, which lies between two times of
    /// the trace.
    fn reported_number(&self, timeline: &Timeline, tid: Tid, index: u64) -> Option<u64> {
        let reported = self.reported.get(&tid)?;
        let (slice, end) = timeline.order.slice_of(timeline.thread(tid)?.0, index)?;
        let is_last = index + 1 == slice.first + slice.insns;
        let rest_of_slice = slice.global..slice.global + (index - slice.first);
        let addrs: BTreeSet<Addr> = self.sites(timeline).keys().copied().collect();
        let others = Search {
            within: rest_of_slice,
            direction: Direction::Forward,
            only: Some(tid),
            addrs: &addrs,
        };
        if !is_last || timeline.find(&others, &|| false) != Found::Nothing {
            return None;
        }
        let first = reported.partition_point(|(tsc, _)| *tsc < slice.tsc);
        let mut in_time = reported.get(first..)?.iter().take_while(|(tsc, _)| *tsc < end);
        let number = in_time.next()?.1;
        // Several equal records: the call was interrupted and restarted.
        in_time.all(|(_, other)| *other == number).then_some(number)
    }

    /// Returns the signal at a position, without a check that its handler runs there
    /// ([`Self::is_handled`]).
    pub fn signal_at(&self, position: u64) -> Option<Delivery> {
        let at = self.signals.binary_search_by_key(&position, |delivery| delivery.position);
        self.signals.get(at.ok()?).copied()
    }

    /// Returns the signals from position `first` to `last`, both included, in order, without a
    /// check that their handlers run.
    pub fn signals_within(&self, first: u64, last: u64) -> &[Delivery] {
        let start = self.signals.partition_point(|delivery| delivery.position < first);
        let end = self.signals.partition_point(|delivery| delivery.position <= last);
        self.signals.get(start..end).unwrap_or_default()
    }

    /// Returns true if a signal handler begins at the delivery's position.
    pub fn is_handled(timeline: &Timeline, delivery: &Delivery) -> bool {
        let index = timeline.index_of(delivery.tid, delivery.position);
        let stack = timeline.call_stack(delivery.tid, index);
        let entered = |pc| stack.first().is_some_and(|frame| frame.signal && frame.entry == pc);
        timeline.pc(delivery.tid, index).is_some_and(entered)
    }
}

/// Returns all executed SYSCALL instructions, each with its number if that never varies.
fn find_sites(timeline: &Timeline) -> BTreeMap<Addr, Option<u64>> {
    let epochs = timeline.images().epochs();
    // The last image of a generation contains everything mapped in it.
    let ends =
        |i: &usize| epochs.get(i + 1).is_none_or(|next| next.generation != epochs[*i].generation);
    let images: Vec<_> = (0..epochs.len()).filter(ends).map(|i| &epochs[i].image).collect();
    let mut sites = BTreeMap::new();
    let blocks: BTreeSet<(Addr, Addr)> =
        timeline.threads.iter().flat_map(|t| t.path.index.blocks()).collect();
    for (ip, last) in blocks {
        for image in &images {
            let mut bytes = [0; 2];
            if image.read(last, &mut bytes) < bytes.len() || !is_syscall(&bytes) {
                continue;
            }
            let number = number_of_block(&***image, ip, last);
            sites
                .entry(last)
                .and_modify(|known: &mut Option<u64>| {
                    *known = known.filter(|known| number == Some(*known));
                })
                .or_insert(number);
        }
    }
    sites
}

/// Returns the constant that the block from `ip` on puts into RAX before its last instruction, at
/// `last`; `None` if it puts none or another value there.
fn number_of_block(image: &dyn CodeSource, ip: Addr, last: Addr) -> Option<u64> {
    let mut value = None;
    let mut at = ip;
    while at < last {
        let mut bytes = [0; MAX_INSN_BYTES];
        let known = image.read(at, &mut bytes);
        let (assigned, len) = assigned(&bytes[..known], at, Gpr::RAX)?;
        value = match assigned {
            Assigned::Kept => value,
            Assigned::Constant(constant) => Some(constant.into()),
            Assigned::Copied(_) | Assigned::Unknown => None,
        };
        at = at.wrapping_add(len.into());
    }
    value.filter(|_| at == last)
}

/// Returns the constant that RAX has before a thread's instruction `index`. Follows the path back,
/// also through copies between registers, for at most 4096 instructions; `None` if these do not
/// show it.
fn constant_in_rax(timeline: &Timeline, tid: Tid, index: u64) -> Option<u64> {
    let mut register = Gpr::RAX;
    for at in (index.saturating_sub(INSNS_SEARCHED)..index).rev() {
        let code = read_insn(timeline, tid, at)?;
        let (insn, next) = (code.decoded()?, timeline.pc(tid, at + 1)?);
        let is_contiguous = insn.class.is_branch() && !insn.class.is_far() || insn.next() == next;
        let leaves_program = insn.class.is_far() && !is_syscall(code.known());
        if !is_contiguous || leaves_program || !timeline.is_undisturbed(tid, at + 1) {
            return None;
        }
        match assigned(code.known(), code.ip, register)?.0 {
            Assigned::Kept => {}
            Assigned::Constant(value) => return Some(value.into()),
            Assigned::Copied(from) => register = from,
            Assigned::Unknown => return None,
        }
    }
    None
}

/// The code bytes at an instruction's address, as far as they are known.
struct InsnBytes {
    ip: Addr,
    bytes: [u8; MAX_INSN_BYTES],
    count: usize,
}

impl InsnBytes {
    fn known(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    fn decoded(&self) -> Option<crate::insn::Insn> {
        decode(self.known(), self.ip, ExecMode::Bits64)
    }
}

/// Returns the code of a thread's instruction `index`, as it was at that time.
fn read_insn(timeline: &Timeline, tid: Tid, index: u64) -> Option<InsnBytes> {
    let ip = timeline.pc(tid, index)?;
    let images = timeline.images();
    let (slice, _) = timeline.order.slice_of(timeline.thread(tid)?.0, index)?;
    let image = &images.epochs().get(images.epoch_at(slice.tsc))?.image;
    let mut bytes = [0; MAX_INSN_BYTES];
    let count = image.read(ip, &mut bytes);
    Some(InsnBytes { ip, bytes, count })
}

impl Timeline {
    /// Returns the position of the first instruction that a thread executes after the first time in
    /// its trace at or after `tsc`; `None` if there is none.
    pub fn position_after(&self, tid: Tid, tsc: Tsc) -> Option<u64> {
        let (number, _) = self.thread(tid)?;
        self.order.first_position_from(number, tsc)
    }

    /// Returns true if a thread's registers are unchanged between instruction `index` and the one
    /// before: there is no gap, and an interrupted thread resumes at the same address.
    fn is_undisturbed(&self, tid: Tid, index: u64) -> bool {
        let Some((number, thread)) = self.thread(tid) else { return false };
        let index_of = |index| thread.path.index.entry_with(index);
        let (Some(before), Some(here)) = (index.checked_sub(1).and_then(index_of), index_of(index))
        else {
            return false;
        };
        let next = self.pc(tid, index);
        (before..=here).all(|at| {
            let Some(segment) = self.segment(number, at) else { return false };
            let first = thread.path.index.entries[at].first;
            let marks = segment.marks.iter().filter(|mark| first + mark.at == index);
            let mut kinds = marks.map(|mark| &mark.content);
            kinds.all(|what| match what {
                MarkContent::Event(
                    EventKind::AsyncDisabled { at, .. } | EventKind::AsyncBranch { from: at, .. },
                ) => Some(*at) == next,
                MarkContent::Event(EventKind::Overflow { .. } | EventKind::Tsx { .. })
                | MarkContent::Gap(_) => false,
                MarkContent::Event(_) => true,
            })
        })
    }
}
