//! The manifest: the program, the machine, the capture, and the ending.

use super::backend::BackendName;
use super::format::FORMAT_VERSION;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::pt::{ClockConfig, CrystalRatio};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The contents of `manifest.json`, and of `starting.json` without `end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The writer's [`FORMAT_VERSION`].
    pub format: u32,
    /// The version of the contraflow that wrote it, such as `1.2.3`.
    pub written_by: String,
    /// The program's absolute path.
    pub program: String,
    /// The arguments, including the program's name. Bytes that are not UTF-8 are written as `\xNN`.
    pub argv: Vec<String>,
    /// The environment, `NAME=value`, with other bytes escaped like those of the arguments.
    pub env: Vec<String>,
    /// The working directory.
    pub cwd: String,
    /// The ID of the first process.
    pub pid: Pid,
    /// The start of the run, in nanoseconds since 1970; 0 if unknown.
    pub started_unix_ns: u64,
    /// The CPU of the run.
    pub cpu: HostCpu,
    /// The extensions of the instruction set that an exact recording may have used, by the names
    /// that compilers use; empty in other recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// The settings of the capture.
    pub capture: Capture,
    /// The results of the run; absent during the run, or if the recorder was killed.
    pub end: Option<End>,
}

impl Manifest {
    /// Returns the format version and the program version, such as `1.2.3`, that this library
    /// writes in manifests: the values of `format` and `written_by`.
    pub fn versions() -> (u32, String) {
        (FORMAT_VERSION, env!("CARGO_PKG_VERSION").to_owned())
    }
}

/// The identification of a CPU by CPUID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCpu {
    /// The vendor string, e.g. `GenuineIntel`; empty if the CPU is unknown.
    pub vendor: String,
    /// The display family.
    pub family: u32,
    /// The display model.
    pub model: u32,
    /// The stepping.
    pub stepping: u32,
}

impl fmt::Display for HostCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.vendor.is_empty() {
            return f.write_str("unknown");
        }
        write!(f, "{} {}/{}/{}", self.vendor, self.family, self.model, self.stepping)
    }
}

/// The settings of the capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The backend that made the recording.
    pub backend: BackendName,
    /// Bytes of trace between PSB packets; 0 if unknown.
    pub psb_period_bytes: u64,
    /// True if address space randomization was left on.
    pub aslr: bool,
    /// The traced code, as the user requested it; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// The requested amount of history, as a text; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub history: String,
    /// The source and settings of a trace that another tool took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
    /// The settings of a trace that contraflow took with the CPU's PT unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

impl Capture {
    /// Returns true if a CPU's PT unit wrote the trace, here or for another tool.
    pub fn is_of_cpu(&self) -> bool {
        self.import.is_some() || self.hardware.is_some()
    }

    /// Returns the known settings of the trace's clocks, by `hardware` if there is one, else by
    /// `import`; `None` if nothing is known.
    pub fn clocks(&self) -> Option<ClockConfig> {
        let clocks = self.hardware.as_ref().map(Hardware::clocks);
        clocks.unwrap_or_else(|| self.import.as_ref().and_then(Import::clocks))
    }

    /// Returns the IP filter ranges of the CPU's PT unit; empty for all code, and if no PT unit
    /// wrote the trace.
    pub fn ranges(&self) -> &[AddrRange] {
        let of_import = self.import.as_ref().map(|import| &import.filter);
        let ranges = self.hardware.as_ref().map(|hardware| &hardware.filter).or(of_import);
        ranges.map_or(&[], Vec::as_slice)
    }
}

/// The settings of a trace by the PT unit of the CPU that ran the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// `perf_event_attr.config`: the request in the fields of `IA32_RTIT_CTL`.
    pub config: u64,
    /// The IP filter ranges; empty for all code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<AddrRange>,
    /// `MTCFreq` of `IA32_RTIT_CTL`, if there are MTC packets.
    pub mtc_freq: Option<u8>,
    /// CPUID leaf 15H, EBX and EAX.
    pub cpuid_15: Option<(u32, u32)>,
    /// The CPU's nominal frequency, in units of 100 MHz.
    pub nominal_ratio: Option<u8>,
}

impl Hardware {
    fn clocks(&self) -> Option<ClockConfig> {
        clocks(self.mtc_freq, self.cpuid_15, self.nominal_ratio)
    }
}

fn clocks(
    mtc_freq: Option<u8>,
    cpuid_15: Option<(u32, u32)>,
    nominal_ratio: Option<u8>,
) -> Option<ClockConfig> {
    let known = mtc_freq.is_some() || cpuid_15.is_some() || nominal_ratio.is_some();
    known.then(|| ClockConfig {
        crystal_ratio: cpuid_15.and_then(|(ebx, eax)| CrystalRatio { ebx, eax }.usable()),
        mtc_freq,
        nominal_ratio,
    })
}

/// The source and settings of a trace that another tool took with a CPU's PT unit. The manifest's
/// CPU is the traced one, with an empty vendor if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// The kind of source: `perf.data`, `LLDB trace bundle` or `raw trace`.
    pub kind: String,
    /// The path of the imported file.
    pub source: String,
    /// The IP filter ranges; empty for all code.
    pub filter: Vec<AddrRange>,
    /// `MTCFreq` of `IA32_RTIT_CTL`, if known.
    pub mtc_freq: Option<u8>,
    /// CPUID leaf 15H, EBX and EAX.
    pub cpuid_15: Option<(u32, u32)>,
    /// The CPU's nominal frequency, in units of 100 MHz, if known.
    pub nominal_ratio: Option<u8>,
    /// The threads that the traces of CPUs can contain; `None` for any thread.
    #[serde(default)]
    pub traced: Option<Vec<Tid>>,
}

impl Import {
    /// Returns the known settings of the trace's clocks; `None` if nothing is known.
    pub fn clocks(&self) -> Option<ClockConfig> {
        clocks(self.mtc_freq, self.cpuid_15, self.nominal_ratio)
    }
}

/// The results of a run, which are only known at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The ending of the program; `None` if it was detached before, or is unknown.
    pub exit: Option<Exit>,
    /// The duration of the run in wall-clock time, in nanoseconds; 0 if unknown.
    pub duration_ns: u64,
    /// The number of instructions executed by all threads; 0 if unknown.
    pub instructions: u64,
    /// The conversion from TSC values to time.
    pub clock: TscClock,
    /// The threads, in order of creation.
    pub threads: Vec<ThreadEntry>,
    /// The traced CPUs, if the traces are of CPUs and not of threads. The sideband then has the
    /// context switches that assign the traces to threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuEntry>,
    /// The totals of the log, in an exact recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogTotals>,
    /// The nanoseconds from the recording's start to the moment at which it reached its size limit;
    /// `None` if it did not. From then on, only the end of the trace is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_since_ns: Option<u64>,
}

/// The totals of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTotals {
    /// The number of entries.
    pub entries: u64,
    /// The ticks of all threads.
    pub ticks: u64,
    /// The size of the log in bytes.
    pub size_bytes: u64,
}

impl LogTotals {
    /// Adds entries with this number of ticks in all, up to the maximum. The size stays.
    pub(super) fn add(&mut self, entries: u64, ticks: u64) {
        self.entries += entries;
        self.ticks = self.ticks.saturating_add(ticks);
    }
}

/// A CPU of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuEntry {
    /// The CPU's number.
    pub cpu: u32,
    /// Size of the trace in bytes.
    pub trace_bytes: u64,
}

/// The ending of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// An exit with this status.
    Code(i32),
    /// A death by this signal.
    Signal(i32),
}

/// A thread of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// The thread's ID.
    pub tid: Tid,
    /// The process ID.
    pub pid: Pid,
    /// The thread's name at its end.
    pub name: String,
    /// Size of the trace in bytes.
    pub trace_bytes: u64,
    /// The number of executed instructions; 0 if unknown.
    pub instructions: u64,
    /// The address of the instruction that the thread would have executed next, if known.
    pub final_pc: Option<Addr>,
}

/// A linear mapping from the TSC to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TscClock {
    /// The TSC at the start of the run.
    pub start: Tsc,
    /// TSC ticks per second; 0 if unknown.
    pub ticks_per_second: f64,
}

impl TscClock {
    /// Returns true if TSC ticks can be converted to nanoseconds.
    pub fn is_known(&self) -> bool {
        self.ticks_per_second > 0.0
    }

    /// Returns the nanoseconds from the start of the run to `tsc`; 0 for earlier times. If the
    /// frequency is unknown, returns the maximum for later times.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn nanoseconds(&self, tsc: Tsc) -> u64 {
        let ticks = tsc.0.saturating_sub(self.start.0) as f64;
        // A frequency of 0 gives infinity, which saturates.
        (ticks * 1e9 / self.ticks_per_second) as u64
    }
}

/// Returns an argument or a variable of the environment as JSON can contain it: UTF-8, other bytes
/// as `\xNN`. Backslashes stay, so the result may be ambiguous.
pub fn argument_text(text: &OsStr) -> String {
    text.as_bytes().utf8_chunks().fold(String::new(), |out, chunk| {
        let escaped = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        out + chunk.valid() + &escaped.collect::<String>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_utf8_are_escaped() {
        assert_eq!(argument_text(OsStr::from_bytes(b"a\xffb\xc3\xa9")), "a\\xffb\u{e9}");
    }

    #[test]
    fn ticks_become_nanoseconds() {
        let clock = TscClock { start: Tsc(1000), ticks_per_second: 2e9 };
        assert_eq!(clock.nanoseconds(Tsc(3000)), 1000);
        assert_eq!(clock.nanoseconds(Tsc(0)), 0);
    }
}
