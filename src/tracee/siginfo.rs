//! Fields of a signal's `siginfo_t` (sigaction(2)).

use super::SiginfoBytes;
use crate::common::Addr;

/// Returns the signal's number (`si_signo`).
pub fn signal_of(siginfo: &SiginfoBytes) -> i32 {
    i32::from_ne_bytes([siginfo[0], siginfo[1], siginfo[2], siginfo[3]])
}

/// Returns the signal's cause (`si_code`); above 0 if the kernel raised it.
pub fn code_of(siginfo: &SiginfoBytes) -> i32 {
    i32::from_ne_bytes([siginfo[8], siginfo[9], siginfo[10], siginfo[11]])
}

/// Returns the address of a fault as the program sees it (`si_addr`): 0 where the kernel has none,
/// as for INT3 and #GP. `None` if the kernel did not raise the signal for a fault or trap.
pub fn fault_address(siginfo: &SiginfoBytes) -> Option<Addr> {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
    // Codes above 0 come from the kernel (sigaction(2)).
    let from_kernel = code_of(siginfo) > 0 && faults.contains(&signal_of(siginfo));
    let bytes = siginfo[16..24].try_into().ok()?;
    from_kernel.then_some(Addr(u64::from_ne_bytes(bytes)))
}

/// Creates the `siginfo_t` of a signal that this process sends with kill(2). Sends nothing.
pub fn of_sent(signal: i32) -> SiginfoBytes {
    let mut siginfo = [0; size_of::<SiginfoBytes>()];
    siginfo[..4].copy_from_slice(&signal.to_ne_bytes());
    siginfo[16..20].copy_from_slice(&std::process::id().to_ne_bytes());
    siginfo[20..24].copy_from_slice(&nix::unistd::getuid().as_raw().to_ne_bytes());
    siginfo
}

/// Sets the address of a fault (`si_addr`). `siginfo` must be that of a fault: in others, these
/// bytes are other fields.
pub fn set_fault_address(siginfo: &mut SiginfoBytes, addr: Addr) {
    siginfo[16..24].copy_from_slice(&addr.0.to_ne_bytes());
}
