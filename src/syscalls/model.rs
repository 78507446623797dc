//! A row of the table: a call's name, what it writes, and what else a recorder must know.

use super::call::Call;
use super::memory::CallerMemory;
use super::table;
use super::value::Value;
use super::write::Write;

/// The table's line for one system call.
#[derive(Debug)]
pub struct Model {
    /// The call's number (`arch/x86/entry/syscalls/syscall_64.tbl`).
    pub number: usize,
    /// The call's name in that file.
    pub name: &'static str,
    /// The call's properties, besides the memory that it writes.
    pub properties: &'static [Property],
    pub(super) writes: Writes,
}

/// A property of a call that a recorder must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// The call may wait without limit.
    MayBlock,
    /// The call changes what is mapped, where, how, or with which content.
    ChangesMappings,
    /// The call makes, replaces or ends processes or threads.
    ChangesProcess,
    /// The call sets the thread's registers, beyond the result.
    SetsRegisters,
    /// The call changes the content of files, and with it memory that maps them.
    WritesFiles,
    /// The call writes memory of other processes, or of threads that the caller traces.
    WritesOthers,
    /// The kernel keeps a pointer from the call, and writes there later: see [`super::Registered`].
    KeepsPointer,
    /// The call makes the kernel write memory outside of calls. An exact recording answers ENOSYS.
    Denied,
}

/// The memory that a call writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Writes {
    /// These writes, always.
    List(&'static [Write]),
    /// The writes depend on an operation, which an argument names.
    ByOperation(Operations),
    /// The writes depend on the ioctl request.
    Ioctl,
    /// The call may write anything.
    Unknown,
}

/// The operations of one call, such as the commands of fcntl(2), and the memory that each writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operations {
    pub(super) selector: Selector,
    pub(super) rows: &'static [Operation],
    /// The writes of operations without a row; `None` if they may write anything.
    pub(super) otherwise: Option<&'static [Write]>,
}

/// The rule by which a call's values name an operation: `value >> shift & mask`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    value: Value,
    shift: u32,
    mask: u64,
}

/// One operation of a call, and the memory that it writes.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) number: u64,
    /// The memory that the operation writes; `None` if it may write anything.
    pub(super) writes: Option<&'static [Write]>,
}

impl Model {
    /// Returns the row of a call; `None` for a call that the table does not know.
    pub fn by_number(number: u64) -> Option<&'static Self> {
        let number = usize::try_from(number).ok()?;
        table::BY_NUMBER.get(number).copied().flatten()
    }

    /// Returns true if the call has a property.
    pub fn has(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }
}

/// Returns all calls that the table knows, by their numbers.
pub fn models() -> impl Iterator<Item = &'static Model> {
    table::BY_NUMBER.iter().copied().flatten()
}

impl Operations {
    /// Returns the writes of the operation that a call asks for; `None` if it may write anything,
    /// or if the operation cannot be read.
    pub(super) fn writes_of(
        &self,
        call: &Call,
        memory: &dyn CallerMemory,
    ) -> Option<&'static [Write]> {
        let number = self.selector.select(call, memory)?;
        match self.rows.iter().find(|row| row.number == number) {
            Some(row) => row.writes,
            None => self.otherwise,
        }
    }
}

impl Selector {
    /// Returns the number of the operation; `None` if it is in memory that cannot be read.
    fn select(self, call: &Call, memory: &dyn CallerMemory) -> Option<u64> {
        Some((self.value.read(call, memory)? >> self.shift) & self.mask)
    }
}

/// Selects by the low 32 bits of an argument, which most calls take as an int.
pub(super) const fn by_int(arg: usize) -> Selector {
    Selector { value: Value::Arg(arg), shift: 0, mask: 0xffff_ffff }
}

/// Selects by bits of an argument.
pub(super) const fn by_bits(arg: usize, shift: u32, mask: u64) -> Selector {
    Selector { value: Value::Arg(arg), shift, mask }
}

/// Selects by the result of a function of the arguments.
pub(super) const fn by_computed(compute: fn(&[u64; 6]) -> u64) -> Selector {
    Selector { value: Value::Computed(compute), shift: 0, mask: u64::MAX }
}

/// Returns the row of a call that writes `writes`, whatever operation its arguments name.
pub(super) const fn call(
    number: usize,
    name: &'static str,
    writes: &'static [Write],
    properties: &'static [Property],
) -> Model {
    Model { number, name, properties, writes: Writes::List(writes) }
}

/// Returns the row of a call whose argument names an operation. Operations without a row may write
/// anything.
pub(super) const fn multiplexed(
    number: usize,
    name: &'static str,
    selector: Selector,
    rows: &'static [Operation],
    properties: &'static [Property],
) -> Model {
    let operations = Operations { selector, rows, otherwise: None };
    Model { number, name, properties, writes: Writes::ByOperation(operations) }
}

/// Returns the row of a call whose argument names an operation. Operations without a row write
/// `otherwise`.
pub(super) const fn multiplexed_or(
    number: usize,
    name: &'static str,
    otherwise: &'static [Write],
    selector: Selector,
    rows: &'static [Operation],
) -> Model {
    let operations = Operations { selector, rows, otherwise: Some(otherwise) };
    Model { number, name, properties: &[], writes: Writes::ByOperation(operations) }
}

/// Returns the row of the operation `number`, which writes `writes`. The name is for readers only.
pub(super) const fn op(number: u64, _name: &'static str, writes: &'static [Write]) -> Operation {
    Operation { number, writes: Some(writes) }
}

/// Returns the row of an operation that may write anything. The name is for readers only.
pub(super) const fn unknown_op(number: u64, _name: &'static str) -> Operation {
    Operation { number, writes: None }
}
