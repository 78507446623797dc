//! `contraflow record`: runs a program under capture and passes its exit status on.

use super::arguments::RecorderDeath;
use super::open::report_faults;
use super::progress::Bar;
use super::record_keep::keep_only_failures;
use super::remedies::note_with_remedy;
use super::temporary::remove_unused_temporaries;
use super::{Failure, arguments, count_text, quoted, say};
use crate::capture::host::fallback;
use crate::capture::{
    self, Backend, Code, Filter, History, KEYFRAME_PERIOD, Outcome, RecorderEnd, Request, Schedule,
    Written, record, record_with_front,
};
use crate::common::{Pid, Tid};
use crate::recording::import::Totals;
use crate::recording::{BackendName, Exit, Manifest, Reader, Store};
use crate::timeline::{Options, Timeline};
use crate::tracee::{self, command_line, executable, process_of, process_status, resolve};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, stderr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The default size of a thread's ring, in MiB.
const DEFAULT_RING_MIB: u64 = 32;

/// Records as the arguments say. With `--on-recorder-death go-on`, this process becomes the front:
/// it only waits for its child, which records.
pub(super) fn run(arguments: arguments::Record) -> Result<ExitCode, Failure> {
    remove_unused_temporaries();
    let is_of_path = arguments.is_of_path();
    let chosen = arguments.backend.unwrap_or(arguments::Backend::Auto);
    let only_thread = arguments.tid.map(Tid);
    let attach = match only_thread {
        Some(tid) => Some(process_of(tid).ok_or_else(|| format!("there is no thread {tid}"))?),
        None => arguments.attach.map(Pid),
    };
    let (program, argv) = match (attach, arguments.command.first()) {
        (Some(pid), _) => running_program(pid)?,
        (None, Some(name)) => (resolve(name)?, arguments.command),
        (None, None) => return Err("no program given".into()),
    };
    let request = Request {
        attach,
        only_thread,
        program,
        argv,
        env: None,
        directory: None,
        aslr: arguments.aslr,
        follow_forks: arguments.follow_forks,
        history: history_to_keep(arguments.full, arguments.max_size, arguments.ring)?,
        start_at: arguments.start_at,
        filter: filter_of(arguments.filter, arguments.filter_range, arguments.stop_at)?,
        psb_period_bytes: arguments.psb_period,
        step_log: arguments.step_log,
        witness: arguments.witness,
        keep: arguments.keep,
        keyframe_period: arguments.keyframe_period.map_or(KEYFRAME_PERIOD, Duration::from_millis),
        schedule: if arguments.chaos { Schedule::Chaos } else { Schedule::InTurn },
        pt_config: arguments.pt_config.clone().unwrap_or_default(),
        output: arguments.output,
        force: arguments.force,
        report: (arguments.full && !arguments.quiet && stderr().is_terminal())
            .then_some(print_written),
        store: Store::of_user(),
    };
    let backend = if is_of_path { choose_backend(chosen, &request) } else { Backend::Exact };
    // If the CPU cannot trace, `hardware` returns the reason, which is the more useful error.
    if arguments.pt_config.is_some() && backend != Backend::Perf {
        capture::hardware(&request)?;
        return Err("--pt-config requires --backend perf".into());
    }
    if only_thread.is_some() && backend != Backend::Perf {
        capture::hardware(&request)
            .map_err(|error| format!("--tid requires --backend perf, which fails: {error}"))?;
        return Err("--tid requires --backend perf; --attach records all threads".into());
    }
    if chosen == arguments::Backend::Auto
        && backend == Backend::Soft
        && !arguments.quiet
        && let Some(line) = fallback()
    {
        say(&line);
    }
    if arguments.max_size.is_some() {
        match backend {
            Backend::Step => {
                return Err("the step backend keeps all: --max-size requires the soft one".into());
            }
            Backend::Perf => {
                let why = "the perf backend keeps all or a ring: --max-size requires soft";
                return Err(why.into());
            }
            Backend::Soft | Backend::Exact => {}
        }
    }
    if arguments.on_recorder_death == RecorderDeath::GoOn {
        if backend == Backend::Perf {
            return Err("--on-recorder-death go-on is not for the perf backend".into());
        }
        // `Some` is for the front, after the end of its child, the recorder. The child goes on.
        if let Some(end) = record_with_front()? {
            return Ok(front_exit_code(end));
        }
    }
    let mut outcome = match arguments.until_fails {
        Some(most) => until_failure(most, &request, |request| record(backend, request))?,
        None => record(backend, &request)?,
    };
    if arguments.keep_if_fails && !keep_only_failures(&mut outcome, &request.store)? {
        if !arguments.quiet {
            say(&"the program did not fail: its recording is not kept");
        }
        return Ok(exit_code(&outcome));
    }
    if backend == Backend::Perf {
        count_instructions(&mut outcome, arguments.quiet)?;
    }
    if !arguments.quiet {
        print_outcome(&outcome, &request.store, matches!(request.history, History::Ring { .. }));
    }
    Ok(exit_code(&outcome))
}

