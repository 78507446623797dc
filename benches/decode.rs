//! How fast traces are decoded: listed item by item, counted, and indexed, beside libipt's block
//! decoder on the same trace and code. Prints a table; measures, and asserts only that all agree.
//!
//! Traces are those of real programs, recorded and repeated: what a long run of the same code would
//! give. `cargo bench --bench decode`, with names of traces behind `--` for those alone. Needs gcc;
//! libipt-dev for the peer.

use contraflow::common::{Tid, Tsc};
use contraflow::flow::{Code, Config, Decoder, ExecutedCode, FlowItem, Span};
use contraflow::image::{CodeSource, Image};
use contraflow::recording::{Manifest, Reader, Writer};
use contraflow::sideband::Record;
use contraflow::timeline::{Options, Timeline};
use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A trace grows to at least so many MiB by repetition, or to what the environment's `TRACE_MIB` says.
const TRACE_MIB: usize = 16;

fn trace_bytes() -> usize {
    let wanted = std::env::var("TRACE_MIB").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(TRACE_MIB) << 20
}

/// A recorded program, its trace repeated.
struct Subject {
    name: String,
    timeline: Timeline,
    tid: Tid,
    trace: Vec<u8>,
}

impl Subject {
    fn record(dir: &Path, name: &str, command: &[&str]) -> Self {
        let recording = dir.join(name);
        let status = Command::new(env!("CARGO_BIN_EXE_contraflow"))
            .env("CONTRAFLOW_HOME", dir)
            .args(["record", "-q", "--path", "-o"])
            .arg(&recording)
            .args(command)
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("contraflow runs").success(), "{name} does not record");
        let reader = Reader::open(&recording).expect("a recording");
        let timeline = Timeline::open(reader, Options::default()).expect("a timeline");
        let tid = timeline.threads().next().expect("a thread");
        let once = timeline.trace(tid).expect("a trace").as_ref().to_vec();
        let trace = once.repeat(trace_bytes().div_ceil(once.len()));
        Self { name: name.to_owned(), timeline, tid, trace }
    }

    /// The code at the run's end, which nothing before it contradicts in these programs.
    fn image(&self) -> &Image {
        self.timeline.images().last().expect("an image")
    }

    /// A recording of the repeated trace.
    fn repeated(&self, dir: &Path) -> PathBuf {
        let reader = self.timeline.reader();
        let dir = dir.join(format!("{}-repeated", self.name));
        let mut manifest: Manifest = reader.manifest().clone();
        let mut writer = Writer::create(&dir, &manifest).expect("a recording");
        // All at the start: a long run loads its code once, and not in each repetition.
        for record in self.timeline.records() {
            let record = Record { tsc: Tsc(0), ..record.clone() };
            writer.sideband(&record).expect("a sideband");
        }
        for image in fs::read_dir(reader.dir().join("images")).expect("images") {
            let mut image = std::fs::File::open(image.expect("an image").path()).expect("an image");
            writer.image_from_file(&mut image).expect("an image");
        }
        writer.trace(self.tid, &self.trace).expect("a trace");
        if let Some(end) = &mut manifest.end {
            end.threads.retain(|thread| thread.tid == self.tid);
            end.threads[0].trace_bytes = self.trace.len() as u64;
        }
        writer.finish(&manifest).expect("a recording")
    }
}

/// A way of decoding: what it counted, and how long it took.
struct Run {
    what: &'static str,
    insns: u64,
    seconds: f64,
}

/// On one core CPU time counts, as it does in the driver of libipt: the machine may be shared.
fn on_one_core(what: &'static str, decode: impl FnOnce() -> u64) -> Run {
    let start = cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let insns = decode();
    let spent = cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID).saturating_sub(start);
    Run { what, insns, seconds: spent.as_secs_f64() }
}

/// On two cores, the wall clock; and what it would be if nothing else ran on them: half of the CPU
/// time of all threads, or that of the thread which joins what the others decoded, if it is more.
fn on_two_cores(decode: impl FnOnce() -> u64) -> [Run; 2] {
    let clocks = [ClockId::CLOCK_PROCESS_CPUTIME_ID, ClockId::CLOCK_THREAD_CPUTIME_ID];
    let (wall, start) = (Instant::now(), clocks.map(cpu_time));
    let insns = decode();
    let (wall, end) = (wall.elapsed(), clocks.map(cpu_time));
    let [all, joining] = [0, 1].map(|clock: usize| end[clock].saturating_sub(start[clock]));
    [("index, 2 cores", wall), ("  were they free", joining.max(all / 2))]
        .map(|(what, spent)| Run { what, insns, seconds: spent.as_secs_f64() })
}

fn cpu_time(clock: ClockId) -> Duration {
    clock_gettime(clock).expect("a clock").into()
}

