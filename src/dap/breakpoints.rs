//! Breakpoints of all kinds, values that the client sets, expressions and console commands, and the
//! list of sources.

use super::adapter::Adapter;
use super::inbox::Input;
use super::mi::Record;
use super::moves::stop_of;
use super::protocol::{Fault, Request};
use serde_json::{Value, json};

impl Adapter<'_> {
    pub(super) fn set_breakpoints(&mut self, request: &Request) -> Result<Value, Fault> {
        let (command, arguments) = (request.command.clone(), request.arguments.clone());
        self.while_stopped(|adapter| adapter.look(&command, arguments))
    }

    /// Sets a variable of a live program; fails in the past.
    pub(super) fn set_value(&mut self, request: &Request) -> Result<Value, Fault> {
        let is_live = self.debugged.as_ref().is_some_and(|debugged| debugged.is_live);
        if !is_live || self.here()?.is_past() {
            return Err(Fault::new(
                "the past cannot be changed; expressions in the console may assign, and call functions: \
                 that lasts until the next move",
            ));
        }
        self.look(&request.command, request.arguments.clone())
    }

    /// Evaluates an expression. In the console, also executes commands of gdb, and reports where
    /// the program has moved to, or notes that it runs.
    pub(super) fn evaluate(&mut self, request: &Request) -> Result<Value, Fault> {
        if request.arguments["context"].as_str() != Some("repl") {
            return self.look("evaluate", request.arguments.clone());
        }
        let before = self.here()?;
        let answer = self.look("evaluate", request.arguments.clone());
        let news =
            self.inbox.take_deferred(|input| matches!(input, Input::Gdb(Record::Exec { .. })));
        let runs = news.last().is_some_and(
            |input| matches!(input, Input::Gdb(Record::Exec { class, .. }) if class == "running"),
        );
        let stop = news.into_iter().rev().find_map(stop_of);
        // gdb reports `running` for a call of a function as well, but this call has returned.
        if runs && self.look("is_running", Value::Null)? == true {
            self.motion = Some(super::moves::Motion::default());
        } else if stop.is_some() || !self.here()?.is_at(&before) {
            self.stop_after = Some(stop.unwrap_or_else(|| json!({"reason": "contraflow-arrived"})));
        } else if self.features.supports_invalidated_event {
            self.after.push(("invalidated", json!({"areas": ["variables"]})));
        }
        answer
    }

    pub(super) fn loaded_sources(&mut self) -> Result<Value, Fault> {
        let listed = self.mi("-file-list-exec-source-files")?;
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
