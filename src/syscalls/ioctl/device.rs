//! Other devices: CD-ROM, SCSI, `NVMe`, I2C, input, clocks, self-encrypting drives
//! (`include/uapi/linux/cdrom.h`, `input.h`, `nvme_ioctl.h`, `i2c-dev.h`, `pps.h`, `rtc.h`,
//! `sed-opal.h`; `include/scsi/sg.h`).

use super::{IoctlRequest, request, silent, unknown};
use crate::syscalls::value::{Value, u8_at, u32_at, u64_at};
use crate::syscalls::write::{Write, at_pointer, structure};

const INT: u64 = 4;
/// `struct sg_io_hdr`: data and sense buffer.
const SG_IO: &[Write] = &[
    structure(2, 88),
    at_pointer(u64_at(2, 16), u32_at(2, 12), 1),
    at_pointer(u64_at(2, 32), u8_at(2, 9), 1),
];
/// `struct nvme_passthru_cmd`: data and metadata.
const NVME_CMD: &[Write] = &[
    structure(2, 72),
    at_pointer(u64_at(2, 24), u32_at(2, 36), 1),
    at_pointer(u64_at(2, 16), u32_at(2, 32), 1),
];

/// The size of the data that `struct i2c_smbus_ioctl_data` points to.
const SMBUS_BLOCK: Value = Value::Constant(34);

pub(super) const REQUESTS: &[IoctlRequest] = &[
    silent(0x5301, "CDROMPAUSE"),
    silent(0x5302, "CDROMRESUME"),
    request(0x5305, "CDROMREADTOCHDR", &[structure(2, 2)]),
    request(0x5306, "CDROMREADTOCENTRY", &[structure(2, 12)]),
    silent(0x5307, "CDROMSTOP"),
    silent(0x5308, "CDROMSTART"),
    silent(0x5309, "CDROMEJECT"),
    request(0x530a, "CDROMVOLCTRL", &[structure(2, 4)]),
    request(0x530b, "CDROMSUBCHNL", &[structure(2, 16)]),
    request(0x5310, "CDROMMULTISESSION", &[structure(2, 8)]),
    request(0x5311, "CDROM_GET_MCN", &[structure(2, 14)]),
    request(0x5313, "CDROMVOLREAD", &[structure(2, 4)]),
    silent(0x5319, "CDROMCLOSETRAY"),
    silent(0x5320, "CDROM_SET_OPTIONS"),
    silent(0x5321, "CDROM_CLEAR_OPTIONS"),
    silent(0x5325, "CDROM_MEDIA_CHANGED"),
    silent(0x5326, "CDROM_DRIVE_STATUS"),
    silent(0x5327, "CDROM_DISC_STATUS"),
    silent(0x5329, "CDROM_LOCKDOOR"),
    silent(0x5331, "CDROM_GET_CAPABILITY"),
    request(0x5382, "SCSI_IOCTL_GET_IDLUN", &[structure(2, 8)]),
    request(0x5386, "SCSI_IOCTL_GET_BUS_NUMBER", &[structure(2, INT)]),
    silent(0x2201, "SG_SET_TIMEOUT"),
    silent(0x2202, "SG_GET_TIMEOUT"),
    request(0x2272, "SG_GET_RESERVED_SIZE", &[structure(2, INT)]),
    silent(0x2275, "SG_SET_RESERVED_SIZE"),
    request(0x2276, "SG_GET_SCSI_ID", &[structure(2, 32)]),
    request(0x2282, "SG_GET_VERSION_NUM", &[structure(2, INT)]),
    request(0x2285, "SG_IO", SG_IO),
    silent(0x4e40, "NVME_IOCTL_ID"),
    request(0xc048_4e41, "NVME_IOCTL_ADMIN_CMD", NVME_CMD),
    request(0xc048_4e43, "NVME_IOCTL_IO_CMD", NVME_CMD),
    silent(0x4e44, "NVME_IOCTL_RESET"),
    silent(0x4e46, "NVME_IOCTL_RESCAN"),
    silent(0x0701, "I2C_RETRIES"),
    silent(0x0702, "I2C_TIMEOUT"),
    silent(0x0703, "I2C_SLAVE"),
    silent(0x0704, "I2C_TENBIT"),
    request(0x0705, "I2C_FUNCS", &[structure(2, 8)]),
    silent(0x0706, "I2C_SLAVE_FORCE"),
    unknown(0x0707, "I2C_RDWR"),
    silent(0x0708, "I2C_PEC"),
    request(0x0720, "I2C_SMBUS", &[at_pointer(u64_at(2, 8), SMBUS_BLOCK, 1)]),
    // The kernel writes the effect's number back, although the direction is the other one.
    request(0x4030_4580, "EVIOCSFF", &[structure(2, 48)]),
    silent(0x4004_4581, "EVIOCRMFF"),
    silent(0x4004_4590, "EVIOCGRAB"),
    silent(0x4004_4591, "EVIOCREVOKE"),
    request(0x8010_4592, "EVIOCGMASK", &[at_pointer(u64_at(2, 8), u32_at(2, 4), 1)]),
    // The numbers have the size of a pointer to the structure.
    request(0x8008_70a1, "PPS_GETPARAMS", &[structure(2, 40)]),
    request(0x8008_70a3, "PPS_GETCAP", &[structure(2, INT)]),
    request(0xc008_70a4, "PPS_FETCH", &[structure(2, 64)]),
    // The kernel writes these structures, or to pointers in them, although the direction is the
    // other one.
    request(0x4018_7013, "RTC_PARAM_GET", &[structure(2, 24)]),
    unknown(0x4138_70eb, "IOC_OPAL_GENERIC_TABLE_RW"),
    request(0x4130_70ed, "IOC_OPAL_GET_LR_STATUS", &[structure(2, 304)]),
    unknown(0x4010_70ef, "IOC_OPAL_DISCOVERY"),
    silent(0x5501, "UI_DEV_CREATE"),
    silent(0x5502, "UI_DEV_DESTROY"),
];
