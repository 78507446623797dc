//! The privileges and limits of this process (`/proc/self/status` and `limits`, the sysctl of
//! Yama).

use super::root::Root;
use serde::Serialize;

/// Effective capabilities that matter to a recorder (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "these are the kernel's")]
pub struct Capabilities {
    /// `CAP_PERFMON`.
    pub perfmon: bool,
    /// `CAP_SYS_ADMIN`.
    pub sys_admin: bool,
    /// `CAP_SYS_PTRACE`.
    pub sys_ptrace: bool,
    /// `CAP_IPC_LOCK`.
    pub ipc_lock: bool,
}

impl Capabilities {
    /// Decodes a set of capabilities by their numbers in linux/capability.h.
    fn of(set: u64) -> Self {
        let has = |number: u32| set >> number & 1 != 0;
        Self { perfmon: has(38), sys_admin: has(21), sys_ptrace: has(19), ipc_lock: has(14) }
    }

    /// Returns true if perf events are allowed whatever `perf_event_paranoid` is.
    pub(super) const fn allow_perf_events(self) -> bool {
        self.perfmon || self.sys_admin
    }

    /// Returns the names of the capabilities in the set.
    pub(super) fn names(self) -> Vec<&'static str> {
        let all = [
            (self.perfmon, "CAP_PERFMON"),
            (self.sys_admin, "CAP_SYS_ADMIN"),
            (self.sys_ptrace, "CAP_SYS_PTRACE"),
            (self.ipc_lock, "CAP_IPC_LOCK"),
        ];
        all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
    }
}

/// The privileges and limits of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// The effective user ID; `None` if unknown.
    pub uid: Option<u32>,
    /// Effective capabilities.
    pub capabilities: Capabilities,
    /// The seccomp mode: 0 for none, 1 for strict, 2 for a filter of system calls, as in
    /// containers.
    pub seccomp: u32,
    /// The container engine, by the file that it leaves in containers: `docker` or `podman`; `None`
    /// outside a known container.
    pub container: Option<&'static str>,
    /// `RLIMIT_MEMLOCK` in bytes; `None` for no limit.
    pub locked_limit_bytes: Option<u64>,
    /// `kernel.yama.ptrace_scope`; `None` if the kernel has no Yama.
    pub ptrace_scope: Option<u32>,
}

impl Process {
    /// Reads the privileges and limits of this process. Privileges that cannot be read count as
    /// absent, and a limit as 0.
    pub(super) fn of(root: &Root) -> Self {
        let status = root.text("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim)
        };
        let capabilities = field("CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
        // The fields are the real, effective, saved and file system user.
        let uid = field("Uid").and_then(|ids| ids.split_whitespace().nth(1));
        let container = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
        Self {
            uid: uid.and_then(|uid| uid.parse().ok()),
            capabilities: Capabilities::of(capabilities.unwrap_or(0)),
            seccomp: field("Seccomp").and_then(|mode| mode.parse().ok()).unwrap_or(0),
            container: container.iter().find(|(file, _)| root.has(file)).map(|(_, name)| *name),
            locked_limit_bytes: locked_limit(&root.text("/proc/self/limits").unwrap_or_default()),
            ptrace_scope: root.number("/proc/sys/kernel/yama/ptrace_scope"),
        }
    }
}

/// Returns the soft limit of locked memory in bytes; `None` for no limit. Invalid text counts as 0.
fn locked_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => None,
        soft => Some(soft.and_then(|soft| soft.parse().ok()).unwrap_or(0)),
    }
}
