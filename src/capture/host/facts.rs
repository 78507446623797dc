//! Collects all known facts of a machine.

use super::cpu::Cpu;
use super::debuggers::Debugger;
use super::perf_events::PerfEvents;
use super::pmu::Pmu;
use super::process::Process;
use super::root::Root;
use super::tried::Tried;
use serde::Serialize;

/// The facts of a machine that matter to a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The machine's CPU.
    pub cpu: Cpu,
    /// The kernel's PMU for Intel PT; `None` if it has none.
    pub pmu: Option<Pmu>,
    /// The kernel's limits on the use of perf events.
    pub perf_events: PerfEvents,
    /// The privileges and limits of this process.
    pub process: Process,
    /// The results of trying ptrace(2) and perf events; `None` if not tried.
    pub tried: Option<Tried>,
    /// The debuggers found; `None` if not searched for.
    pub debuggers: Option<Vec<Debugger>>,
    /// The command that installs packages; `None` if unknown.
    pub installer: Option<&'static str>,
}

impl Facts {
    /// Reads the facts from the files of a machine. Runs nothing, so `tried` and `debuggers` are
    /// `None`.
    #[must_use]
    pub fn of(root: &Root) -> Self {
        let installers = [
            ("/usr/bin/apt-get", "sudo apt-get install"),
            ("/usr/bin/dnf", "sudo dnf install"),
            ("/usr/bin/zypper", "sudo zypper install"),
            ("/usr/bin/pacman", "sudo pacman -S"),
            ("/sbin/apk", "sudo apk add"),
        ];
        let installer = installers.iter().find(|(file, _)| root.has(file));
        Self {
            cpu: Cpu::of(root),
            pmu: Pmu::of(root),
            perf_events: PerfEvents::of(root),
            process: Process::of(root),
            tried: None,
            debuggers: None,
            installer: installer.map(|(_, command)| *command),
        }
    }
}
