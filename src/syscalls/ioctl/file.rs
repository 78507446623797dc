//! Files, file systems, namespaces, the files of /proc, inotify, seccomp, perf events and
//! userfaultfd (include/uapi/linux/fs.h, fiemap.h, fscrypt.h, fsverity.h, nsfs.h, inotify.h,
//! seccomp.h, `perf_event.h`, userfaultfd.h).

use super::{IoctlRequest, request, silent, unknown};
use crate::syscalls::value::{Value, u16_at, u32_at, u64_at};
use crate::syscalls::write::{at_pointer, structure};

const INT: u64 = 4;
const LONG: u64 = 8;

pub(super) const REQUESTS: &[IoctlRequest] = &[
    request(1, "FIBMAP", &[structure(2, INT)]),
    request(2, "FIGETBSZ", &[structure(2, INT)]),
    silent(0x4030_5828, "FS_IOC_RESVSP"),
    silent(0xc004_5877, "FIFREEZE"),
    silent(0xc004_5878, "FITHAW"),
    request(0xc018_5879, "FITRIM", &[structure(2, 24)]),
    silent(0x4004_9409, "FICLONE"),
    silent(0x4020_940d, "FICLONERANGE"),
    // A head of 24 bytes with the number of ranges, and ranges of 32.
    request(
        0xc018_9436,
        "FIDEDUPERANGE",
        &[at_pointer(Value::Arg(2), u16_at(2, 16), 32).after_header(24)],
    ),
    // The next four encode the size of a long, but take an int.
    request(0x8008_6601, "FS_IOC_GETFLAGS", &[structure(2, INT)]),
    silent(0x4008_6602, "FS_IOC_SETFLAGS"),
    request(0x8008_7601, "FS_IOC_GETVERSION", &[structure(2, INT)]),
    silent(0x4008_7602, "FS_IOC_SETVERSION"),
    request(0x801c_581f, "FS_IOC_FSGETXATTR", &[structure(2, 28)]),
    silent(0x401c_5820, "FS_IOC_FSSETXATTR"),
    request(0x8100_9431, "FS_IOC_GETFSLABEL", &[structure(2, 256)]),
    silent(0x4100_9432, "FS_IOC_SETFSLABEL"),
    request(0x8011_1500, "FS_IOC_GETFSUUID", &[structure(2, 17)]),
    request(0x8081_1501, "FS_IOC_GETFSSYSFSPATH", &[structure(2, 129)]),
    // struct fiemap: 24 fm_extent_count, 20 fm_mapped_extents.
    request(
        0xc020_660b,
        "FS_IOC_FIEMAP",
        &[at_pointer(Value::Arg(2), u32_at(2, 24), 56).counted_by(u32_at(2, 20)).after_header(32)],
    ),
    // The next four encode a wrong size or direction.
    silent(0x800c_6613, "FS_IOC_SET_ENCRYPTION_POLICY"),
    request(0x4010_6614, "FS_IOC_GET_ENCRYPTION_PWSALT", &[structure(2, 16)]),
    request(0x400c_6615, "FS_IOC_GET_ENCRYPTION_POLICY", &[structure(2, 12)]),
    request(
        0xc009_6616,
        "FS_IOC_GET_ENCRYPTION_POLICY_EX",
        &[at_pointer(Value::Arg(2), u64_at(2, 0), 1).after_header(8)],
    ),
    request(0xc050_6617, "FS_IOC_ADD_ENCRYPTION_KEY", &[structure(2, 80)]),
    request(0xc040_6618, "FS_IOC_REMOVE_ENCRYPTION_KEY", &[structure(2, 64)]),
    request(0xc080_661a, "FS_IOC_GET_ENCRYPTION_KEY_STATUS", &[structure(2, 128)]),
    request(0x8010_661b, "FS_IOC_GET_ENCRYPTION_NONCE", &[structure(2, 16)]),
    silent(0x4080_6685, "FS_IOC_ENABLE_VERITY"),
    request(
        0xc004_6686,
        "FS_IOC_MEASURE_VERITY",
        &[at_pointer(Value::Arg(2), u16_at(2, 2), 1).after_header(4)],
    ),
    request(
        0xc028_6687,
        "FS_IOC_READ_VERITY_METADATA",
        &[at_pointer(u64_at(2, 24), u64_at(2, 16), 1).counted_by_result()],
    ),
    // struct pm_scan_arg: 40 vec, 48 vec_len.
    request(
        0xc060_6610,
        "PAGEMAP_SCAN",
        &[structure(2, 96), at_pointer(u64_at(2, 40), u64_at(2, 48), 24).counted_by_result()],
    ),
    // struct procmap_query: 88 vma_name_addr, 80 vma_name_size, 96 build_id_addr, 84 build_id_size.
    request(
        0xc068_6611,
        "PROCMAP_QUERY",
        &[
            structure(2, 104),
            at_pointer(u64_at(2, 88), u32_at(2, 80), 1).counted_by(u32_at(2, 80)),
            at_pointer(u64_at(2, 96), u32_at(2, 84), 1).counted_by(u32_at(2, 84)),
        ],
    ),
    silent(0xb701, "NS_GET_USERNS"),
    silent(0xb702, "NS_GET_PARENT"),
    silent(0xb703, "NS_GET_NSTYPE"),
    request(0xb704, "NS_GET_OWNER_UID", &[structure(2, INT)]),
    request(0x8008_b705, "NS_GET_MNTNS_ID", &[structure(2, LONG)]),
    // The argument is a number, although the direction is that of a structure.
    silent(0x8004_b706, "NS_GET_PID_FROM_PIDNS"),
    silent(0x8004_b707, "NS_GET_TGID_FROM_PIDNS"),
    silent(0x8004_b708, "NS_GET_PID_IN_PIDNS"),
    silent(0x8004_b709, "NS_GET_TGID_IN_PIDNS"),
    request(0x8010_b70a, "NS_MNT_GET_INFO", &[structure(2, 16)]),
    request(0x8010_b70b, "NS_MNT_GET_NEXT", &[structure(2, 16)]),
    request(0x8010_b70c, "NS_MNT_GET_PREV", &[structure(2, 16)]),
    request(0x8008_b70d, "NS_GET_ID", &[structure(2, LONG)]),
    silent(0x4004_4900, "INOTIFY_IOC_SETNEXTWD"),
    request(0xc050_2100, "SECCOMP_IOCTL_NOTIF_RECV", &[structure(2, 80)]),
    request(0xc018_2101, "SECCOMP_IOCTL_NOTIF_SEND", &[structure(2, 24)]),
    silent(0x4008_2102, "SECCOMP_IOCTL_NOTIF_ID_VALID"),
    silent(0x4018_2103, "SECCOMP_IOCTL_NOTIF_ADDFD"),
    silent(0x2400, "PERF_EVENT_IOC_ENABLE"),
    silent(0x2401, "PERF_EVENT_IOC_DISABLE"),
    silent(0x2402, "PERF_EVENT_IOC_REFRESH"),
    silent(0x2403, "PERF_EVENT_IOC_RESET"),
    request(0x8008_2407, "PERF_EVENT_IOC_ID", &[structure(2, LONG)]),
    unknown(0xc008_240a, "PERF_EVENT_IOC_QUERY_BPF"),
    unknown(0xc018_aa3f, "UFFDIO_API"),
];