fn list(subject: &Subject) -> u64 {
    let mut code = Code::new(subject.image());
    let mut decoder = Decoder::new(&subject.trace, Config::default());
    let mut insns = 0;
    let mut show = |spans: &[Span]| {
        insns += spans.iter().map(|span| u64::from(span.insns)).sum::<u64>();
    };
    while let Some(item) = decoder.list_spans(&mut code, &mut show) {
        if let FlowItem::Gap(gap) = item {
            panic!("{gap}");
        }
    }
    insns
}

fn count(subject: &Subject) -> u64 {
    let mut code = Code::new(subject.image());
    let mut decoder = Decoder::new(&subject.trace, Config::default());
    let mut executed = ExecutedCode::new();
    while decoder.collect_code(&mut code, &mut executed).is_some() {}
    executed.insns
}

fn index(recording: &Path, workers: usize) -> u64 {
    let reader = Reader::open(recording).expect("a recording");
    let options = Options { workers, ..Options::default() };
    Timeline::open(reader, options).expect("a timeline").total()
}

/// libipt's block decoder on the same bytes; none where it is not installed.
fn libipt(subject: &Subject, dir: &Path) -> Option<Run> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let driver = dir.join("libipt");
    let mut gcc = Command::new("gcc");
    gcc.arg("-O2").arg("-o").arg(&driver).arg(root.join("src/flow/tests/libipt.c")).arg("-lipt");
    if !gcc.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: gcc or libipt-dev is not installed; nothing to compare with");
        return None;
    }
    let trace = dir.join("trace");
    fs::write(&trace, &subject.trace).expect("a trace");
    let mut command = Command::new(&driver);
    command.arg("count").arg(&trace);
    for section in subject.image().sections().filter(|section| section.executable) {
        let mut bytes = vec![0; usize::try_from(section.range.size_bytes()).expect("a size")];
        let known = subject.image().read(section.range.start, &mut bytes);
        let path = dir.join(format!("{:x}", section.range.start));
        fs::write(&path, &bytes[..known]).expect("code");
        command.arg(format!("{:x}", section.range.start)).arg(path);
    }
    let output = command.output().expect("the driver runs");
    let said = String::from_utf8(output.stdout).expect("text");
    let after = |word: &str| said.split_once(word)?.1.split_whitespace().next();
    let insns = after("instructions ")?.parse().ok()?;
    Some(Run { what: "libipt block", insns, seconds: after("seconds ")?.parse().ok()? })
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn row(subject: &Subject, run: &Run, peer: Option<&Run>) {
    let (insns, bytes) = (run.insns as f64, subject.trace.len() as f64);
    let ratio = peer.map_or_else(String::new, |peer| format!("{:.1}x", peer.seconds / run.seconds));
    println!(
        "{:<8} {:>6.1} {:>7.1} {:<16} {:>7.3} {:>8.0} {:>7}",
        subject.name,
        bytes / 1e6,
        insns / 1e6,
        run.what,
        run.seconds * 1e9 / insns,
        bytes / 1e6 / run.seconds,
        ratio
    );
}

fn compiled(dir: &Path, name: &str) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("benches/programs/{name}.c"));
    let program = dir.join(format!("{name}.bin"));
    let gcc = Command::new("gcc").arg("-O2").arg("-o").arg(&program).arg(source).status();
    gcc.is_ok_and(|status| status.success()).then(|| program.to_string_lossy().into_owned())
}

/// Whether to measure a trace: one that is named on the command line, or any where none is.
fn is_wanted(name: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|arg| arg == name)
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dir = dir.path();
    println!(
        "{:<8} {:>6} {:>7} {:<16} {:>7} {:>8} {:>7}",
        "trace", "MB", "Minsns", "decoder", "ns/insn", "MB/s", "libipt/"
    );
    let mut subjects = Vec::new();
    if is_wanted("ls") {
        subjects.push(Subject::record(dir, "ls", &["/bin/ls", "-l", "/etc/passwd"]));
    }
    if is_wanted("gzip") && Path::new("/bin/gzip").exists() {
        subjects.push(Subject::record(dir, "gzip", &["/bin/gzip", "-c", "/etc/services"]));
    }
    for name in ["fib", "sort", "dispatch"].into_iter().filter(|name| is_wanted(name)) {
        let program = compiled(dir, name);
        subjects.extend(program.map(|program| Subject::record(dir, name, &[&program])));
    }
    for subject in &subjects {
        let recording = subject.repeated(dir);
        let peer = libipt(subject, dir);
        let mut runs = vec![
            on_one_core("list", || list(subject)),
            on_one_core("count", || count(subject)),
            on_one_core("index, 1 core", || index(&recording, 1)),
        ];
        runs.extend(on_two_cores(|| index(&recording, 2)));
        for run in &runs {
            row(subject, run, peer.as_ref());
            assert_eq!(run.insns, runs[0].insns, "{} and list differ", run.what);
        }
        if let Some(peer) = &peer {
            row(subject, peer, None);
            assert_eq!(peer.insns, runs[0].insns, "libipt and list differ");
        }
    }
}
