//! The command line; `dump` and raw traces have separate files.

use super::ask_arguments::{
    Calls, Coverage, Diff, ExportCalls, ExportParquet, Hits, Origin, Profile,
};
use super::dump_arguments::Dump;
use super::raw_arguments::{Filter, Raw};
pub(super) use super::replay_arguments::Replay;
pub(super) use super::serve_arguments::{OnDisconnect, Serve};
use crate::capture::{Code, PtConfig};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

/// Record a run of a program once, then step through it in both directions in gdb.
#[derive(Debug, Parser)]
#[command(name = "contraflow", version)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a program and record its history
    Record(Record),
    /// Import a trace of a CPU's PT unit: perf.data, an LLDB trace bundle, or a raw trace
    Import(Import),
    /// Export a recording to the format of another tool
    Export(Export),
    /// Step through a recording in gdb, or serve it to another debugger
    Replay(Replay),
    /// Run a program under a debugger that can go back from any stop
    Serve(Serve),
    /// Speak the Debug Adapter Protocol to an IDE
    Dap(Dap),
    /// Speak the Model Context Protocol to an agent or another program, on standard input and
    /// output
    Mcp,
    /// Show what this machine can use to record, and what is missing
    Doctor(Doctor),
    /// Write what a running recorder has in its rings, without ending the program
    Snapshot(Snapshot),
    /// Replay an exact recording to its end, and say whether that is the recorded run
    Check(Recording),
    /// Show the contents of a recording
    Info(Recording),
    /// Print a trace's packets, events, blocks, instructions, calls, statistics or sideband, or the
    /// log of an exact recording
    Dump(Dump),
    /// Print every call of a function, or all calls, with arguments, results and durations
    Calls(Calls),
    /// Print every execution of a line or function, with the values of expressions
    Hits(Hits),
    /// Print where a value came from: from copy to copy backwards, to what computed or read it
    Origin(Origin),
    /// Print where two runs of a program part, by which values, and where they meet again
    Diff(Diff),
    /// Print the instructions of each function or line of a run, all of them counted
    Profile(Profile),
    /// Write the lines, functions and branches that a run executed as a tracefile of lcov
    Coverage(Coverage),
    /// Build the index of a recording and save it there, so that the recording opens faster
    Index(Index),
    /// Print the script for gdb, with the cf- commands
    Gdbinit,
    /// Print the script for LLDB, with the cf- commands
    Lldbinit,
    /// List the recordings
    List,
    /// Pack a recording into one file, for another machine: `contraflow replay FILE` there
    Pack(Pack),
    /// Make a recording of a packed one
    Unpack(Unpack),
    /// Remove recordings
    Rm(Remove),
    /// Print a shell's completions: contraflow completions bash >
    /// ~/.local/share/bash-completion/completions/contraflow
    Completions(Completions),
    /// Write the manual pages to a directory: contraflow.1 and one for each command
    Man(Man),
}

#[derive(Debug, Args)]
pub(super) struct Dap {
    /// Wait for clients at :PORT (loopback, this user only), HOST:PORT or unix:PATH, instead of
    /// standard input and output. Each client has a separate session
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell that is to complete commands of contraflow
    pub(super) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// The directory, which is created if it does not exist
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
}

