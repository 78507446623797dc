//! The beginning and the end of a session: capabilities, `launch`, `attach`, `disconnect`.

use super::adapter::{Adapter, Debugged, POLL_PERIOD};
use super::child::{Gdb, console_command};
use super::host::{ForeignTrace, Program, Recorder, Target};
use super::inbox::{Input, output_chunks};
use super::moves::Motion;
use super::protocol::{Fault, Message, Request};
use super::questions::Questions;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time after the end of a recorder in which its last output arrives, while a process that the
/// recorded program left running holds its output open.
const LAST_OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// Settings of gdb for a session without a terminal.
const SETTINGS: [&str; 8] = [
    "-gdb-set mi-async on",
    "-gdb-set confirm off",
    "-gdb-set pagination off",
    "-gdb-set width 0",
    "-gdb-set height 0",
    "-gdb-set style enabled off",
    "-gdb-set print thread-events off",
    "-gdb-set breakpoint pending on",
];

/// The arguments of `launch` and `attach` (docs/ide.md, "Configurations").
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Arguments {
    recording: Option<PathBuf>,
    program: Option<String>,
    args: Vec<String>,
    cwd: Option<PathBuf>,
    env: BTreeMap<String, Option<String>>,
    mode: Option<String>,
    perf_data: Option<PathBuf>,
    bundle: Option<PathBuf>,
    core: Option<PathBuf>,
    symfs: Option<PathBuf>,
    pid: Option<i32>,
    stop_on_entry: bool,
    gdb: Option<PathBuf>,
}

/// The options and progress of the last `launch` or `attach`.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    /// True if the client wants a stop at the start.
    stop_on_entry: bool,
    /// True once the client has set its breakpoints (`configurationDone`).
    is_configured: bool,
}

