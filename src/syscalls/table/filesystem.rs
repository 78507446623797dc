//! File systems, mounts, quotas.

use super::sizes::{INT, LONG, STATFS, USTAT};
use crate::syscalls::model::Property::MayBlock;
use crate::syscalls::model::{Model, Operation, by_bits, by_int, call, multiplexed, op};
use crate::syscalls::value::u32_at;
use crate::syscalls::write::{filled_array, sized, structure};

pub(super) const CALLS: &[Model] = &[
    call(136, "ustat", &[structure(1, USTAT)], &[]),
    call(137, "statfs", &[structure(1, STATFS)], &[]),
    call(138, "fstatfs", &[structure(1, STATFS)], &[]),
    multiplexed(139, "sysfs", by_int(0), SYSFS, &[]),
    call(155, "pivot_root", &[], &[]),
    call(161, "chroot", &[], &[]),
    call(165, "mount", &[], &[]),
    call(166, "umount2", &[], &[]),
    call(167, "swapon", &[], &[]),
    call(168, "swapoff", &[], &[]),
    multiplexed(179, "quotactl", by_bits(0, 8, 0xff_ffff), QUOTACTL, &[]),
    call(253, "inotify_init", &[], &[]),
    call(254, "inotify_add_watch", &[], &[]),
    call(255, "inotify_rm_watch", &[], &[]),
    call(294, "inotify_init1", &[], &[]),
    call(300, "fanotify_init", &[], &[]),
    call(301, "fanotify_mark", &[], &[]),
    call(428, "open_tree", &[], &[]),
    call(429, "move_mount", &[], &[]),
    call(430, "fsopen", &[], &[]),
    call(431, "fsconfig", &[], &[MayBlock]),
    call(432, "fsmount", &[], &[]),
    call(433, "fspick", &[], &[]),
    call(442, "mount_setattr", &[], &[]),
    multiplexed(443, "quotactl_fd", by_bits(1, 8, 0xff_ffff), QUOTACTL, &[]),
    // The structure begins with the size of what was written.
    call(457, "statmount", &[sized(1, 2).counted_by(u32_at(1, 0))], &[]),
    call(458, "listmount", &[filled_array(1, 2, LONG)], &[]),
    call(467, "open_tree_attr", &[], &[]),
    call(470, "listns", &[filled_array(1, 2, LONG)], &[]),
];

/// A size that exceeds all names of file systems (fs/filesystems.c has no limit for them).
const NAME: u64 = 64;

/// sysfs(2).
const SYSFS: &[Operation] = &[
    op(1, "index of a name", &[]),
    op(2, "name of an index", &[structure(2, NAME)]),
    op(3, "number of types", &[]),
];

const DQBLK: u64 = 72;
const DQINFO: u64 = 24;
const DISK_QUOTA: u64 = 112;
const QUOTA_STAT: u64 = 80;
const QUOTA_STATV: u64 = 160;

/// quotactl(2): the command without the quota's type.
const QUOTACTL: &[Operation] = &[
    op(0x80_0001, "Q_SYNC", &[]),
    op(0x80_0002, "Q_QUOTAON", &[]),
    op(0x80_0003, "Q_QUOTAOFF", &[]),
    op(0x80_0004, "Q_GETFMT", &[structure(3, INT)]),
    op(0x80_0005, "Q_GETINFO", &[structure(3, DQINFO)]),
    op(0x80_0006, "Q_SETINFO", &[]),
    op(0x80_0007, "Q_GETQUOTA", &[structure(3, DQBLK)]),
    op(0x80_0008, "Q_SETQUOTA", &[]),
    op(0x80_0009, "Q_GETNEXTQUOTA", &[structure(3, DQBLK)]),
    op(0x5801, "Q_XQUOTAON", &[]),
    op(0x5802, "Q_XQUOTAOFF", &[]),
    op(0x5803, "Q_XGETQUOTA", &[structure(3, DISK_QUOTA)]),
    op(0x5804, "Q_XSETQLIM", &[]),
    op(0x5805, "Q_XGETQSTAT", &[structure(3, QUOTA_STAT)]),
    op(0x5806, "Q_XQUOTARM", &[]),
    op(0x5807, "Q_XQUOTASYNC", &[]),
    op(0x5808, "Q_XGETQSTATV", &[structure(3, QUOTA_STATV)]),
    op(0x5809, "Q_XGETNEXTQUOTA", &[structure(3, DISK_QUOTA)]),
];