/// The IDs of the options that are only for recordings of the path.
const OF_PATHS: [&str; 11] = [
    "path",
    "full",
    "max_size",
    "ring",
    "filter",
    "filter_range",
    "stop_at",
    "tid",
    "backend",
    "pt_config",
    "step_log",
];

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct Record {
    /// Write the recording to this directory, which must be new or empty, instead of a new one in
    /// ~/.local/share/contraflow
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Replace a recording in DIR; other files there are never touched
    #[arg(long, requires = "output")]
    pub(super) force: bool,
    /// Keep the whole history on disk, instead of its end
    #[arg(long)]
    pub(super) full: bool,
    /// Keep the whole history up to this size of the recording, such as 500M or 2G, then only its
    /// end, as with --ring
    #[arg(long, visible_alias = "size-limit", value_name = "SIZE", requires = "full", value_parser = byte_count)]
    pub(super) max_size: Option<u64>,
    /// Record exactly: everything that decides how the run goes, so that `replay` shows every
    /// register and all memory at every place, in both directions. Threads take turns. This is the
    /// default, unless an option of recordings of the path is given
    #[arg(long, conflicts_with_all = OF_PATHS)]
    pub(super) exact: bool,
    /// Record the path: every instruction of the history, without values before its end. Threads
    /// run freely, and the CPU's own PT is used where there is one. Implied by the options that say
    /// how much of the path is kept, and how (--full, --ring, --filter, --backend ...)
    #[arg(long)]
    pub(super) path: bool,
    /// Record exactly, and run the threads in unusual orders, to find bugs that depend on them
    #[arg(long, conflicts_with_all = OF_PATHS)]
    pub(super) chaos: bool,
    /// Keep at least the last TIME of the run, such as 90s, 10m or 2h, and drop what is older, so
    /// that a server can be recorded for weeks
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = OF_PATHS)]
    pub(super) keep: Option<Duration>,
    /// Run the program up to N times, until it fails (a status other than 0, or a signal); the last
    /// recording is kept
    #[arg(long, value_name = "N", conflicts_with_all = ["attach", "tid", "on_recorder_death"])]
    pub(super) until_fails: Option<NonZero<u32>>,
    /// Keep the recording only if the program fails (a status other than 0, or a signal); with
    /// --follow-forks, the recordings of the processes that fail
    #[arg(long, conflicts_with_all = ["attach", "tid", "on_recorder_death"])]
    pub(super) keep_if_fails: bool,
    /// Keep the end of the history: the last MIB MiB of records of each thread, in memory during
    /// the run (a record has 4 bytes and covers some 5 to 30 instructions) [default: 32]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(super) ring: Option<u64>,
    /// Trace only the function FUNC, without the functions that it calls. Repeat for more;
    /// FUNC@FILE names a function of one program or library
    #[arg(long, value_name = "FUNC", value_parser = function)]
    pub(super) filter: Vec<Code>,
    /// Trace only the code from address A to address B (hexadecimal, both included)
    #[arg(long, value_name = "A-B", value_parser = range)]
    pub(super) filter_range: Vec<Code>,
    /// Start recording when the program reaches the function FUNC; it runs natively until then
    #[arg(long, value_name = "FUNC", value_parser = function, conflicts_with = "attach")]
    pub(super) start_at: Option<Code>,
    /// End a thread's trace when it reaches the function FUNC; the thread continues
    #[arg(long, value_name = "FUNC", value_parser = function)]
    pub(super) stop_at: Vec<Code>,
    /// Record the running process PID until it ends or until Ctrl-C, after which it continues
    /// without the recorder
    #[arg(short = 'p', long, value_name = "PID", conflicts_with_all = ["command", "aslr"], value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) attach: Option<i32>,
    /// Record only the thread TID of a running process, until it ends or until Ctrl-C (for
    /// --backend perf)
    #[arg(short = 't', long, value_name = "TID", conflicts_with_all = ["command", "aslr", "attach", "start_at", "follow_forks"], value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) tid: Option<i32>,
    /// The method of capturing the control flow
    #[arg(long, value_enum)]
    pub(super) backend: Option<Backend>,
    /// Terms for the CPU's PT unit in perf's syntax, such as cyc,ptw, in addition to branches and
    /// times (for --backend perf)
    #[arg(long, value_name = "TERMS", value_parser = str::parse::<PtConfig>)]
    pub(super) pt_config: Option<PtConfig>,
    /// Keep address space randomization on
    #[arg(long)]
    pub(super) aslr: bool,
    /// Record the processes that the program forks, too, each as a separate recording
    #[arg(long)]
    pub(super) follow_forks: bool,
    /// The fate of the program when the recorder is killed (SIGKILL)
    #[arg(long, value_enum, default_value_t = RecorderDeath::Kill, value_name = "WHAT")]
    pub(super) on_recorder_death: RecorderDeath,
    /// Bytes of trace between two points where decoding can start: a power of two from 2048 to
    /// 67108864
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = psb_period)]
    pub(super) psb_period: u32,
    /// Write each thread's instruction addresses, 8 bytes each, to DIR (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub(super) step_log: Option<PathBuf>,
    /// Write registers and memory at random moments of an exact recording to FILE (for tests)
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = OF_PATHS)]
    pub(super) witness: Option<PathBuf>,
    /// Store the state of an exact recording this often, in milliseconds (for tests)
    #[arg(long, value_name = "MS", hide = true, conflicts_with_all = OF_PATHS)]
    pub(super) keyframe_period: Option<u64>,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// The program and its arguments
    #[arg(required_unless_present_any = ["attach", "tid"], trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<OsString>,
}

