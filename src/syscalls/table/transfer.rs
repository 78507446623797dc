//! Reading and writing through descriptors.

use super::sizes::LONG;
use crate::syscalls::model::Property::{MayBlock, WritesFiles};
use crate::syscalls::model::{Model, call};
use crate::syscalls::write::{filled, structure, vector};

pub(super) const CALLS: &[Model] = &[
    call(0, "read", &[filled(1, 2)], &[MayBlock]),
    call(1, "write", &[], &[MayBlock, WritesFiles]),
    call(8, "lseek", &[], &[]),
    call(17, "pread64", &[filled(1, 2)], &[MayBlock]),
    call(18, "pwrite64", &[], &[MayBlock, WritesFiles]),
    call(19, "readv", &[vector(1, 2)], &[MayBlock]),
    call(20, "writev", &[], &[MayBlock, WritesFiles]),
    call(40, "sendfile", &[structure(2, LONG).always()], &[MayBlock, WritesFiles]),
    call(74, "fsync", &[], &[]),
    call(75, "fdatasync", &[], &[]),
    call(162, "sync", &[], &[]),
    call(187, "readahead", &[], &[]),
    call(221, "fadvise64", &[], &[]),
    call(275, "splice", OFFSETS, &[MayBlock, WritesFiles]),
    call(276, "tee", &[], &[MayBlock]),
    call(277, "sync_file_range", &[], &[]),
    // Moves data from a pipe into memory or back: that depends on the pipe's end, which only the
    // kernel knows.
    call(278, "vmsplice", &[vector(1, 2)], &[MayBlock]),
    call(295, "preadv", &[vector(1, 2)], &[MayBlock]),
    call(296, "pwritev", &[], &[MayBlock, WritesFiles]),
    call(306, "syncfs", &[], &[]),
    call(326, "copy_file_range", OFFSETS, &[MayBlock, WritesFiles]),
    call(327, "preadv2", &[vector(1, 2)], &[MayBlock]),
    call(328, "pwritev2", &[], &[MayBlock, WritesFiles]),
    call(451, "cachestat", &[structure(2, super::sizes::CACHESTAT)], &[]),
];

/// The offsets in the input and the output file.
const OFFSETS: &[crate::syscalls::write::Write] =
    &[structure(1, LONG).always(), structure(3, LONG).always()];
