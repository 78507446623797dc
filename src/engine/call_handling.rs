//! The abilities of this machine that code which logs or answers system calls needs to know.

use crate::translate::CallHandling;
use core::arch::x86_64::__cpuid;

/// `AT_HWCAP2`'s bit for RDFSBASE and the like (arch/x86/include/uapi/asm/hwcap2.h).
const HAS_FS_BASE: u64 = 2;

/// Returns the abilities of this machine. If `answers` is true, the code answers calls and does not
/// make them; RDTSCP then counts as present on any machine, as it is answered, too.
pub(super) fn call_handling(answers: bool) -> CallHandling {
    // SAFETY: getauxval reads this process's own auxiliary vector.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    CallHandling {
        has_fs_base: features & HAS_FS_BASE != 0,
        has_tsc_aux: answers || has_tsc_aux(),
        answers,
    }
}

/// Returns true if the processor has RDTSCP (AMD64 manual volume 3, CPUID function `8000_0001h`).
fn has_tsc_aux() -> bool {
    const EXTENDED_FEATURES: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    __cpuid(0x8000_0000).eax >= EXTENDED_FEATURES && __cpuid(EXTENDED_FEATURES).edx & RDTSCP != 0
}
