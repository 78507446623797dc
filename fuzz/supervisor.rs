//! Starts workers with their limits, and tells how they died: of a panic, a hang, too much memory
//! or a stack that ran over. Feeds nothing itself.

use crate::targets::Target;
use crate::worker::HANGS;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The exit status of a Rust program that panicked.
const PANICS: i32 = 101;
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Runs a worker for each of some targets, so many at a time. True if all of them end well.
pub(crate) fn supervise(targets: &[&'static Target], jobs: usize, arguments: &[String]) -> bool {
    let (next, faults) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let fine = work(target, arguments).unwrap_or_else(|error| {
                        eprintln!("{}: cannot run: {error}", target.name);
                        false
                    });
                    faults.fetch_add(usize::from(!fine), Ordering::SeqCst);
                }
            });
        }
    });
    faults.into_inner() == 0
}

/// Runs a worker to its end; false if it died of an input.
fn work(target: &Target, arguments: &[String]) -> io::Result<bool> {
    let dir = Place::new(target)?;
    // The shell can limit memory, and the standard library cannot. No core of it is wanted either.
    let mut worker = Command::new("sh");
    worker.arg("-c").arg("ulimit -c 0; ulimit -v \"$1\" && shift && exec \"$@\"").arg("sh");
    worker.arg((target.memory_limit_mib << 10).to_string()).arg(std::env::current_exe()?);
    worker.arg("--worker").arg(&dir.0).arg(target.name).args(arguments);
    // To print one, a panic reads symbols of a size beyond the limits of an input.
    worker.env("RUST_BACKTRACE", "0");
    let status = worker.status()?;
    if status.success() {
        return Ok(true);
    }
    let how = how(status, target);
    match dir.current() {
        Ok(input) => report(target, &how, &input)?,
        // It died before the first input, or could not be started.
        Err(_) => eprintln!("{}: {how}, of no input", target.name),
    }
    Ok(false)
}

fn how(status: ExitStatus, target: &Target) -> String {
    let Target { time_limit, memory_limit_mib, .. } = target;
    match (status.code(), status.signal()) {
        (Some(PANICS), _) => "panics".to_owned(),
        (Some(HANGS), _) => format!("takes more than {time_limit:?}"),
        (_, Some(SIGABRT)) => format!("aborts; it may have {memory_limit_mib} MiB of memory"),
        (_, Some(SIGSEGV)) => "faults: its stack may have run over".to_owned(),
        _ => format!("ends with {status}"),
    }
}

fn report(target: &Target, how: &str, input: &[u8]) -> io::Result<()> {
    let name = target.name;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/artifacts");
    fs::create_dir_all(&dir)?;
    let file = format!("{name}-{:016x}", crate::traits::hash(input));
    fs::write(dir.join(&file), input)?;
    eprintln!("{name}: {how} on fuzz/artifacts/{file} ({} bytes). To run it again:", input.len());
    eprintln!("    cargo test --test fuzz -- {name} fuzz/artifacts/{file}");
    Ok(())
}

/// A worker's directory, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(target: &Target) -> io::Result<Self> {
        let name = format!("contraflow-fuzz-{}-{}", target.name, std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    /// The input that was being fed.
    fn current(&self) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(self.0.join("current"))?;
        let (size, _) = bytes.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        let size = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(0);
        bytes.drain(..8);
        bytes.truncate(size);
        Ok(bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is in a directory for what nobody needs any more.
        let _ = fs::remove_dir_all(&self.0);
    }
}
