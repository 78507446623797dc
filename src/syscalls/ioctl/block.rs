//! Block devices, loop devices, disks, device mapper (include/uapi/linux/fs.h, loop.h, hdreg.h,
//! dm-ioctl.h, blkzoned.h).

use super::{IoctlRequest, request, silent};
use crate::syscalls::value::{Value, u32_at};
use crate::syscalls::write::{Write, at_pointer, structure};

const SHORT: u64 = 2;
const INT: u64 = 4;
const LONG: u64 = 8;
/// `struct dm_ioctl` and the data after it; its field `data_size` (offset 12) counts both.
const DM: &[Write] = &[at_pointer(Value::Arg(2), u32_at(2, 12), 1)];

pub(super) const REQUESTS: &[IoctlRequest] = &[
    silent(0x125d, "BLKROSET"),
    request(0x125e, "BLKROGET", &[structure(2, INT)]),
    silent(0x125f, "BLKRRPART"),
    request(0x1260, "BLKGETSIZE", &[structure(2, LONG)]),
    silent(0x1261, "BLKFLSBUF"),
    silent(0x1262, "BLKRASET"),
    request(0x1263, "BLKRAGET", &[structure(2, LONG)]),
    silent(0x1264, "BLKFRASET"),
    request(0x1265, "BLKFRAGET", &[structure(2, LONG)]),
    request(0x1267, "BLKSECTGET", &[structure(2, SHORT)]),
    request(0x1268, "BLKSSZGET", &[structure(2, INT)]),
    // The number encodes size_t, but the kernel writes an int.
    request(0x8008_1270, "BLKBSZGET", &[structure(2, INT)]),
    silent(0x4008_1271, "BLKBSZSET"),
    request(0x8008_1272, "BLKGETSIZE64", &[structure(2, LONG)]),
    silent(0x1277, "BLKDISCARD"),
    request(0x1278, "BLKIOMIN", &[structure(2, INT)]),
    request(0x1279, "BLKIOOPT", &[structure(2, INT)]),
    request(0x127a, "BLKALIGNOFF", &[structure(2, INT)]),
    request(0x127b, "BLKPBSZGET", &[structure(2, INT)]),
    request(0x127c, "BLKDISCARDZEROES", &[structure(2, INT)]),
    silent(0x127d, "BLKSECDISCARD"),
    request(0x127e, "BLKROTATIONAL", &[structure(2, SHORT)]),
    silent(0x127f, "BLKZEROOUT"),
    request(0x8008_1280, "BLKGETDISKSEQ", &[structure(2, LONG)]),
    // struct blk_zone_report: a head of 16 bytes, and zones of 64.
    request(
        0xc010_1282,
        "BLKREPORTZONE",
        &[at_pointer(Value::Arg(2), u32_at(2, 8), 64).counted_by(u32_at(2, 8)).after_header(16)],
    ),
    request(0x8004_1284, "BLKGETZONESZ", &[structure(2, INT)]),
    request(0x8004_1285, "BLKGETNRZONES", &[structure(2, INT)]),
    request(0x0301, "HDIO_GETGEO", &[structure(2, 16)]),
    request(0x0304, "HDIO_GET_MULTCOUNT", &[structure(2, LONG)]),
    request(0x0308, "HDIO_GET_KEEPSETTINGS", &[structure(2, LONG)]),
    request(0x0309, "HDIO_GET_32BIT", &[structure(2, LONG)]),
    request(0x030b, "HDIO_GET_DMA", &[structure(2, LONG)]),
    request(0x030d, "HDIO_GET_IDENTITY", &[structure(2, 512)]),
    silent(0x4c00, "LOOP_SET_FD"),
    silent(0x4c01, "LOOP_CLR_FD"),
    silent(0x4c02, "LOOP_SET_STATUS"),
    request(0x4c03, "LOOP_GET_STATUS", &[structure(2, 168)]),
    silent(0x4c04, "LOOP_SET_STATUS64"),
    request(0x4c05, "LOOP_GET_STATUS64", &[structure(2, 232)]),
    silent(0x4c06, "LOOP_CHANGE_FD"),
    silent(0x4c07, "LOOP_SET_CAPACITY"),
    silent(0x4c08, "LOOP_SET_DIRECT_IO"),
    silent(0x4c09, "LOOP_SET_BLOCK_SIZE"),
    silent(0x4c0a, "LOOP_CONFIGURE"),
    silent(0x4c80, "LOOP_CTL_ADD"),
    silent(0x4c81, "LOOP_CTL_REMOVE"),
    silent(0x4c82, "LOOP_CTL_GET_FREE"),
    request(0xc138_fd00, "DM_VERSION", DM),
    request(0xc138_fd02, "DM_LIST_DEVICES", DM),
    request(0xc138_fd03, "DM_DEV_CREATE", DM),
    request(0xc138_fd04, "DM_DEV_REMOVE", DM),
    request(0xc138_fd06, "DM_DEV_SUSPEND", DM),
    request(0xc138_fd07, "DM_DEV_STATUS", DM),
    request(0xc138_fd08, "DM_DEV_WAIT", DM),
    request(0xc138_fd09, "DM_TABLE_LOAD", DM),
    request(0xc138_fd0a, "DM_TABLE_CLEAR", DM),
    request(0xc138_fd0b, "DM_TABLE_DEPS", DM),
    request(0xc138_fd0c, "DM_TABLE_STATUS", DM),
    request(0xc138_fd0d, "DM_LIST_VERSIONS", DM),
    request(0xc138_fd0e, "DM_TARGET_MSG", DM),
];
