//! Signal numbers. gdb has its own numbering on all systems (`include/gdb/signals.def`).

use super::hex;

const SIGTRAP: u8 = 5;
/// gdb's numbers of the kernel's signals 1 to 31. gdb has none for `SIGSTKFLT`.
const NUMBERS: [u8; 31] = [
    1, 2, 3, 4, 5, 6, 10, 8, 9, 30, 11, 31, 13, 14, 15, 0, 20, 19, 17, 18, 21, 22, 16, 24, 25, 26,
    27, 28, 23, 32, 12,
];
/// The kernel's first real-time signal, and gdb's numbers of real-time signals: those of the
/// signals 32 and 64 are not next to the others.
const FIRST_REAL_TIME: i32 = 32;
const GDB_REAL_TIME_33: u8 = 45;
const GDB_REAL_TIME_32: u8 = 77;
const GDB_REAL_TIME_64: u8 = 78;

/// A client's numbering of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Numbering {
    /// gdb's, the same on all systems.
    #[default]
    Gdb,
    /// The kernel's: LLDB uses it once packets name their threads.
    Kernel,
}

impl Numbering {
    /// Returns the client's number of a kernel's signal; that of SIGTRAP if it has none.
    pub(super) fn client_number(self, linux: i32) -> u8 {
        match self {
            Self::Gdb => to_gdb(linux),
            Self::Kernel => u8::try_from(linux).unwrap_or(SIGTRAP),
        }
    }

    /// Returns the kernel's number of a client's signal, if it has one.
    pub(super) fn kernel_number(self, number: u64) -> Option<i32> {
        match self {
            Self::Gdb => from_gdb(number),
            Self::Kernel => i32::try_from(number).ok().filter(|number| (1..=64).contains(number)),
        }
    }

    /// Parses the list of `QPassSignals:N;N...`, the client's numbers in hexadecimal. Returns the
    /// set of the kernel's signals, with signal 1 in bit 0, without those that the kernel lacks;
    /// `None` if the list is malformed.
    pub(super) fn parse_set(self, list: &[u8]) -> Option<u64> {
        let mut signals = 0;
        for number in list.split(|byte| *byte == b';').filter(|number| !number.is_empty()) {
            if let Some(linux) = self.kernel_number(hex::number(number)?) {
                signals |= 1 << (linux - 1);
            }
        }
        Some(signals)
    }
}

/// Returns gdb's number of a signal; `SIGTRAP`, which gdb does not print, for those without one.
fn to_gdb(linux: i32) -> u8 {
    let real_time = linux - FIRST_REAL_TIME;
    match (linux, u8::try_from(real_time)) {
        (1..=31, _) => {
            let index = usize::try_from(linux - 1).unwrap_or(0);
            Some(NUMBERS[index]).filter(|number| *number != 0).unwrap_or(SIGTRAP)
        }
        (32, _) => GDB_REAL_TIME_32,
        (64, _) => GDB_REAL_TIME_64,
        (33..=63, Ok(index)) => GDB_REAL_TIME_33 + index - 1,
        _ => SIGTRAP,
    }
}

/// Returns the kernel's number of a gdb signal, if it has one.
fn from_gdb(number: u64) -> Option<i32> {
    let number = u8::try_from(number).ok().filter(|number| *number != 0)?;
    (1..=64).find(|linux| to_gdb(*linux) == number && (number != SIGTRAP || *linux == 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for linux in (1..=64).filter(|linux| *linux != 16) {
            assert_eq!(from_gdb(to_gdb(linux).into()), Some(linux));
        }
        assert_eq!((to_gdb(11), to_gdb(10), to_gdb(34)), (11, 30, 46));
        assert_eq!((from_gdb(0), from_gdb(9999)), (None, None));
    }

    #[test]
    fn sets_of_signals() {
        let gdb = |list| Numbering::Gdb.parse_set(list);
        assert_eq!(gdb(b"e;14;1e"), Some(1 << 13 | 1 << 16 | 1 << 9));
        assert_eq!((gdb(b""), gdb(b"e;x")), (Some(0), None));
        assert_eq!(Numbering::Kernel.parse_set(b"e;11;a;0;41"), Some(1 << 13 | 1 << 16 | 1 << 9));
        assert_eq!(
            (Numbering::Kernel.client_number(17), Numbering::Gdb.client_number(17)),
            (17, 20)
        );
    }
}
