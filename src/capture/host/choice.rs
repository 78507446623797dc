//! The backend that `record --path` uses on a machine, the reason why it is no better one, and the
//! one command that would improve it.

use super::facts::Facts;
use super::perf_events::WANTED_BUFFER_BYTES;
use super::root::Root;
use nix::errno::Errno;
use serde::Serialize;

/// A backend for recordings of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathBackend {
    /// The CPU's PT unit (`perf`).
    Hardware,
    /// Translation of the program's code (`soft`).
    Soft,
    /// None: no program can be recorded.
    Nothing,
}

/// A command that would improve recording on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Improvement {
    /// The command, as a shell line.
    pub command: String,
    /// The benefit of the command, as a clause.
    pub gain: String,
}

/// The choice of the backend on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The backend that `record --path` uses.
    pub means: PathBackend,
    /// The reason for the choice, as a clause.
    pub because: String,
    /// The one command that would improve recording; `None` if no command on this machine would.
    pub better: Option<Improvement>,
}

/// An obstacle to using the CPU's PT unit. The first one in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The CPU is not by Intel.
    NotIntel,
    /// A hypervisor hides the PT unit.
    Hidden,
    /// The CPU has no PT unit.
    NoUnit,
    /// The kernel has no PMU for the PT unit.
    NoPmu,
    /// The kernel has no perf events.
    NoPerfEvents,
    /// This value of `perf_event_paranoid` forbids this process perf events.
    Paranoid(i64),
    /// A seccomp filter refuses `perf_event_open(2)`.
    Filtered,
    /// The kernel refuses `perf_event_open(2)` with this errno.
    Refused(i32),
}

impl Obstacle {
    /// Returns the first obstacle on a machine; `None` if its PT unit can be used.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        let (cpu, events) = (&facts.cpu, &facts.perf_events);
        let errno = facts.tried.as_ref().and_then(|tried| tried.perf_errno);
        match (events.paranoid, errno) {
            _ if !cpu.intel_pt => Some(Self::no_unit(facts)),
            _ if facts.pmu.is_none() => Some(Self::NoPmu),
            (None, _) => Some(Self::NoPerfEvents),
            (Some(paranoid), _) if !events.allow_tracing_by(&facts.process) => {
                Some(Self::Paranoid(paranoid))
            }
            (_, Some(_)) if facts.process.seccomp > 0 => Some(Self::Filtered),
            (_, Some(errno)) => Some(Self::Refused(errno)),
            _ => None,
        }
    }

    /// Returns the obstacle on a machine whose CPU reports no Intel PT.
    fn no_unit(facts: &Facts) -> Self {
        let is_other = !["", "GenuineIntel"].contains(&facts.cpu.vendor.as_str());
        match facts.cpu.hypervisor {
            _ if is_other => Self::NotIntel,
            true => Self::Hidden,
            false => Self::NoUnit,
        }
    }

    /// Returns the obstacle as a clause, for the user.
    pub(super) fn description(self, facts: &Facts) -> String {
        match self {
            Self::NotIntel => {
                format!("CPUs of {} have no Intel PT", facts.cpu.vendor)
            }
            Self::Hidden => {
                "this is a virtual machine, and its hypervisor hides Intel PT (KVM offers it with \
                 kvm_intel.pt_mode=1)"
                    .to_owned()
            }
            Self::NoUnit => "this CPU has no Intel PT".to_owned(),
            Self::NoPmu => "the CPU has Intel PT, but the kernel offers no PMU intel_pt".to_owned(),
            Self::NoPerfEvents => "the kernel has no perf events".to_owned(),
            Self::Paranoid(paranoid) => format!(
                "perf_event_paranoid is {paranoid}, which denies Intel PT to processes without \
                 CAP_PERFMON"
            ),
            Self::Filtered => {
                "a filter of system calls (seccomp) refuses perf_event_open(2)".to_owned()
            }
            Self::Refused(errno) => {
                format!("perf_event_open(2) is refused ({})", Errno::from_raw(errno))
            }
        }
    }

    /// Returns the command that removes the obstacle; `None` if no command does.
    fn remedy(self, facts: &Facts) -> Option<Improvement> {
        let (command, gain) = match self {
            Self::Paranoid(_) => (
                "sudo sysctl kernel.perf_event_paranoid=2".to_owned(),
                "opens the CPU's Intel PT to every user's own programs",
            ),
            Self::Filtered => (
                format!("{} run --cap-add PERFMON ...", facts.process.container?),
                "lets perf_event_open(2) through the container's filter",
            ),
            _ => return None,
        };
        Some(Improvement { command, gain: gain.to_owned() })
    }
}