/// Records a program again and again with `record`, until a run fails or the recorder detaches from
/// it, at most `most` times. Keeps only the recordings of the last run, and returns its outcome. If
/// a run cannot be recorded, fails, and those of the run before remain.
fn until_failure<E>(
    most: NonZero<u32>,
    request: &Request,
    mut record: impl FnMut(&Request) -> Result<Outcome, E>,
) -> Result<Outcome, Failure>
where
    Failure: From<E>,
{
    let mut outcome = record(request)?;
    for number in 1..=most.get() {
        match outcome.manifest.end.as_ref().and_then(|end| end.exit) {
            Some(Exit::Code(0)) => {}
            Some(_) => {
                say(&format!("run {number} of at most {most} failed"));
                return Ok(outcome);
            }
            // The recorder detached from the program before its end.
            None => return Ok(outcome),
        }
        if number < most.get() {
            let next = record(&Request { force: true, ..request.clone() })?;
            let before = std::mem::replace(&mut outcome, next).recordings;
            // In a directory that the user named, the new recording has replaced the one before.
            let is_replaced = |old: &&PathBuf| outcome.recordings.contains(old);
            let to_remove = before.iter().filter(|old| !is_replaced(old));
            to_remove.into_iter().try_for_each(|old| request.store.remove(old))?;
        }
    }
    say(&format!("no run of {most} failed"));
    Ok(outcome)
}

/// Returns the backend that the user chose; else the stepping one for `--step-log`, perf if it can
/// serve the request here, or soft, which is not checked.
fn choose_backend(chosen: arguments::Backend, request: &Request) -> Backend {
    match chosen {
        // The log that --step-log writes is made by single steps.
        arguments::Backend::Auto if request.step_log.is_some() => Backend::Step,
        arguments::Backend::Auto => {
            if capture::hardware(request).is_ok() {
                Backend::Perf
            } else {
                Backend::Soft
            }
        }
        arguments::Backend::Perf => Backend::Perf,
        arguments::Backend::Soft => Backend::Soft,
        arguments::Backend::Step => Backend::Step,
    }
}

/// Decodes the recordings of a CPU's traces once: adds the instruction counts, which are known only
/// after decoding, to the manifests, also the one in `outcome` (that of the first recording), and
/// saves the indexes.
fn count_instructions(outcome: &mut Outcome, quiet: bool) -> Result<(), Failure> {
    for (number, dir) in outcome.recordings.iter().enumerate() {
        let mut bar = if quiet { Bar::hidden() } else { Bar::new("indexing") };
        let watch = &mut |progress| bar.show(progress);
        let timeline = Timeline::open_with_progress(Reader::open(dir)?, Options::default(), watch)?;
        drop(bar);
        let instructions = timeline.threads().map(|tid| (tid, timeline.instructions(tid)));
        let totals = Totals { instructions: instructions.collect(), times: None };
        let manifest = timeline.reader().note_totals(&totals)?;
        timeline.save_index()?;
        if number == 0 {
            outcome.manifest = manifest;
        }
    }
    Ok(())
}

