//! Results of calls: which of them mean that memory was written.

use Outcome::{Failed, Interrupted, Refused, Succeeded};

/// The largest error number (include/linux/err.h, `MAX_ERRNO`).
const MAX_ERRNO: i64 = 4095;

/// The outcome of a call, as far as it decides about the memory that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Success, with this result.
    Succeeded(u64),
    /// A signal ended the call's wait. Some calls write how much time is left.
    Interrupted,
    /// An error that the kernel finds before it writes results.
    Refused,
    /// Any other error: the call may have written a part, or all.
    Failed,
}

const EPERM: i64 = 1;
const ENOENT: i64 = 2;
const ESRCH: i64 = 3;
const EINTR: i64 = 4;
const EBADF: i64 = 9;
const ECHILD: i64 = 10;
const EAGAIN: i64 = 11;
const EACCES: i64 = 13;
const ENOTDIR: i64 = 20;
const EISDIR: i64 = 21;
const EINVAL: i64 = 22;
const ENOTTY: i64 = 25;
const ESPIPE: i64 = 29;
const ERANGE: i64 = 34;
const ENAMETOOLONG: i64 = 36;
const ENOSYS: i64 = 38;
const ELOOP: i64 = 40;
const ENODATA: i64 = 61;
const ENOTSOCK: i64 = 88;
const ENOPROTOOPT: i64 = 92;
const EOPNOTSUPP: i64 = 95;
const ENOTCONN: i64 = 107;
const ETIMEDOUT: i64 = 110;
/// The first and the last error that a tracer sees and the program never does: 512 to 515 and 516
/// (include/linux/errno.h).
const ERESTARTSYS: i64 = 512;
const ERESTART_RESTARTBLOCK: i64 = 516;

impl Outcome {
    /// Returns the outcome that a result (RAX) means. An error counts as refused if the kernel
    /// finds it before it writes, else as failed.
    pub(super) fn of_result(result: i64) -> Self {
        match result.checked_neg() {
            Some(EINTR | ERESTARTSYS..=ERESTART_RESTARTBLOCK) => Interrupted,
            Some(
                EPERM | ENOENT | ESRCH | EBADF | ECHILD | EAGAIN | EACCES | ENOTDIR | EISDIR
                | EINVAL | ENOTTY | ESPIPE | ERANGE | ENAMETOOLONG | ENOSYS | ELOOP | ENODATA
                | ENOTSOCK | ENOPROTOOPT | EOPNOTSUPP | ENOTCONN | ETIMEDOUT,
            ) => Refused,
            Some(1..=MAX_ERRNO) => Failed,
            _ => Succeeded(result.cast_unsigned()),
        }
    }
}

/// Returns true if a result (RAX) is an error that the kernel finds before it writes results, such
/// as EINVAL or EAGAIN. The call may still have made the writes that it makes whatever the result
/// is. False for success and for an interruption by a signal.
pub fn is_refused(result: i64) -> bool {
    Outcome::of_result(result) == Refused
}

/// Returns true if this result means that the kernel did nothing: it does not know the call or
/// request, or the descriptor is not open.
pub(super) fn is_unsupported(result: i64) -> bool {
    [ENOSYS, ENOTTY, EBADF].contains(&result.wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_distinguished_from_errors() {
        assert_eq!(Outcome::of_result(0), Succeeded(0));
        assert_eq!(Outcome::of_result(5), Succeeded(5));
        assert_eq!(Outcome::of_result(-EINTR), Interrupted);
        assert_eq!(Outcome::of_result(-516), Interrupted);
        assert_eq!(Outcome::of_result(-ENOSYS), Refused);
        assert_eq!(Outcome::of_result(-14), Failed);
        // mmap can return addresses whose top bit is set only with vsyscall; still no error.
        assert_eq!(Outcome::of_result(-4096), Succeeded(0_u64.wrapping_sub(4096)));
        assert_eq!(Outcome::of_result(i64::MIN), Succeeded(1 << 63));
    }
}
