//! Runs of the whole backend with a model of a PMU, for the tests of who opens recordings.

use super::super::engine::record_with;
use super::super::sideband::Recipe;
use super::pmu::ModelPmu;
use crate::capture::{Error, Outcome, Request};
use std::path::Path;

/// Whether this machine lets a process listen to its own software events. Says loudly what is not
/// tested without it.
pub(crate) fn can_listen() -> bool {
    let found = Recipe::find();
    if let Err(error) = &found {
        let skipped = format_args!("SKIPPED: {error}\n");
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), skipped);
    }
    found.is_ok()
}

/// Runs a program as `--backend perf` does, with AUX areas of `size_bytes`, and logs each thread's
/// instructions into a file in `log`. Gives how many bytes of trace were dropped, too; none are, if
/// `is_patient`.
pub(crate) fn record_by_model(
    request: &Request,
    size_bytes: u64,
    log: &Path,
    is_patient: bool,
) -> Result<(Outcome, u64), Error> {
    let mut pmu = ModelPmu::new(size_bytes, log.to_owned());
    pmu.is_patient = is_patient;
    let outcome = record_with(request, &mut pmu)?;
    Ok((outcome, pmu.dropped))
}