/// Returns the part of the history to keep: its end (--ring, in MiB, or the default); with --full
/// all of it; with --full and --max-size (`max`, in bytes) all up to that size and then its end.
/// Fails for --full with --ring and no --max-size. Ignores `max` without `full`: clap requires
/// --full for --max-size.
fn history_to_keep(full: bool, max: Option<u64>, ring: Option<u64>) -> Result<History, Failure> {
    let ring_bytes = ring.unwrap_or(DEFAULT_RING_MIB) << 20;
    match (full, max) {
        (false, _) => Ok(History::Ring { bytes: ring_bytes }),
        (true, Some(bytes)) => Ok(History::Limited { bytes, ring_bytes }),
        (true, None) if ring.is_some() => {
            Err("--full keeps all of the history, and --ring its end: give one, or --max-size"
                .into())
        }
        (true, None) => Ok(History::Full),
    }
}

/// Prints the progress of a recording on a separate line, since the program may use the same
/// terminal.
fn print_written(written: &Written) {
    let rest = if written.is_ring { ", and only the end of the rest is kept" } else { "" };
    let seconds = written.elapsed.as_secs();
    say(&format!("{} are written after {seconds} s{rest}", size_text(written.bytes)));
}

/// Returns the program and arguments of a running process. Fails if there is none, or if this user
/// may not trace it.
pub(super) fn running_program(pid: Pid) -> Result<(PathBuf, Vec<OsString>), Failure> {
    if process_status(pid).is_none() {
        return Err(format!("there is no process {pid}").into());
    }
    let program = executable(pid).map_err(|error| match &error {
        tracee::Error::Proc { error, .. } if error.kind() == ErrorKind::PermissionDenied => {
            format!("process {pid} may not be traced by this user; run as its owner or as root")
        }
        _ => format!("process {pid}: {error}"),
    })?;
    Ok((program, command_line(pid)))
}

/// Returns the filter of --filter (`only`), --filter-range (`ranges`) and --stop-at (`stop`). Fails
/// if it has more ranges than a PT unit.
fn filter_of(only: Vec<Code>, ranges: Vec<Code>, stop: Vec<Code>) -> Result<Filter, Failure> {
    const MOST: usize = 4;
    let only = [only, ranges].concat();
    match only.len() + stop.len() {
        0..=MOST => Ok(Filter { only, stop }),
        count => Err(format!("{count} filters are given, but a PT unit has {MOST} ranges").into()),
    }
}

/// Prints the notes, the end of the run and the places of its recordings, and decodes recordings of
/// the stepping backend to check them. Prints nothing without an end.
fn print_outcome(outcome: &Outcome, store: &Store, is_ring: bool) {
    let Some(end) = &outcome.manifest.end else { return };
    for note in &outcome.notes {
        say(&note_with_remedy(note));
    }
    let how = match end.exit {
        Some(Exit::Code(code)) => format!("exited with status {code}"),
        Some(Exit::Signal(signal)) => format!("was killed by {}", signal_name(signal)),
        None => "was detached".to_owned(),
    };
    let [first, others @ ..] = outcome.recordings.as_slice() else { return };
    let program = outcome.manifest.argv.first().map_or("", String::as_str);
    let seconds = std::time::Duration::from_nanos(end.duration_ns).as_secs_f64();
    let threads = count_text(end.threads.len() as u64, "thread");
    say(&match end.log {
        Some(log) => format!(
            "{program} {how} after {seconds:.2} s: {} entries, {} ticks ({threads}, {} of log)",
            log.entries,
            log.ticks,
            size_text(log.size_bytes),
        ),
        None => format!(
            "{program} {how} after {seconds:.2} s and {} instructions ({threads}, {} of trace)",
            end.instructions,
            size_text(outcome.trace_bytes),
        ),
    });
    say(&format!("recorded in {}", first.display()));
    for other in others {
        say(&format!("a process it forked is recorded in {}", other.display()));
    }
    say(&format!("step through it with: contraflow replay{}", recording_argument(first, store)));
    if is_ring
        && end.log.is_none()
        && let Some(hint) = backtrace_hint(&outcome.manifest)
    {
        say(&hint);
    }
    // Decoding a stepped recording takes almost no time.
    if outcome.manifest.capture.backend == BackendName::Step {
        outcome.recordings.iter().for_each(|dir| check_decoding(dir));
    }
}

