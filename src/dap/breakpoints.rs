//! Breakpoints of all kinds, values that the client sets, expressions and console commands, and the
//! list of sources. The breakpoints are kept by our Python module in gdb
//! (`gdb-scripts/contraflow_breakpoints.py`).

use super::adapter::Adapter;
use super::inbox::Input;
use super::mi::Record;
use super::moves::stop_of;
use super::protocol::{Fault, Request};
use serde_json::{Value, json};

impl Adapter<'_> {
    /// Replaces all breakpoints of one kind by those of the request. Interrupts a continue for
    /// that, and resumes it. Fails during a step.
    pub(super) fn set_breakpoints(&mut self, request: &Request) -> Result<Value, Fault> {
        let (command, arguments) = (request.command.clone(), request.arguments.clone());
        self.while_stopped(|adapter| adapter.ask_module(&command, arguments))
    }

    /// Sets a variable of a live program at its present; fails in the past, and for a recording.
    pub(super) fn set_value(&mut self, request: &Request) -> Result<Value, Fault> {
        let is_live = self.debugged.as_ref().is_some_and(|debugged| debugged.is_live);
        if !is_live || self.here()?.is_past() {
            return Err(Fault::new(
                "the past cannot be changed; expressions in the console may assign, and call functions: \
                 that lasts until the next move",
            ));
        }
        self.ask_module(&request.command, request.arguments.clone())
    }

    /// Evaluates an expression. In the console (context `repl`), also executes commands of gdb;
    /// then reports, after the response, where the program has moved to, or begins a move if it
    /// runs. If it did not move, lets the client read the variables again.
    pub(super) fn evaluate(&mut self, request: &Request) -> Result<Value, Fault> {
        if request.arguments["context"].as_str() != Some("repl") {
            return self.ask_module("evaluate", request.arguments.clone());
        }
        let before = self.here()?;
        let answer = self.ask_module("evaluate", request.arguments.clone());
        let exec_records =
            self.inbox.take_deferred(|input| matches!(input, Input::Gdb(Record::Exec { .. })));
        let runs = exec_records.last().is_some_and(
            |input| matches!(input, Input::Gdb(Record::Exec { class, .. }) if class == "running"),
        );
        let stop = exec_records.into_iter().rev().find_map(stop_of);
        // gdb reports `running` for a call of a function as well, but this call has returned.
        if runs && self.ask_module("is_running", Value::Null)? == true {
            self.current_move = Some(super::moves::Motion::default());
        } else if stop.is_some() || !self.here()?.is_same_place(&before) {
            let stop = stop.unwrap_or_else(|| json!({"reason": "contraflow-arrived"}));
            self.stop_after_response = Some((super::moves::Motion::default(), stop));
        } else if self.features.supports_invalidated_event {
            self.events_after_response.push(("invalidated", json!({"areas": ["variables"]})));
        }
        answer
    }

    /// Returns the source files of which gdb knows the full path, in the order of their paths.
    pub(super) fn loaded_sources(&mut self) -> Result<Value, Fault> {
        let listed = self.mi_command("-file-list-exec-source-files")?;
        let files = listed["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut paths: Vec<&str> =
            files.iter().filter_map(|file| file["fullname"].as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let source = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            json!({"name": name, "path": path})
        };
        Ok(json!({"sources": paths.into_iter().map(source).collect::<Vec<_>>()}))
    }
}
