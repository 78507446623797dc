//! `contraflow mcp`: recordings for agents and other programs, by the Model Context Protocol.

use super::found::NamedRecording;
use super::open::DebuggableRecording;
use super::remedies::with_remedy;
use super::{Failure, ask, calls, hits, open, origin};
use crate::ask::{Call, CallsQuestion, Hit, OriginStep};
use crate::capture::{OrphanEnd, end_with_parent};
use crate::mcp::{self, GdbQuestion, Host, Opened};
use crate::recording::Reader;
use crate::session::{AnySession, Recorded, Session, source_directories};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

/// The time between two checks whether gdb has ended.
const POLL_PERIOD: Duration = Duration::from_millis(10);
/// The beginning of gdb's answer, and a line after its end.
const VALUE: &str = "$1 = ";
const END: &str = "contraflow-end";
/// The maximum number of characters of gdb's answer; more are cut.
const TEXT_LIMIT: usize = 4000;

pub(super) fn run() -> Result<ExitCode, Failure> {
    mcp::serve(RecordingsHost)?;
    Ok(ExitCode::SUCCESS)
}

/// The host of the MCP server: opens the recordings of this machine, and runs gdb on them.
struct RecordingsHost;

impl Host for RecordingsHost {
    fn open(&self, name: Option<&Path>) -> Result<Opened, String> {
        open_recording(name).map_err(|failure| with_remedy(failure.as_ref()))
    }

    fn hit(&self, hit: &Hit, texts: &[String], is_exact: bool) -> Value {
        hits::json(hit, texts, is_exact)
    }

    fn call(&self, call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> Value {
        calls::json(call, wanted, is_exact)
    }

    fn origin_step(&self, step: &OriginStep, expression: &str, is_exact: bool) -> Value {
        origin::json(step, expression, is_exact)
    }

    fn gdb_value(
        &self,
        question: &GdbQuestion<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<String, String> {
        ask_gdb(question, interrupted).map_err(|failure| with_remedy(failure.as_ref()))
    }
}

/// Opens a recording twice: as a session at its end, and for questions.
fn open_recording(name: Option<&Path>) -> Result<Opened, Failure> {
    let found = NamedRecording::find(name)?;
    let dir = fs::canonicalize(found.dir())?;
    let sources = source_directories(&Reader::open(&dir)?);
    let session: Box<dyn AnySession> = match open::for_debugger(&dir)? {
        DebuggableRecording::Path(recording) => {
            Box::new(Session::new(Recorded::at_end(*recording)))
        }
        DebuggableRecording::Exact(replayed) => Box::new(Session::new(*replayed)),
    };
    let asked = ask::open_found(&found)?;
    Ok(Opened { dir, asked, session, sources, kept: Box::new(found) })
}

/// Starts a gdb on the same recording for one question, waits for its end, and returns the answer,
/// of at most [`TEXT_LIMIT`] characters. Without an answer, the error is the last line of gdb's
/// messages. Kills gdb and fails once `interrupted` returns true.
fn ask_gdb(question: &GdbQuestion<'_>, interrupted: &dyn Fn() -> bool) -> Result<String, Failure> {
    let GdbQuestion { dir, position, frame, expression } = question;
    let mut gdb = Command::new("/proc/self/exe");
    gdb.args(["replay", "--at", position]).arg(dir).args(["--", "-nx", "-batch"]);
    for setting in ["confirm off", "width 0", "height 0", "style enabled off", "print elements 200"]
    {
        gdb.args(["-ex", &format!("set {setting}")]);
    }
    // This prints nothing if the frame does not exist.
    let print = format!("frame apply level {frame} -q print {expression}");
    let commands = [print, format!("echo {END}\\n")];
    gdb.args(commands.iter().flat_map(|command| ["-ex", command]));
    gdb.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    end_with_parent(&mut gdb, OrphanEnd::Terminate);
    let child =
        gdb.spawn().map_err(|error| format!("contraflow cannot be started again: {error}"))?;
    let (answer, complaint) = output_of(child, interrupted)?;
    let lines = answer.lines().skip_while(|line| !line.starts_with(VALUE));
    let value = lines.take_while(|line| *line != END).collect::<Vec<_>>().join("\n");
    match value.strip_prefix(VALUE) {
        Some(value) => Ok(value.chars().take(TEXT_LIMIT).collect()),
        None => Err(complaint.lines().last().unwrap_or("it has no answer").to_owned().into()),
    }
}

/// Waits for the end of a process, whatever its status, and returns the text that it wrote to its
/// standard output, and to its standard error, which must be pipes. Replaces bytes that are not
/// UTF-8. Kills it and fails once `interrupted` returns true.
fn output_of(
    mut child: Child,
    interrupted: &dyn Fn() -> bool,
) -> Result<(String, String), Failure> {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // The bytes before an error count.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let output = read(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let errors = read(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    while child.try_wait()?.is_none() {
        if interrupted() {
            // It has ended already, or ends now.
            let _ = child.kill();
            let _ = child.wait();
            return Err("cancelled".into());
        }
        thread::sleep(POLL_PERIOD);
    }
    let text = |thread: thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok((text(output), text(errors)))
}