impl Choice {
    /// Chooses the backend for a machine with these facts.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let obstacle = Obstacle::of(facts);
        let fault = facts.tried.as_ref().and_then(|tried| tried.ptrace_fault.clone());
        let (means, because) = match (fault, obstacle) {
            (Some(fault), _) => (PathBackend::Nothing, fault),
            (None, Some(obstacle)) => (PathBackend::Soft, obstacle.description(facts)),
            (None, None) => (
                PathBackend::Hardware,
                "the CPU has Intel PT, and it is open to this process".to_owned(),
            ),
        };
        let of_unit = || match obstacle {
            Some(obstacle) => obstacle.remedy(facts),
            None => permit_larger_buffers(facts),
        };
        let better = match means {
            PathBackend::Nothing => permit_ptrace(facts),
            _ => install_gdb(facts).or_else(of_unit).or_else(|| permit_attach(facts)),
        };
        Self { means, because, better }
    }
}

/// Returns the command that permits ptrace(2), on a machine where it was refused; `None` if no
/// command does. In a container whose Yama scope does not explain the refusal, that starts another
/// one with the capability, even if this one has it.
fn permit_ptrace(facts: &Facts) -> Option<Improvement> {
    let gain = "lets programs be traced".to_owned();
    let command = match (facts.process.ptrace_scope, facts.process.container) {
        (Some(2), _) if !facts.process.capabilities.sys_ptrace => {
            "sudo sysctl kernel.yama.ptrace_scope=1".to_owned()
        }
        // Only a reboot reverts such a scope.
        (Some(3..), _) => return None,
        (_, Some(container)) => format!("{container} run --cap-add SYS_PTRACE ..."),
        _ => return None,
    };
    Some(Improvement { command, gain })
}

/// Returns the command that installs gdb; `None` if gdb is there, debuggers were not searched for,
/// or the machine's installer is unknown.
fn install_gdb(facts: &Facts) -> Option<Improvement> {
    let known = facts.debuggers.as_ref()?;
    let command = format!("{} gdb", facts.installer?);
    let gain = "replay needs gdb".to_owned();
    let is_missing = known.iter().all(|debugger| debugger.name != "gdb");
    is_missing.then_some(Improvement { command, gain })
}

/// Returns the command that permits trace buffers of [`WANTED_BUFFER_BYTES`]; `None` if they are
/// permitted.
fn permit_larger_buffers(facts: &Facts) -> Option<Improvement> {
    let lockable = facts.perf_events.lockable_bytes(&facts.process, facts.cpu.online)?;
    // In addition to the trace, perf has a buffer of records for each CPU.
    let kib = WANTED_BUFFER_BYTES / 1024 + 516;
    let too_little = lockable < WANTED_BUFFER_BYTES;
    too_little.then(|| Improvement {
        command: format!("sudo sysctl kernel.perf_event_mlock_kb={kib}"),
        gain: "makes room for larger trace buffers, so that less is lost".to_owned(),
    })
}

/// Returns the command that permits attaching to other programs; `None` if it is permitted, or if
/// only a reboot would permit it (Yama's scope 3).
fn permit_attach(facts: &Facts) -> Option<Improvement> {
    let is_narrow = matches!(facts.process.ptrace_scope, Some(1..=2));
    (is_narrow && !facts.process.capabilities.sys_ptrace).then(|| Improvement {
        command: "sudo sysctl kernel.yama.ptrace_scope=0".to_owned(),
        gain: "lets record -p attach to programs that contraflow did not start".to_owned(),
    })
}

/// Returns the reason, in one line with the remedy, why `record --path` translates the program
/// though this CPU has Intel PT. Returns `None` if the CPU has none, or if `record --path` uses it
/// or cannot record at all.
#[must_use]
pub fn fallback() -> Option<String> {
    if !super::cpuid::has_intel_pt() {
        return None;
    }
    fallback_of(&Facts::of(&Root::here()))
}

/// Returns the result of [`fallback`] for a machine with these facts.
pub(super) fn fallback_of(facts: &Facts) -> Option<String> {
    let choice = Choice::of(facts);
    if !facts.cpu.intel_pt || choice.means != PathBackend::Soft {
        return None;
    }
    let better = choice.better.map(|better| format!("; better: {}", better.command));
    Some(format!(
        "recorded by translation, not by Intel PT: {}{} (contraflow doctor says more)",
        choice.because,
        better.unwrap_or_default()
    ))
}
