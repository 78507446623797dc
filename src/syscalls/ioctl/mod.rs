//! The memory that ioctl(2) requests write.
//!
//! Most request numbers encode this memory: the direction and size of the structure that the
//! argument points to. The tables list the exceptions: numbers older than that rule, structures
//! with pointers, arrays after structures, and wrong directions or sizes.

mod block;
mod code;
mod console;
mod device;
mod file;
mod network;
mod terminal;

use super::resolve::Knowledge;
use super::write::{Write, structure};
use code::{Code, POINTERS, REGULAR};

/// A row of the tables: an ioctl request and the memory that it writes.
#[derive(Debug)]
pub struct IoctlRequest {
    /// The request's number, the second argument of ioctl(2).
    pub number: u32,
    /// The request's name in the kernel's headers.
    pub name: &'static str,
    /// The memory that the request writes; `None` if it may write anything.
    writes: Option<&'static [Write]>,
}

const FAMILIES: [&[IoctlRequest]; 6] = [
    terminal::REQUESTS,
    network::REQUESTS,
    file::REQUESTS,
    block::REQUESTS,
    console::REQUESTS,
    device::REQUESTS,
];

/// The index of the argument that points to the request's structure.
const ARGUMENT: usize = 2;

/// The memory that a request writes, as far as it is known.
pub(super) enum RequestWrites {
    /// By a row of the tables.
    Listed(&'static [Write]),
    /// Derived from the request's number; no write if the kernel only reads the structure.
    Encoded(Option<Write>, Knowledge),
    /// The request may write anything.
    Unknown,
}

impl RequestWrites {
    /// Returns the writes that are known or assumed; none for an unknown request, which may write
    /// anything: see [`Self::knowledge`].
    pub(super) fn writes(&self) -> &[Write] {
        match self {
            Self::Listed(writes) => writes,
            Self::Encoded(write, _) => write.as_slice(),
            Self::Unknown => &[],
        }
    }

    /// Returns how certain it is that the request writes nothing else.
    pub(super) fn knowledge(&self) -> Knowledge {
        match self {
            Self::Listed(_) => Knowledge::Known,
            Self::Encoded(_, knowledge) => *knowledge,
            Self::Unknown => Knowledge::Unknown,
        }
    }
}

/// Returns all requests of the tables.
pub fn ioctl_requests() -> impl Iterator<Item = &'static IoctlRequest> {
    FAMILIES.into_iter().flatten()
}

/// Returns the memory that a request writes, by the tables, else by its number. The kernel takes
/// the low 32 bits of the number.
pub(super) fn writes_of(request: u64) -> RequestWrites {
    let Code(number) = Code::of_argument(request);
    match ioctl_requests().find(|row| row.number == number) {
        Some(row) => row.writes.map_or(RequestWrites::Unknown, RequestWrites::Listed),
        None => derived(Code(number)),
    }
}

/// Derives the memory that a request writes from the direction and size in the number: known for
/// the kinds in [`REGULAR`], unknown for those in [`POINTERS`] and without a direction, else
/// assumed.
fn derived(code: Code) -> RequestWrites {
    if !code.has_direction() || POINTERS.contains(&code.kind()) {
        return RequestWrites::Unknown;
    }
    let is_regular = REGULAR.contains(&code.kind());
    let knowledge = if is_regular { Knowledge::Known } else { Knowledge::Assumed };
    let write = code.kernel_writes().then(|| structure(ARGUMENT, code.size_bytes()));
    RequestWrites::Encoded(write, knowledge)
}

/// Returns the row of a request that writes `writes`.
const fn request(number: u32, name: &'static str, writes: &'static [Write]) -> IoctlRequest {
    IoctlRequest { number, name, writes: Some(writes) }
}

/// Returns the row of a request that writes nothing.
const fn silent(number: u32, name: &'static str) -> IoctlRequest {
    request(number, name, &[])
}

/// Returns the row of a request that may write anything.
const fn unknown(number: u32, name: &'static str) -> IoctlRequest {
    IoctlRequest { number, name, writes: None }
}