impl Adapter<'_> {
    /// Returns the features of the adapter, and stores those of the client.
    pub(super) fn initialize(&mut self, request: &Request) -> Result<Value, Fault> {
        self.features = request.arguments()?;
        let filter = |filter: &str, label: &str, description: &str, default: bool| json!({"filter": filter, "label": label, "description": description, "default": default});
        Ok(json!({
            "supportsConfigurationDoneRequest": true,
            "supportsFunctionBreakpoints": true,
            "supportsConditionalBreakpoints": true,
            "supportsHitConditionalBreakpoints": true,
            "supportsLogPoints": true,
            "supportsDataBreakpoints": true,
            "supportsDataBreakpointBytes": true,
            "supportsInstructionBreakpoints": true,
            "supportsEvaluateForHovers": true,
            "supportsStepBack": true,
            "supportsSteppingGranularity": true,
            "supportsSetVariable": true,
            "supportsSetExpression": true,
            "supportsRestartFrame": true,
            "supportsRestartRequest": true,
            "supportsGotoTargetsRequest": true,
            "supportsCompletionsRequest": true,
            "completionTriggerCharacters": [".", ">", ":", "-"],
            "supportsModulesRequest": true,
            "supportsLoadedSourcesRequest": true,
            "supportsTerminateRequest": true,
            "supportTerminateDebuggee": true,
            "supportsReadMemoryRequest": true,
            "supportsDisassembleRequest": true,
            "supportsDelayedStackTraceLoading": true,
            "supportsCancelRequest": true,
            "supportsExceptionInfoRequest": true,
            "supportsClipboardContext": true,
            "supportsValueFormattingOptions": false,
            "exceptionBreakpointFilters": [
                filter("signal", "Fatal signals",
                    "SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS", true),
                filter("throw", "C++: throw", "Stops where an exception is thrown", false),
                filter("catch", "C++: catch", "Stops where an exception is caught", false),
                filter("panic", "Rust: panic", "Stops where a panic begins to unwind", false),
            ],
        }))
    }

    /// Opens the thing to debug and starts gdb on it, stopped. Records or imports first if the
    /// client asks for that, which may take long. Then the client may set breakpoints, until
    /// [`Self::finish_configuration`].
    pub(super) fn launch(&mut self, request: &Request) -> Result<Value, Fault> {
        if self.debugged.is_some() {
            return Err(Fault::new("something is debugged already: end that session first"));
        }
        let arguments: Arguments = request.arguments()?;
        let target = self.obtain_target(&arguments, request.command == "attach")?;
        let is_live = !matches!(target, Target::Recording(_));
        let debuggee = self.host.open(&target)?;
        let opened = self.start_gdb(&arguments, debuggee, is_live);
        if let Err(fault) = opened {
            self.close();
            return Err(fault);
        }
        if let Some(debugged) = &mut self.debugged {
            debugged.is_attached = matches!(target, Target::Process(_));
        }
        self.launch = Launch { stop_on_entry: arguments.stop_on_entry, is_configured: false };
        if arguments.stop_on_entry
            && !is_live
            && let Err(fault) = self.ask_module("seek", json!({"to": "start"}))
        {
            self.close();
            return Err(fault);
        }
        self.events_after_response.push(("initialized", Value::Null));
        Ok(Value::Null)
    }

    /// Returns the thing to debug. For `attach` (`attaches`), the process `pid`: fails without one,
    /// and looks at no other argument. For `launch`, what the arguments name; the latest recording
    /// if they name nothing. Records the program or imports the trace first, if asked to, and waits
    /// for the end of that. Fails if the arguments contradict each other, or if no recording comes
    /// of it.
    fn obtain_target(&mut self, arguments: &Arguments, attaches: bool) -> Result<Target, Fault> {
        if attaches {
            return match arguments.pid {
                Some(pid) if pid > 0 => Ok(Target::Process(pid)),
                _ => Err(Fault::new("attach needs `pid`, the ID of a running process")),
            };
        }
        if let Some(trace) = trace_to_import(arguments)? {
            let importer = self.host.import(&trace)?;
            let dir = self.run_recorder(importer, "the trace could not be imported")?;
            return Ok(Target::Recording(Some(dir)));
        }
        let Some(program) = &arguments.program else {
            // A configuration that names no program, trace or recording means the latest recording.
            let is_named =
                |path: &PathBuf| path.as_os_str() != "latest" && !path.as_os_str().is_empty();
            return Ok(Target::Recording(arguments.recording.clone().filter(is_named)));
        };
        if arguments.recording.is_some() {
            return Err(Fault::new("give either `recording` or `program`"));
        }
        let words = [program].into_iter().chain(&arguments.args);
        let program = Program {
            command: words.map(Into::into).collect(),
            directory: arguments.cwd.clone(),
            environment: arguments.env.clone().into_iter().collect(),
        };
        match arguments.mode.as_deref() {
            None | Some("record") => {
                let recorder = self.host.record(&program)?;
                let why = "the program could not be recorded";
                self.run_recorder(recorder, why).map(Some).map(Target::Recording)
            }
            Some("serve") => Ok(Target::Program(program)),
            Some(other) => Err(Fault::new(format!("mode {other}: give `record` or `serve`"))),
        }
    }

    /// Shows the output of a recorder until it ends, and returns the directory of its recording.
    /// Does not wait for processes that the program leaves running. A request to pause, to
    /// cancel the launch or to end interrupts the program, whose recording is still written. If the client is gone, kills
    /// the recorder. `fault` is the error's text if there is no recording.
    fn run_recorder(&mut self, mut recorder: Recorder, fault: &str) -> Result<PathBuf, Fault> {
        let output = recorder.child.stdout.take().map(|stream| output_chunks(stream, false));
        let errors = recorder.child.stderr.take().map(|stream| output_chunks(stream, true));
        let mut open = 0;
        for stream in [output.map(boxed), errors.map(boxed)].into_iter().flatten() {
            self.inbox.listen_to_output(stream, true);
            open += 1;
        }
        // The time up to which the last output is waited for, once the recorder has ended.
        let mut deadline: Option<Instant> = None;
        while deadline.is_none() || open > 0 {
            if deadline.is_none() && !matches!(recorder.child.try_wait(), Ok(None)) {
                deadline = Some(Instant::now() + LAST_OUTPUT_PATIENCE);
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            let Some(input) = self.inbox.receive_within(POLL_PERIOD) else { continue };
            match input {
                Input::OutputDone => open -= 1,
                Input::Output(line) => {
                    let category = if line.is_error { "stderr" } else { "stdout" };
                    self.client.output(category, &line.text);
                }
                Input::Message(Message::Request(request))
                    if matches!(
                        request.command.as_str(),
                        "pause" | "disconnect" | "terminate" | "cancel"
                    ) =>
                {
                    // A `cancel` may mean another request, which waits.
                    if request.command != "cancel" || self.cancel(&request) {
                        // The recorder passes the signal on to the program, and writes the
                        // recording.
                        self.host.interrupt(recorder.child.id());
                    }
                    if request.command == "pause" || request.command == "cancel" {
                        self.client.respond(&request, Ok(Value::Null));
                    } else {
                        self.inbox.defer(Input::Message(Message::Request(request)));
                    }
                }
                Input::ClientGone => {
                    let _ = recorder.child.kill();
                    self.inbox.defer(Input::ClientGone);
                }
                other => self.inbox.defer(other),
            }
        }
        let status = recorder.child.wait().map_err(|error| Fault::new(error.to_string()))?;
        if recorder.recording.join("manifest.json").exists() {
            return Ok(recorder.recording);
        }
        Err(Fault::new(format!("{fault} ({status}); its output says why")))
    }

    /// Starts gdb, prepares it and connects it to the server, and sets `debugged`. If that fails
    /// halfway, the caller calls [`Self::close`].
    fn start_gdb(
        &mut self,
        arguments: &Arguments,
        debuggee: super::host::Debuggee,
        is_live: bool,
    ) -> Result<(), Fault> {
        let started = self.host.gdb(arguments.gdb.as_deref());
        let streams = started.map(|mut child| (child.stdin.take(), child.stdout.take(), child));
        let (input, output, child) = match streams {
            Ok((Some(input), Some(output), child)) => (input, output, child),
            Ok(_) => {
                (debuggee.end)();
                return Err(Fault::new("gdb has no pipes"));
            }
            Err(why) => {
                (debuggee.end)();
                return Err(why.into());
            }
        };
        self.inbox.listen_to_gdb(output);
        let gdb = Gdb::new(child, input);
        let (inquirer, end_server) = (debuggee.inquirer, debuggee.end);
        let questions = Questions::new(debuggee.open_asked);
        let is_attached = false;
        self.debugged =
            Some(Debugged { gdb, inquirer, end_server, questions, is_live, is_attached });
        for command in SETTINGS {
            self.mi_command(command)?;
        }
        for command in debuggee.commands {
            self.mi_command(&console_command(&command))?;
        }
        // Drop gdb's reports about the connection: the first stop is reported later.
        self.inbox.take_deferred(|input| matches!(input, Input::Gdb(_)));
        Ok(())
    }

    /// Answers `configurationDone`. Continues a live program that was launched, unless it is to
    /// stop on entry; else reports the first stop after the response. Does nothing the second time.
    pub(super) fn finish_configuration(&mut self) -> Result<Value, Fault> {
        if self.debugged.is_none() {
            return Err(Fault::new("nothing is debugged: launch something first"));
        }
        if std::mem::replace(&mut self.launch.is_configured, true) {
            return Ok(Value::Null);
        }
        let debugged = self.debugged.as_ref();
        let continues = debugged.is_some_and(|debugged| debugged.is_live && !debugged.is_attached);
        if continues && !self.launch.stop_on_entry {
            self.continue_forward()?;
        } else {
            // The stop is reported after the response.
            self.stop_after_response =
                Some((Motion::default(), json!({"reason": "contraflow-begin"})));
        }
        Ok(Value::Null)
    }

    /// Ends the debugging, first a move. Kills a live program, or detaches from it: as `disconnect`
    /// asks for, by default only from one that was attached. `terminate` always kills it. After
    /// `disconnect`, the adapter ends as well.
    pub(super) fn disconnect(&mut self, request: &Request) {
        let kills = request.arguments["terminateDebuggee"].as_bool();
        let debugged = self.debugged.as_ref();
        let is_attached = debugged.is_some_and(|debugged| debugged.is_attached);
        let is_live = debugged.is_some_and(|debugged| debugged.is_live);
        if self.current_move.is_some() && self.mi_command("-exec-interrupt").is_ok() {
            self.await_stop();
        }
        if is_live {
            let leaves =
                if request.command == "terminate" { false } else { !kills.unwrap_or(!is_attached) };
            // If the program is gone already, the command fails.
            let _ = self.mi_command(&console_command(if leaves { "detach" } else { "kill" }));
        }
        self.close();
        if request.command == "terminate" {
            self.events_after_response.push(("terminated", Value::Null));
        } else {
            self.is_over = true;
        }
    }
}

/// Returns the trace of another tool that the arguments of a launch name; `None` if they name none.
/// Fails if they name two, or a program or recording as well, or only files that belong to a trace.
fn trace_to_import(arguments: &Arguments) -> Result<Option<ForeignTrace>, Fault> {
    let Arguments { perf_data, bundle, core, symfs, .. } = arguments;
    let path = match (perf_data, bundle) {
        (None, None) if core.is_some() || symfs.is_some() => {
            return Err(Fault::new("`core` and `symfs` need `perfData`"));
        }
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Fault::new("give either `perfData` or `bundle`")),
        (Some(path), None) | (None, Some(path)) => path.clone(),
    };
    if arguments.recording.is_some() || arguments.program.is_some() {
        return Err(Fault::new("a trace of another tool is no `recording` and has no `program`"));
    }
    Ok(Some(ForeignTrace { path, core: core.clone(), symfs: symfs.clone() }))
}

/// Lines of output of any stream.
type Lines = Box<dyn Iterator<Item = super::host::OutputLine> + Send>;

/// Returns lines of output as one type.
fn boxed(lines: impl Iterator<Item = super::host::OutputLine> + Send + 'static) -> Lines {
    Box::new(lines)
}
