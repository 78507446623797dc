//! Runs the hardware backend with a model of a PMU, for tests here and in the rooms that open
//! recordings.

use super::super::engine::{attach_with, record_with};
use super::super::live::Live as PerfLive;
use super::super::sideband::SidebandAttr;
use super::pmu::ModelPmu;
use crate::capture::{Error, Live, Outcome, Request};
use crate::common::{Pid, Tid};
use crate::tracee::Cpus;
use std::path::Path;

/// Returns true if this machine lets a process read its own software events. Prints a notice of the
/// skipped tests if not.
pub(crate) fn can_listen() -> bool {
    let found = SidebandAttr::probe();
    if let Err(error) = &found {
        let skipped = format_args!("SKIPPED: {error}\n");
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), skipped);
    }
    found.is_ok()
}

/// Keeps this thread, and the program that it launches and steps, on one CPU: steps are faster
/// there.
fn stay_here() {
    Cpus::current().and_then(Cpus::pin_this_thread).expect("the kernel allows it");
}

/// Runs a program as `--backend perf` does, with AUX areas of `size_bytes`, and logs each thread's
/// instructions into a file in `log`. Also returns the number of lost bytes of trace, which is 0 if
/// `is_patient`.
pub(crate) fn record_by_model(
    request: &Request,
    size_bytes: u64,
    log: &Path,
    is_patient: bool,
) -> Result<(Outcome, u64), Error> {
    stay_here();
    let mut pmu = ModelPmu::new(size_bytes, log.to_owned());
    pmu.is_patient = is_patient;
    let outcome = record_with(request, &mut pmu)?;
    Ok((outcome, pmu.dropped))
}

/// Attaches to a process as `--backend perf` does, with a PMU that traces nothing, and detaches
/// when this thread is signaled.
pub(crate) fn attach_blindly(request: &Request, pid: Pid) -> Result<Outcome, Error> {
    let log = tempfile::tempdir().unwrap();
    let mut pmu = ModelPmu::new(1 << 12, log.path().to_owned());
    pmu.is_blind = true;
    attach_with(request, pid, &mut pmu)
}

/// Attaches to a process as `--backend perf` does, and detaches when this thread is signaled. Logs
/// each thread's instructions like [`record_by_model`].
pub(crate) fn attach_by_model(request: &Request, pid: Pid, log: &Path) -> Result<Outcome, Error> {
    attach_with(request, pid, &mut ModelPmu::new(1 << 14, log.to_owned()))
}

/// Launches or attaches to a program under a debugger as `--backend perf` does. Logs like
/// [`record_by_model`].
pub(crate) fn live_by_model(request: &Request, log: &Path) -> Result<Live, Error> {
    stay_here();
    let pmu = Box::new(ModelPmu::new(1 << 14, log.to_owned()));
    let live = match request.attach {
        Some(pid) => PerfLive::attach_with(request, pid, pmu),
        None => PerfLive::launch_with(request, pmu),
    };
    live.map(Live::perf)
}

/// Returns the number of the calling thread.
pub(crate) fn this_thread() -> Tid {
    Tid(nix::unistd::gettid().as_raw())
}

/// Sends a signal to a recorder's thread.
pub(crate) fn ask_thread(tid: Tid, signal: i32) {
    let process = nix::unistd::getpid().as_raw();
    // SAFETY: tgkill(2) touches no memory.
    unsafe { libc::syscall(libc::SYS_tgkill, process, tid.0, signal) };
}
