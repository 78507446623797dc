//! The fields of a request's number (include/uapi/asm-generic/ioctl.h), and the kinds of devices
//! that keep to them.

/// The number of an ioctl request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

const SIZE_MASK: u32 = 0x3fff;
const WRITE: u32 = 1;
const READ: u32 = 2;

impl Code {
    /// Returns the number in an argument: its low 32 bits.
    pub(super) fn of_argument(argument: u64) -> Self {
        let [a, b, c, d, ..] = argument.to_le_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// Returns the kind of device that the request is for, mostly a letter.
    pub(super) const fn kind(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    /// Returns the encoded size in bytes of the structure that the argument points to.
    pub(super) fn size_bytes(self) -> u64 {
        u64::from(self.0 >> 16 & SIZE_MASK)
    }

    /// Returns true if the number encodes that the kernel writes the structure.
    pub(super) const fn kernel_writes(self) -> bool {
        self.0 >> 30 & READ != 0
    }

    /// Returns true if the number encodes a direction (read, write or both), and so has a
    /// structure.
    pub(super) const fn has_direction(self) -> bool {
        self.0 >> 30 & (READ | WRITE) != 0
    }
}

/// Kinds whose numbers encode direction and size of all structures, apart from those in the tables,
/// so that the written memory is known. In this order: event devices, real-time clocks, watchdogs,
/// joysticks, random numbers, GPIO, pidfd. For kinds in neither list, it is assumed.
pub(super) const REGULAR: [u8; 7] = [b'E', b'p', b'W', b'j', b'R', 0xb4, 0xff];

/// Kinds whose structures hold pointers, or whose devices write memory later, so that the written
/// memory is unknown. In this order: sockets, wireless, sound, graphics, frame buffers, video,
/// media controllers, USB, CD-ROM and SCSI, generic SCSI, `NVMe`, RDMA, virtual machines, VFIO,
/// SPI, I2C, btrfs, device mapper, flash memory (MTD), FUSE.
pub(super) const POINTERS: [u8; 20] = [
    0x89, 0x8b, b'A', b'd', b'F', b'V', b'|', b'U', 0x53, 0x22, b'N', 0x1b, 0xae, b';', b'k', 0x07,
    0x94, 0xfd, b'M', 0xe5,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_apart() {
        // TCGETS2: _IOR('T', 0x2a, struct termios2).
        let code = Code::of_argument(0xffff_ffff_802c_542a);
        assert_eq!((code.kind(), code.size_bytes()), (b'T', 44));
        assert!(code.kernel_writes() && code.has_direction());
        assert!(!Code(0x5401).has_direction());
        assert!(!Code(0x4004_667e).kernel_writes());
    }
}
