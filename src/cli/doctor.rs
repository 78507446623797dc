//! `contraflow doctor`: the facilities of this machine for recording, and those that are missing.

use super::{EXIT_ERROR, Failure, arguments};
use crate::capture::host::{Choice, Facts, PathBackend, Root, Tried, debuggers, findings};
use crate::common::Visible;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Doctor) -> Result<ExitCode, Failure> {
    let root = Root::here();
    let mut facts = Facts::of(&root);
    facts.tried = Some(Tried::here(&std::env::current_exe()?));
    facts.debuggers = Some(debuggers(&root, &std::env::var_os("PATH").unwrap_or_default()));
    let choice = Choice::of(&facts);
    let found = findings(&facts, &choice);
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let all = serde_json::json!({ "facts": facts, "findings": found, "record": choice });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        for finding in &found {
            writeln!(out, "{:<15}{}", finding.about, Visible(&finding.text))?;
        }
    }
    let code = if choice.means == PathBackend::Nothing { EXIT_ERROR } else { 0 };
    Ok(ExitCode::from(code))
}
