//! Stops in the form in which the client shows them.

use super::adapter::Adapter;
use super::here::CurrentPlace;
use super::moves::Motion;
use super::protocol::Fault;
use crate::session::{Edge, Ending, StopReason, signal_name};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The parts of the protocol's event for a stop.
#[derive(Clone, Debug, Default)]
struct StopDescription {
    /// The kind of stop, such as `step`.
    reason: &'static str,
    /// The reason in words; `None` for the client's own words for its kind.
    description: Option<String>,
    /// More about the stop, such as values.
    text: Option<String>,
    /// The ID of the client's breakpoint that was hit.
    breakpoint: Option<i64>,
}

impl Adapter<'_> {
    /// Reports a stop to the client: the current move is over. Then lets the next waiting move
    /// begin. `results` are those of gdb's `*stopped` record, or of one that the adapter made.
    pub(super) fn on_stopped(&mut self, results: &Value) {
        // The move is over after the report, so that a pause does not interrupt the report.
        let motion = *self.current_move.get_or_insert_default();
        let reason = results["reason"].as_str().unwrap_or_default();
        if reason.starts_with("exited") {
            self.report_exit(results);
        } else if let Err(fault) = self.report_stop(motion, results) {
            self.client.output("important", &format!("{}\n", fault.text));
        }
        self.current_move = None;
        if let Some(request) = self.waiting_moves.pop_front() {
            self.inbox.defer_first(vec![super::inbox::Input::Message(
                super::protocol::Message::Request(request),
            )]);
        }
    }

    /// Reports a stop that ended `motion`, its place in the history, and the threads that changed.
    /// Our Python module answers `stopped` with `thread`, `threads`, `points` (by gdb's number: the
    /// kind of the client's breakpoint, and its exception filter or watched expression) and
    /// `thrown` (the type of a C++ exception).
    fn report_stop(&mut self, motion: Motion, results: &Value) -> Result<(), Fault> {
        let module_facts = self.ask_module("stopped", Value::Null)?;
        let here = self.here()?;
        self.update_threads(&module_facts["threads"]);
        self.thread = module_facts["thread"].as_i64().unwrap_or(self.thread);
        self.exception = None;
        let mut shown = self.describe_stop(motion, results, &module_facts, &here);
        self.was_past = here.is_past();
        if shown.text.is_none() {
            shown.text = here.past_text();
        } else if let (Some(text), Some(past)) = (&mut shown.text, here.past_text()) {
            text.push_str("; ");
            text.push_str(&past);
        }
        let mut body = json!({"reason": shown.reason, "allThreadsStopped": true});
        if self.thread != 0 {
            body["threadId"] = self.thread.into();
        }
        if let Some(description) = shown.description {
            body["description"] = description.into();
        }
        if let Some(text) = shown.text {
            body["text"] = text.into();
        }
        if let Some(id) = shown.breakpoint {
            body["hitBreakpointIds"] = json!([id]);
        }
        self.client.event("stopped", body);
        self.client.event("contraflow/when", here.json());
        Ok(())
    }

    /// Describes a stop, by gdb's `results`, the answer of our Python module (`module_facts`) and
    /// the session's place. Stores a signal as the exception of the stop.
    fn describe_stop(
        &mut self,
        motion: Motion,
        results: &Value,
        module_facts: &Value,
        here: &CurrentPlace,
    ) -> StopDescription {
        let text = |key: &str| results[key].as_str().map(str::to_owned);
        let edge_of_history = match here.reason {
            StopReason::Edge(edge) => Some(edge),
            _ => None,
        };
        match results["reason"].as_str().unwrap_or_default() {
            "contraflow-begin" if here.is_at_end() && !here.is_running => {
                self.describe_end(here, "entry")
            }
            "contraflow-begin" => {
                let description =
                    (!here.is_running).then(|| "At the start of the recording".to_owned());
                StopDescription { reason: "entry", description, ..StopDescription::default() }
            }
            "contraflow-arrived" if here.is_at_end() => self.describe_end(here, "goto"),
            "contraflow-arrived" => {
                StopDescription { reason: "goto", ..StopDescription::default() }
            }
            "breakpoint-hit" => self.describe_breakpoint(results, module_facts),
            "watchpoint-trigger" | "read-watchpoint-trigger" | "access-watchpoint-trigger" => {
                describe_watchpoint(results, &module_facts["points"], motion.is_back)
            }
            "end-stepping-range" => {
                StopDescription { reason: "step", ..StopDescription::default() }
            }
            "function-finished" => {
                let value = text("return-value");
                let text = value.map(|value| format!("the function returned {value}"));
                StopDescription { reason: "step", text, ..StopDescription::default() }
            }
            "signal-received" if results["signal-name"] == "SIGINT" && motion.is_pausing => {
                StopDescription { reason: "pause", ..StopDescription::default() }
            }
            "signal-received" if edge_of_history.is_none() || here.fatal.is_some() => {
                let name = text("signal-name").unwrap_or_default();
                let meaning = text("signal-meaning").unwrap_or_default();
                if name == "0" {
                    // A stop without a signal: a `finish` whose value is unknown.
                    return StopDescription { reason: "step", ..StopDescription::default() };
                }
                self.exception = Some((name.clone(), meaning.clone()));
                let description = Some(format!("{name}: {meaning}"));
                StopDescription { reason: "exception", description, ..StopDescription::default() }
            }
            _ => match edge_of_history {
                Some(Edge::Begin) => {
                    let description = Some("At the start of the recording".to_owned());
                    StopDescription { reason: "pause", description, ..StopDescription::default() }
                }
                Some(Edge::End) => self.describe_end(here, "pause"),
                None => {
                    let description = text("reason").map(|reason| reason.replace('-', " "));
                    StopDescription { reason: "pause", description, ..StopDescription::default() }
                }
            },
        }
    }

    /// Describes a stop at the end of the history: the present of a live program, or the end of the
    /// run. `reason` is the kind of stop, unless a signal killed the program: that is stored as the
    /// exception of the stop.
    fn describe_end(&mut self, here: &CurrentPlace, reason: &'static str) -> StopDescription {
        let is_live = self.debugged.as_ref().is_some_and(|debugged| debugged.is_live);
        let what = if is_live { "program" } else { "recording" };
        let signal = match (here.fatal, here.ending) {
            (Some(signal), _) | (None, Ending::Signal(signal)) => Some(signal),
            _ => None,
        };
        if let Some(signal) = signal {
            let name =
                signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
            let description = format!("At the end of the {what}: killed by {name}");
            self.exception = Some((name, here.ending.to_string()));
            return StopDescription {
                reason: "exception",
                description: Some(description),
                ..StopDescription::default()
            };
        }
        let description = if here.is_running && reason == "pause" && !self.was_past {
            // From here, the program can still go back, but not after its exit.
            "The program is about to exit".to_owned()
        } else if here.is_running {
            "At the present of the program".to_owned()
        } else {
            format!("At the end of the {what}: {}", here.ending)
        };
        StopDescription { reason, description: Some(description), ..StopDescription::default() }
    }

    /// Describes a stop at a breakpoint. If it is one for exceptions (of C++ or Rust), stores the
    /// exception as that of the stop.
    fn describe_breakpoint(&mut self, results: &Value, module_facts: &Value) -> StopDescription {
        let number = results["bkptno"].as_str().unwrap_or_default();
        let of_client = &module_facts["points"][number];
        let reason = match of_client[0].as_str() {
            Some("functions") => "function breakpoint",
            Some("instructions") => "instruction breakpoint",
            Some("exceptions") => "exception",
            _ => "breakpoint",
        };
        let mut shown = StopDescription { reason, ..StopDescription::default() };
        if of_client.is_null() {
            return shown;
        }
        if let Some(filter) = of_client[1].as_str().filter(|_| reason == "exception") {
            let what = match filter {
                "panic" => "Rust panic".to_owned(),
                filter => match module_facts["thrown"].as_str() {
                    Some(kind) => format!("C++ {filter} of {kind}"),
                    None => format!("C++ {filter}"),
                },
            };
            let id = module_facts["thrown"].as_str().unwrap_or(filter);
            self.exception = Some((id.to_owned(), what.clone()));
            shown.description = Some(what);
        } else {
            shown.breakpoint = number.parse().ok();
        }
        shown
    }

    /// Replaces the threads that the client knows, and reports those that are new or gone.
    fn update_threads(&mut self, listed: &Value) {
        let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
        let name = |thread: &Value| thread["name"].as_str().unwrap_or_default().to_owned();
        let threads: BTreeMap<i64, String> =
            listed.iter().filter_map(|each| Some((each["id"].as_i64()?, name(each)))).collect();
        let before = std::mem::replace(&mut self.threads, threads);
        let mut changes = Vec::new();
        for tid in self.threads.keys().filter(|tid| !before.contains_key(tid)) {
            changes.push(json!({"reason": "started", "threadId": tid}));
        }
        for tid in before.keys().filter(|tid| !self.threads.contains_key(tid)) {
            changes.push(json!({"reason": "exited", "threadId": tid}));
        }
        for change in changes {
            self.client.event("thread", change);
        }
    }

    /// Returns the threads: the current ones if the program is stopped, else those of the last
    /// stop.
    pub(super) fn thread_list(&mut self) -> Result<Value, Fault> {
        if self.current_move.is_none() {
            let listed = self.ask_module("threads", Value::Null)?;
            self.update_threads(&listed["threads"]);
        }
        let threads = self.threads.iter().map(|(id, name)| json!({"id": id, "name": name}));
        Ok(json!({"threads": threads.collect::<Vec<_>>()}))
    }

    /// Reports the end of a live program, with status 0 if gdb does not know it, and answers the
    /// waiting moves as cancelled.
    fn report_exit(&mut self, results: &Value) {
        // gdb prints the status in octal.
        let code = results["exit-code"].as_str().and_then(|code| i64::from_str_radix(code, 8).ok());
        let signal = results["signal-name"].as_str();
        if let Some(signal) = signal {
            self.client.output("console", &format!("the program was killed by {signal}\n"));
        }
        let code = code.or_else(|| signal.and_then(status_of_signal));
        self.cancel_waiting_moves(|_| true);
        self.client.event("exited", json!({"exitCode": code.unwrap_or(0)}));
        self.client.event("terminated", Value::Null);
    }

    /// Returns the signal or exception of the last stop, with the address that a SIGSEGV or SIGBUS
    /// is about. Fails if there was none.
    pub(super) fn exception_info(&mut self) -> Result<Value, Fault> {
        let Some((id, description)) = self.exception.clone() else {
            return Err(Fault::new("no signal or exception stopped the program"));
        };
        let details = self.ask_module("exceptionInfo", Value::Null)?;
        let mut answer =
            json!({"exceptionId": id, "description": description, "breakMode": "always"});
        if let Some(address) =
            details["address"].as_str().filter(|_| id == "SIGSEGV" || id == "SIGBUS")
        {
            answer["description"] = format!("{description}; address {address}").into();
        }
        answer["details"] = json!({"typeName": id, "message": answer["description"]});
        Ok(answer)
    }
}