impl Record {
    /// Returns true if one of [`OF_PATHS`] is given, so that the recording is of the path, not
    /// exact. `max_size` needs no check: clap requires `full` for it.
    pub(super) fn is_of_path(&self) -> bool {
        let keeps = self.path || self.full || self.ring.is_some() || self.step_log.is_some();
        let code = [&self.filter, &self.filter_range, &self.stop_at];
        let traces = code.iter().any(|code| !code.is_empty());
        keeps || traces || self.tid.is_some() || self.backend.is_some() || self.pt_config.is_some()
    }
}

/// Parses `FUNC` or `FUNC@FILE`. Fails if a part is empty. Does not check that the function exists.
fn function(text: &str) -> Result<Code, String> {
    // Versioned symbols contain an @, and operators are not files.
    match text.split_once('@') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(Code::FunctionOf(name.to_owned(), file.to_owned()))
        }
        None if !text.is_empty() => Ok(Code::Function(text.to_owned())),
        _ => Err("give a function, or FUNCTION@FILE".to_owned()),
    }
}

/// Parses a whole number of seconds, or one with a unit: ms, s, m, h, d. Fails for 0.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit_ms = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let milliseconds = unit_ms.zip(digits.parse::<u64>().ok());
    milliseconds
        .and_then(|(unit_ms, number)| number.checked_mul(unit_ms))
        .filter(|milliseconds| *milliseconds > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| "give a time, or with the unit ms, s, m, h or d, such as 10m".to_owned())
}

/// Parses a whole number of bytes, or one with a unit of perf's `--max-size`: B, K, M, G, T, in
/// powers of 1024. Fails for 0.
fn byte_count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" | "B" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    let bytes = shift.zip(digits.parse::<u64>().ok());
    bytes
        .and_then(|(shift, number)| number.checked_mul(1 << shift))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "give a size in bytes, or with the unit K, M, G or T, such as 2G".to_owned())
}

/// Parses `A-B`, a range of code addresses in hexadecimal, both included. Fails if A is after B.
fn range(text: &str) -> Result<Code, String> {
    text.parse::<Filter>().map(|Filter(range)| Code::Range(range))
}

/// Parses a number of bytes: a period that `IA32_RTIT_CTL.PSBFreq` supports (SDM, "`IA32_RTIT_CTL`
/// MSR").
fn psb_period(text: &str) -> Result<u32, String> {
    let allowed = |bytes: &u32| bytes.is_power_of_two() && (1 << 11..=1 << 26).contains(bytes);
    text.parse().ok().filter(allowed).ok_or_else(|| {
        "give a power of two from 2048 to 67108864, such as 2048, 4096 or 65536".to_owned()
    })
}

/// The fate of the program when its recorder is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RecorderDeath {
    /// The program is killed, too
    Kill,
    /// The program continues without the recorder
    GoOn,
}

