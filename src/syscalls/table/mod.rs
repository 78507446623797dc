//! The table of system calls, by families.
//!
//! A row is `call(number, name, writes, properties)`; `super::write` has the functions for the
//! third column. Numbers follow `arch/x86/entry/syscalls/syscall_64.tbl`, sizes the kernel's
//! structures (include/uapi/), which are those of the man pages but for `rt_sigaction` and signal
//! sets.

mod arguments;
mod bpf;
mod descriptors;
mod event;
mod file;
mod filesystem;
mod identity;
mod ipc;
mod kernel;
mod mapping;
mod prctl;
mod process;
mod ptrace;
mod security;
mod signal;
mod sizes;
mod socket;
mod time;
mod transfer;

use super::model::Model;

pub(in crate::syscalls) use arguments::argument_count;

/// One more than the largest number of a system call.
const NUMBERS: usize = 472;

/// The row of each number.
pub(super) static BY_NUMBER: [Option<&Model>; NUMBERS] = index();

/// Builds the array. Does not compile if two rows have one number.
const fn index() -> [Option<&'static Model>; NUMBERS] {
    let mut rows: [Option<&'static Model>; NUMBERS] = [None; NUMBERS];
    let mut family = 0;
    while family < FAMILIES.len() {
        let calls = FAMILIES[family];
        let mut at = 0;
        while at < calls.len() {
            let row = &mut rows[calls[at].number];
            assert!(row.is_none(), "two rows have one number");
            *row = Some(&calls[at]);
            at += 1;
        }
        family += 1;
    }
    rows
}

/// All rows.
const FAMILIES: [&[Model]; 14] = [
    transfer::CALLS,
    file::CALLS,
    filesystem::CALLS,
    descriptors::CALLS,
    event::CALLS,
    mapping::CALLS,
    process::CALLS,
    identity::CALLS,
    security::CALLS,
    signal::CALLS,
    time::CALLS,
    socket::CALLS,
    ipc::CALLS,
    kernel::CALLS,
];
