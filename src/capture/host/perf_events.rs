//! The kernel's limits on perf events (Documentation/admin-guide/sysctl/kernel.rst,
//! perf-security.rst; `perf_mmap` of kernel/events/core.c for the memory).

use super::process::Process;
use super::root::Root;
use serde::Serialize;

/// The trace buffer wanted for each thread, in bytes.
pub(super) const WANTED_BUFFER_BYTES: u64 = 4 << 20;
/// The highest `perf_event_paranoid` at which processes without a capability may measure programs
/// of their user; Debian and Ubuntu set 3 and 4.
pub(super) const HIGHEST_OPEN_PARANOID: i64 = 2;

/// The kernel's settings (sysctls) for perf events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PerfEvents {
    /// `kernel.perf_event_paranoid`; `None` if the kernel has no perf events.
    pub paranoid: Option<i64>,
    /// `kernel.perf_event_mlock_kb`: KiB of buffers for each CPU, in addition to the process's
    /// limit; `None` if unknown.
    pub mlock_kib: Option<u64>,
}

impl PerfEvents {
    /// Reads the limits. Those that the kernel does not have are `None`.
    pub(super) fn of(root: &Root) -> Self {
        Self {
            paranoid: root.number("/proc/sys/kernel/perf_event_paranoid"),
            mlock_kib: root.number("/proc/sys/kernel/perf_event_mlock_kb"),
        }
    }

    /// Returns true if `process` may open perf events of the user code of the programs that it
    /// starts.
    pub(super) fn allow_tracing_by(&self, process: &Process) -> bool {
        self.paranoid.is_some_and(|paranoid| {
            paranoid <= HIGHEST_OPEN_PARANOID || process.capabilities.allow_perf_events()
        })
    }

    /// Returns the total size in bytes of the perf buffers that `process` may have; `None` for no
    /// limit.
    pub(super) fn lockable_bytes(&self, process: &Process, cpus: u64) -> Option<u64> {
        if process.capabilities.ipc_lock || self.paranoid == Some(-1) {
            return None;
        }
        let of_cpus = self.mlock_kib.unwrap_or(0).saturating_mul(1024).saturating_mul(cpus);
        process.locked_limit_bytes.map(|own| own.saturating_add(of_cpus))
    }
}
