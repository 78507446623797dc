//! Pointers that a thread registers with the kernel, which writes to their targets when the thread
//! ends.

use super::call::Call;
use super::memory::{CallerMemory, read_number};
use crate::common::{Addr, AddrRange};

const CLONE: u64 = 56;
const SET_TID_ADDRESS: u64 = 218;
const SET_ROBUST_LIST: u64 = 273;
const CLONE3: u64 = 435;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
/// The offset of the field `child_tid` in `struct clone_args`.
const CHILD_TID: u64 = 16;

/// The maximum number of entries that the kernel follows (include/linux/futex.h,
/// `ROBUST_LIST_LIMIT`).
const MAX_ENTRIES: usize = 2048;
/// Offsets in `struct robust_list_head`, after the pointer to the list: the distance from an entry
/// to its futex, and the entry whose lock is being taken.
const FUTEX_OFFSET: u64 = 8;
const PENDING: u64 = 16;
/// The bit that is set in a pointer to an entry whose lock inherits priorities.
const PI_BIT: u64 = 1;
const FUTEX_BYTES: u64 = 4;

/// The pointers that one thread registered with the kernel. A new thread has at most `clear_tid`;
/// exec ends all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// The address at which the kernel writes 0 when the thread ends, if others share its memory
    /// then (`CLONE_CHILD_CLEARTID`, `set_tid_address(2)`).
    pub clear_tid: Option<Addr>,
    /// The head of the list of locks that the thread holds (`set_robust_list(2)`).
    pub robust_list: Option<Addr>,
}

impl Registered {
    /// Returns the registrations of a new thread, which the call `birth` created: the address to
    /// clear, if the call has the flag `CLONE_CHILD_CLEARTID`.
    pub fn of_child(birth: &Call, memory: &dyn CallerMemory) -> Self {
        let clone3 = |offset| read_number(memory, Addr(birth.args[0]).wrapping_add(offset), 8);
        let (flags, child_tid) = match birth.number {
            CLONE => (birth.args[0], birth.args[3]),
            CLONE3 => (clone3(0).unwrap_or(0), clone3(CHILD_TID).unwrap_or(0)),
            _ => (0, 0),
        };
        let clears = flags & CLONE_CHILD_CLEARTID != 0 && child_tid != 0;
        Self { clear_tid: clears.then_some(Addr(child_tid)), robust_list: None }
    }

    /// Replaces a registration, if the call is a successful `set_tid_address(2)` or
    /// `set_robust_list(2)`; a null pointer removes it. Ignores other calls.
    pub fn note_call(&mut self, call: &Call, result: i64) {
        let addr = Some(Addr(call.args[0])).filter(|addr| addr.0 != 0);
        match call.number {
            SET_TID_ADDRESS if result >= 0 => self.clear_tid = addr,
            SET_ROBUST_LIST if result == 0 => self.robust_list = addr,
            _ => {}
        }
    }

    /// Returns the memory that the kernel may write at the thread's end or exec: the words of
    /// `clear_tid` and of the locks in the robust list.
    pub fn written_at_end(&self, memory: &dyn CallerMemory) -> Vec<AddrRange> {
        let futexes = self.robust_list.map(|head| futexes_of(head, memory)).unwrap_or_default();
        let words = self.clear_tid.into_iter().chain(futexes);
        words.map(|word| AddrRange::sized(word, FUTEX_BYTES)).collect()
    }
}

/// Returns the addresses of the futexes of a robust list (kernel/futex/core.c, `exit_robust_list`).
fn futexes_of(head: Addr, memory: &dyn CallerMemory) -> Vec<Addr> {
    let word = |addr| read_number(memory, addr, 8);
    let Some(offset) = word(head.wrapping_add(FUTEX_OFFSET)) else { return Vec::new() };
    let lock = |entry: u64| Addr(entry & !PI_BIT).wrapping_add(offset);
    let mut locks = Vec::new();
    let pending = word(head.wrapping_add(PENDING)).filter(|entry| *entry != 0);
    locks.extend(pending.map(lock));
    let mut next = word(head);
    while let Some(entry) = next.filter(|entry| entry & !PI_BIT != head.0) {
        if locks.len() > MAX_ENTRIES {
            break;
        }
        locks.push(lock(entry));
        next = word(Addr(entry & !PI_BIT));
    }
    locks
}
