//! All that is known of a machine.

use super::cpu::Cpu;
use super::debuggers::Debugger;
use super::perf_events::PerfEvents;
use super::pmu::Pmu;
use super::process::Process;
use super::root::Root;
use super::tried::Tried;
use serde::Serialize;

/// What a recorder must know of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The CPU.
    pub cpu: Cpu,
    /// The kernel's PMU for Intel PT; none where it has none.
    pub pmu: Option<Pmu>,
    /// What the kernel allows of perf events.
    pub perf_events: PerfEvents,
    /// What this process may do.
    pub process: Process,
    /// What was tried; none where nothing was.
    pub tried: Option<Tried>,
    /// The debuggers that were looked for; none where nobody looked.
    pub debuggers: Option<Vec<Debugger>>,
    /// How packages are installed, where that is known.
    pub installer: Option<&'static str>,
}

impl Facts {
    /// What the files of a machine say. Runs nothing.
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