/// A method of capturing the control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// The fastest that this machine supports
    Auto,
    /// The CPU's own PT unit, through Linux perf: native speed
    Perf,
    /// Translation of the program's code as it runs: software PT, near native speed
    Soft,
    /// Single-stepping: some 40 thousand instructions per second
    Step,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// The output of `perf record -e intel_pt//u`, or an LLDB trace bundle (`thread trace save`):
    /// its trace.json, or its directory
    #[arg(required_unless_present = "pt", conflicts_with = "pt", value_name = "TRACE")]
    pub(super) trace: Option<PathBuf>,
    /// For perf.data: the process, if there are several
    #[arg(long, value_name = "PID", conflicts_with = "pt", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) pid: Option<i32>,
    /// For perf.data: a directory with the programs and libraries that ran, by their paths
    #[arg(long, value_name = "DIR", conflicts_with = "pt")]
    pub(super) symfs: Option<PathBuf>,
    /// For perf.data: the vdso that ran
    #[arg(long, value_name = "FILE", conflicts_with = "pt")]
    pub(super) vdso: Option<PathBuf>,
    /// For perf.data: accept programs and libraries whose build IDs or contents differ from those
    /// that ran
    #[arg(long, conflicts_with = "pt")]
    pub(super) any_binary: bool,
    #[command(flatten)]
    pub(super) raw: Raw,
    /// Write the recording to this directory instead of a new one in ~/.local/share/contraflow
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Replace a recording in DIR
    #[arg(long, requires = "output")]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print JSON, including the facts that led to each finding
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(subcommand)]
    pub(super) to: ExportTo,
}

#[derive(Debug, Subcommand)]
pub(super) enum ExportTo {
    /// A perf.data file, for `perf script`, `perf report` and the tools built on perf; the code
    /// goes to FILE.symfs, for perf's --symfs
    Perf(ExportPerf),
    /// A trace of Perfetto (ui.perfetto.dev): the calls of each thread, with their positions. One
    /// instruction is a nanosecond
    Perfetto(ExportCalls),
    /// The JSON of Chrome's tracing, for viewers that read that
    Chrome(ExportCalls),
    /// A file of speedscope (speedscope.app)
    Speedscope(ExportCalls),
    /// A dataset of Parquet tables, partitioned by run and thread, for Spark, Trino and other
    /// engines: runs, threads, calls, system calls, signals, executed lines, hits
    Parquet(ExportParquet),
    /// A profile for pprof: the instructions of each stack of calls
    Pprof(ExportCalls),
}

#[derive(Debug, Args)]
pub(super) struct ExportPerf {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub(super) output: PathBuf,
    /// Replace FILE, and FILE.symfs if an export created it
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Pack {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// The file to write [default: the recording's name, with .cfpack, in the working directory]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Include the source files of this machine that the debug information names; gdb shows them
    /// wherever the recording is replayed
    #[arg(long)]
    pub(super) sources: bool,
    /// Replace FILE
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Unpack {
    /// A packed recording
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Unpack into this directory, which must be new or empty, instead of a new one in
    /// ~/.local/share/contraflow
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Replace a recording in DIR
    #[arg(long, requires = "output")]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct Snapshot {
    /// A recording's directory or name; if not given, the latest in the store that is still being
    /// recorded
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// Seconds to wait for the recorder
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) timeout: u64,
}

#[derive(Debug, Args)]
pub(super) struct Recording {
    /// A recording's directory or name; the latest if not given
    pub(super) recording: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Index {
    /// A recording's directory or name; the latest if not given
    pub(super) recording: Option<PathBuf>,
    /// Rebuild a saved index
    #[arg(long)]
    pub(super) force: bool,
    /// Number of decoding threads; one per core if not given
    #[arg(short, long, value_name = "N")]
    pub(super) jobs: Option<NonZero<usize>>,
}

#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Directories or names of recordings
    #[arg(required = true)]
    pub(super) recordings: Vec<PathBuf>,
}
