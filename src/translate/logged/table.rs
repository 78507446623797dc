//! The table by which glue decides about system calls: their classes by number, and beside them
//! small tables at indexes that no number of a call reaches.

/// The memory that a system call writes if it succeeds, and when it is made in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LoggedClass {
    /// Writes nothing.
    Nothing = 1,
    /// Writes file attributes (`struct stat`) at RSI.
    AttributesAtRsi = 2,
    /// Writes file attributes (`struct stat`) at RDX.
    AttributesAtRdx = 3,
    /// Writes as many bytes at RSI as the result says.
    ResultAtRsi = 4,
    /// Writes as many bytes at RDX as the result says.
    ResultAtRdx = 5,
    /// Writes as many bytes at RDI as the result says.
    ResultAtRdi = 6,
    /// Writes extended file attributes (`struct statx`) at R8.
    ExtendedAttributesAtR8 = 7,
    /// Writes a time at RSI.
    TimeAtRsi = 8,
    /// For the request TCGETS in RSI: writes the settings of a terminal at RDX. For FICLONE: the
    /// same rules as for [`Self::Writes`], and the thread stops after a success. For any other
    /// request, it stops before the call.
    TerminalAtRdx = 9,
    /// Writes the action of a signal at RDX. If RSI has a new action, or RDX is 0, the thread stops
    /// before the call.
    ActionAtRdx = 10,
    /// Writes a time at RDI. If RDI is 0, or RSI is not, the thread stops before the call.
    TimeOfDay = 11,
    /// Writes nothing if the command in RSI is one of `COMMANDS`. Otherwise the thread stops before
    /// the call.
    Command = 12,
    /// Writes as many bytes at RSI as the result says. The thread stops before the call unless it
    /// is known that a read of the descriptor in RDI does not wait ([`DescriptorClass`]).
    Reads = 13,
    /// As [`Self::Reads`]. The thread stops before the call if there are flags in R10, or if R8
    /// asks for the sender's address.
    Receives = 14,
    /// Writes nothing. The thread stops before the call unless it is known that a write to the
    /// descriptor in RDI does not wait, and that its file is not mapped.
    Writes = 15,
    /// Writes nothing. The class of the descriptor in RDI becomes unknown.
    Closes = 16,
    /// Writes nothing: copies from the descriptor in RDI to that in RDX. The thread stops before
    /// the call unless RSI and R10 are 0, and it is known that the call does not wait and that the
    /// file of RDX is not mapped.
    Copies = 17,
    /// Writes nothing: a futex(2) that wakes. With other operations in RSI, the thread stops before
    /// the call.
    Wakes = 18,
    /// Writes nothing: openat(2). The thread stops before the call if the file exists, and is
    /// neither a regular file nor a directory of a known device; after the call, if the file may be
    /// mapped.
    Opens = 19,
    /// Writes as many events at RSI as the result says: `epoll_wait(2)`. The thread stops before
    /// the call if there are none yet.
    Events = 20,
    /// As [`Self::Events`]. If R8 has a mask of signals, the thread stops before the call.
    EventsByMask = 21,
    /// Writes something else. The thread stops after the call.
    Other = 22,
}

/// The facts that are known of a file descriptor: whether calls wait for it, and whether its file
/// is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DescriptorClass {
    /// Nothing is known: threads stop before calls that depend on the descriptor.
    Unknown = 0,
    /// Calls on the descriptor may wait.
    Waits = 1,
    /// Calls on the descriptor do not wait, and writes to it do not change the program's memory.
    Free = 2,
    /// Calls on the descriptor do not wait. Its file may be mapped, so that writes may change
    /// memory.
    FreeToRead = 3,
}

/// Offset in the table of bytes by bits 8 to 15 of the flags: not 0 if the direction flag is set.
pub(super) const DIRECTION: u32 = 0x4000;
/// Offset of bytes by the second byte of `st_mode`: 1 for directories, 2 for regular files, else 0.
pub(super) const FILE_KINDS: u32 = 0x4100;
/// Offset of bytes by the low byte of an inode's number: not 0 if no such file is mapped.
pub(super) const UNMAPPED: u32 = 0x4200;
/// Offset of the numbers of known devices, 8 bytes each; 0 if there are fewer.
pub(super) const DEVICES: u32 = 0x4300;
/// Offset of the addresses of the vdso's functions, 8 bytes each; 0 if a function is not used.
pub(super) const CLOCKS: u32 = 0x4340;
/// Offset of a byte for each descriptor, its [`DescriptorClass`], on a separate page: glue writes
/// it.
pub const DESCRIPTORS: u32 = 0x5000;

/// The number of descriptors that are in the table.
pub const DESCRIPTOR_COUNT: usize = 0x100;
/// The number of devices that are in the table.
pub(super) const DEVICE_COUNT: usize = 4;

/// The values of the second byte of `st_mode` of a directory (`S_IFDIR`), and below of a regular
/// file (`S_IFREG`, inode(7)).
const DIRECTORIES: std::ops::Range<usize> = 0x40..0x50;
const REGULAR_FILES: std::ops::Range<usize> = 0x80..0x90;