/// Returns the exit status of a program that a signal killed, as shells count it; `None` for an
/// unknown name.
fn status_of_signal(name: &str) -> Option<i64> {
    const LAST_SIGNAL: i32 = 64;
    let number = (1..=LAST_SIGNAL).find(|number| signal_name(*number) == Some(name))?;
    Some(128 + i64::from(number))
}

/// Describes a stop at an access to watched memory. When the program goes back, gdb's new value is
/// the one from before the write.
fn describe_watchpoint(results: &Value, points: &Value, is_back: bool) -> StopDescription {
    let keys = ["wpt", "hw-rwpt", "hw-awpt"];
    let point = keys.iter().map(|key| &results[key]).find(|point| point.is_object());
    let (value, point) = (&results["value"], point.unwrap_or(&Value::Null));
    let number = point["number"].as_str().unwrap_or_default();
    let name = points[number][1].as_str().or_else(|| point["exp"].as_str()).unwrap_or("memory");
    let text = match (value["old"].as_str(), value["new"].as_str(), value["value"].as_str()) {
        (Some(later), Some(earlier), _) if is_back => Some(format!("{name}: {earlier} → {later}")),
        (Some(earlier), Some(later), _) => Some(format!("{name}: {earlier} → {later}")),
        (.., Some(read)) => Some(format!("{name} is accessed: {read}")),
        (_, Some(new), _) => Some(format!("{name} is {new}")),
        _ => None,
    };
    let breakpoint = number.parse().ok();
    StopDescription { reason: "data breakpoint", description: None, text, breakpoint }
}
