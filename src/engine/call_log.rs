//! The abilities of the machine that code which logs system calls uses.

use crate::translate::CallLog;

/// `AT_HWCAP2`'s bit for RDFSBASE and the like (arch/x86/include/uapi/asm/hwcap2.h).
const HAS_FS_BASE: u64 = 2;

/// Returns the abilities of this machine. `answers`: calls are not made, but answered.
pub(super) fn call_log(answers: bool) -> CallLog {
    // SAFETY: getauxval reads this process's own auxiliary vector.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    CallLog { has_fs_base: features & HAS_FS_BASE != 0, answers }
}