/// The facts by which glue decides about calls: known devices, mapped files, and the functions of
/// the vdso.
#[derive(Clone, Debug, Default)]
pub struct CallFacts {
    /// The addresses of `__vdso_clock_gettime` and `__vdso_gettimeofday`: 0 if they are not used.
    pub clocks: [u64; 2],
    devices: Vec<u64>,
    /// The low bytes of the inodes of mapped files.
    mapped: Vec<u8>,
}

impl CallFacts {
    /// Adds a device with regular files and directories on which calls do not wait. Returns true if
    /// it was added: it is new, and there are fewer than `DEVICE_COUNT` others.
    pub fn add_device(&mut self, device: u64) -> bool {
        let is_new = self.devices.len() < DEVICE_COUNT && !self.devices.contains(&device);
        if is_new {
            self.devices.push(device);
        }
        is_new
    }

    /// Adds a mapped file by the low byte of its inode number, which is all that the table has.
    /// Returns true if that byte is new.
    pub fn add_mapped(&mut self, inode: u64) -> bool {
        let low = inode.to_le_bytes()[0];
        let is_new = !self.mapped.contains(&low);
        if is_new {
            self.mapped.push(low);
        }
        is_new
    }

    /// Writes the small tables, except for those of flags and descriptors, into a table of 65536
    /// bytes that is 0 where no device is.
    fn write(&self, table: &mut [u8]) {
        let at = |start: u32| start as usize;
        table[at(FILE_KINDS)..][DIRECTORIES].fill(1);
        table[at(FILE_KINDS)..][REGULAR_FILES].fill(2);
        table[at(UNMAPPED)..][..0x100].fill(1);
        for low in &self.mapped {
            table[at(UNMAPPED) + usize::from(*low)] = 0;
        }
        for (number, device) in self.devices.iter().enumerate() {
            table[at(DEVICES) + number * 8..][..8].copy_from_slice(&device.to_le_bytes());
        }
        let clocks = self.clocks.map(u64::to_le_bytes);
        table[at(CLOCKS)..][..16].copy_from_slice(clocks.as_flattened());
    }
}

/// Returns the table of classes, 65536 bytes: those of `calls`, and 0 for all others, with the
/// small tables by `known`; all descriptors are unknown. Calls with a number above 65535 are left
/// out. `is_refusal` returns true for an error, as a negative number, after which the kernel has
/// surely written nothing.
pub fn class_table(
    calls: impl IntoIterator<Item = (u64, LoggedClass)>,
    is_refusal: impl Fn(i64) -> bool,
    known: &CallFacts,
) -> Vec<u8> {
    let mut table = vec![0; 1 << 16];
    for (number, class) in calls {
        if let Some(entry) = usize::try_from(number).ok().and_then(|number| table.get_mut(number)) {
            *entry = class as u8;
        }
    }
    // Kernels have no calls with the numbers of errors, so glue finds here whether an error is a
    // refusal.
    for errno in (1..=4095_u16).filter(|errno| is_refusal(-i64::from(*errno))) {
        table[usize::from(errno.wrapping_neg())] = LoggedClass::Nothing as u8;
    }
    for flags in (0..=0xff_usize).filter(|flags| flags & 4 != 0) {
        table[DIRECTION as usize + flags] = LoggedClass::Nothing as u8;
    }
    known.write(&mut table);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tables_are_beside_the_classes() {
        let mut known = CallFacts { clocks: [0x1122, 0x3344], ..CallFacts::default() };
        assert!(known.add_mapped(0x1234_5678) && !known.add_mapped(0x78));
        let added: Vec<bool> = [7, 7, 8, 9, 10, 11].map(|device| known.add_device(device)).into();
        assert_eq!(added, [true, false, true, true, true, false]);
        let table = class_table([(257, LoggedClass::Opens)], |errno| errno == -2, &known);
        let at = |start: u32, index: usize| table[start as usize + index];
        assert_eq!(table[257], LoggedClass::Opens as u8);
        assert_eq!(table[0xffff - 1], LoggedClass::Nothing as u8, "an error with no effect");
        assert_eq!(table[0xffff], 0, "another error");
        assert_eq!((at(UNMAPPED, 0x78), at(UNMAPPED, 0x79)), (0, 1));
        let kinds = [0x81, 0x41, 0x21, 0xa1].map(|mode| at(FILE_KINDS, mode));
        assert_eq!(kinds, [2, 1, 0, 0], "a file, a directory, a device, a link");
        let devices = [0, 8, 16, 24].map(|offset| at(DEVICES, offset));
        assert_eq!(devices, [7, 8, 9, 10]);
        assert_eq!((at(CLOCKS, 0), at(CLOCKS, 9)), (0x22, 0x33));
        assert_eq!((at(DIRECTION, 3), at(DIRECTION, 4)), (0, 1));
    }
}