/// Returns a hint if a Rust program may have panicked and printed a backtrace: that is long, and
/// may fill a ring. `None` for other runs.
fn backtrace_hint(manifest: &Manifest) -> Option<&'static str> {
    const SIGABRT: i32 = 6;
    const PANICKED: i32 = 101;
    let prints = |variable: &String| {
        let value = variable.strip_prefix("RUST_BACKTRACE=");
        value.is_some_and(|value| value != "0")
    };
    let exit = manifest.end.as_ref().and_then(|end| end.exit);
    let may_have_panicked = matches!(exit, Some(Exit::Code(PANICKED) | Exit::Signal(SIGABRT)));
    let hint = "RUST_BACKTRACE is set, and a panic's backtrace takes up the end of the history: if \
                the panic itself is missing, record with --full, or with RUST_BACKTRACE=0";
    let is_hinted = may_have_panicked && manifest.env.iter().any(prints);
    (is_hinted && is_rust(&manifest.program)).then_some(hint)
}

/// Returns true if a program contains Rust's standard library, as it has the text `RUST_BACKTRACE`.
/// False if its file cannot be read.
fn is_rust(program: &str) -> bool {
    const NAME: &[u8] = b"RUST_BACKTRACE";
    let bytes = std::fs::read(program).unwrap_or_default();
    bytes.windows(NAME.len()).any(|window| window == NAME)
}

/// Returns the argument that names a recording, after a space. Empty for a recording of the store,
/// which the caller has just made the latest one: commands use that by default.
pub(super) fn recording_argument(recording: &Path, store: &Store) -> String {
    if recording.parent().is_some_and(|parent| store.is_at(parent)) {
        return String::new();
    }
    // A leading dash would be parsed as an option.
    let word = recording.as_os_str();
    let dash = word.as_encoded_bytes().starts_with(b"-");
    let word = if dash { Path::new(".").join(recording).into_os_string() } else { word.to_owned() };
    format!(" {}", quoted::for_user(&word))
}

/// Decodes the recording once, and prints messages if it differs from the executed instructions, or
/// cannot be decoded.
fn check_decoding(dir: &Path) {
    let opened = Reader::open(dir).map_err(Failure::from);
    match opened.and_then(|reader| Ok(Timeline::open(reader, Options::default())?)) {
        Ok(timeline) => report_faults(&timeline),
        Err(error) => say(&format!("{}: cannot be decoded: {error}", dir.display())),
    }
}

/// Returns the exit code of the front process, by the end of its child, the recorder. Prints a
/// message if a signal killed the recorder.
fn front_exit_code(end: RecorderEnd) -> ExitCode {
    match end {
        RecorderEnd::Exited(status) => ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)),
        RecorderEnd::Killed(signal) => {
            let name = signal_name(signal);
            say(&format!("the recorder was killed by {name}, and the program with it"));
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    }
}

/// Returns the program's exit code; 128 plus the signal number, as in shells; 0 if the recorder
/// detached from it.
fn exit_code(outcome: &Outcome) -> ExitCode {
    match outcome.manifest.end.as_ref().and_then(|end| end.exit) {
        Some(Exit::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Some(Exit::Signal(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        None => ExitCode::SUCCESS,
    }
}

/// Returns a signal's name, such as `SIGSEGV`; `signal N` for one without a name, such as a
/// real-time signal.
pub(super) fn signal_name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// Returns a size as text, in powers of 1000 with one decimal, such as `1.5 MB`; below 1000, such
/// as `999 bytes`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return count_text(bytes, "byte");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 999.5
        && let Some(larger) = units.next()
    {
        value /= 1000.0;
        unit = Some(larger);
    }
    format!("{value:.1} {}", unit.unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_its_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1500, "1.5 kB"),
            (999_960, "1.0 MB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
