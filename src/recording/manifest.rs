//! The manifest: what was run, where, how it was captured, and how it ended.

use super::format::FORMAT_VERSION;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::pt::{ClockConfig, CrystalRatio};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// `manifest.json`, and `starting.json` with `end` absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT_VERSION`] of the writer.
    pub format: u32,
    /// Version of the contraflow that wrote it.
    pub written_by: String,
    /// The program's absolute path.
    pub program: String,
    /// Its arguments, the program's own name first. Bytes that are not UTF-8 stand as `\xNN`.
    pub argv: Vec<String>,
    /// Its environment, `NAME=value`, likewise.
    pub env: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// The first process.
    pub pid: Pid,
    /// When the run began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The CPU that ran it.
    pub cpu: HostCpu,
    /// How control flow was captured.
    pub capture: Capture,
    /// What became of the run; absent while it goes on and where the recorder was killed.
    pub end: Option<End>,
}

impl Manifest {
    /// The version of the format and of the program that this library would write.
    pub fn versions() -> (u32, String) {
        (FORMAT_VERSION, env!("CARGO_PKG_VERSION").to_owned())
    }
}

/// What CPUID says of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCpu {
    /// The vendor string, e.g. `GenuineIntel`.
    pub vendor: String,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
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

/// How control flow was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// `step`, `soft`, `perf`, or `import`.
    pub backend: String,
    /// Bytes of trace between PSB packets; 0 where it is not known.
    pub psb_period_bytes: u64,
    /// Whether address space randomization was left on.
    pub aslr: bool,
    /// Which code was traced, as the user asked for it; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// How much of the history was to be kept, in words; empty: not told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub history: String,
    /// Where the trace was taken by a CPU and not by us: from what, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<Import>,
    /// Where we had the CPU take the trace: how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

impl Capture {
    /// Whether a CPU's PT unit took the trace.
    pub fn is_of_cpu(&self) -> bool {
        self.import.is_some() || self.hardware.is_some()
    }

    /// What is known of the trace's clocks; none when nothing is.
    pub fn clocks(&self) -> Option<ClockConfig> {
        let clocks = self.hardware.as_ref().map(Hardware::clocks);
        clocks.unwrap_or_else(|| self.import.as_ref().and_then(Import::clocks))
    }

    /// The IP filter ranges of a CPU that took the trace; none for all code.
    pub fn ranges(&self) -> &[AddrRange] {
        let of_import = self.import.as_ref().map(|import| &import.filter);
        let ranges = self.hardware.as_ref().map(|hardware| &hardware.filter).or(of_import);
        ranges.map_or(&[], Vec::as_slice)
    }
}

/// How the CPU that ran the program, the manifest's, took its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// `perf_event_attr.config`: what was asked for, by the fields of `IA32_RTIT_CTL`.
    pub config: u64,
    /// IP filter ranges that the trace was taken with, none for all code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<AddrRange>,
    /// `MTCFreq`, where there are MTC packets.
    pub mtc_freq: Option<u8>,
    /// CPUID leaf 15H, EBX and EAX.
    pub cpuid_15: Option<(u32, u32)>,
    /// The nominal frequency, in 100 MHz.
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

/// What is known of a trace that somebody else took with a CPU's PT unit. The manifest's CPU is the
/// one that took it, with an empty vendor where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// What it was: `perf.data`, `LLDB trace bundle` or `raw trace`.
    pub kind: String,
    /// The file that was imported.
    pub source: String,
    /// IP filter ranges that the trace was taken with, none for all code.
    pub filter: Vec<AddrRange>,
    /// `MTCFreq`.
    pub mtc_freq: Option<u8>,
    /// CPUID leaf 15H, EBX and EAX.
    pub cpuid_15: Option<(u32, u32)>,
    /// The nominal frequency, in 100 MHz.
    pub nominal_ratio: Option<u8>,
    /// The threads that the traces of CPUs can hold; none where any can be.
    #[serde(default)]
    pub traced: Option<Vec<Tid>>,
}

impl Import {
    /// What is known of the trace's clocks; none when nothing is.
    pub fn clocks(&self) -> Option<ClockConfig> {
        clocks(self.mtc_freq, self.cpuid_15, self.nominal_ratio)
    }
}

/// What is known only at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// How the program ended, or none when it was let go before.
    pub exit: Option<Exit>,
    /// Wall-clock time, in nanoseconds.
    pub duration_ns: u64,
    /// Instructions executed, over all threads.
    pub instructions: u64,
    /// How to turn TSC values into time.
    pub clock: TscClock,
    /// The threads, in order of birth.
    pub threads: Vec<ThreadEntry>,
    /// The CPUs, where the traces are those of CPUs. What each thread executed is in them then,
    /// and the sideband tells when a CPU ran it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<CpuEntry>,
    /// When the recording had come to its largest size, in nanoseconds since its start: of what
    /// came later only the end is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_since_ns: Option<u64>,
}

/// A CPU of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuEntry {
    /// Its number.
    pub cpu: u32,
    /// Bytes of trace.
    pub trace_bytes: u64,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// A thread of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Its number.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its name at the end.
    pub name: String,
    /// Bytes of trace.
    pub trace_bytes: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Where it stood at its end: the instruction it would have executed next.
    pub final_pc: Option<Addr>,
}

/// A line through two readings of the TSC and of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TscClock {
    /// The TSC at the start of the run.
    pub start: Tsc,
    /// Ticks in a second; 0 where that is not known.
    pub ticks_per_second: f64,
}

impl TscClock {
    /// Whether it tells nanoseconds.
    pub fn is_known(&self) -> bool {
        self.ticks_per_second > 0.0
    }

    /// Nanoseconds from the start of the run to `tsc`; 0 for what came before.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn nanoseconds(&self, tsc: Tsc) -> u64 {
        let ticks = tsc.0.saturating_sub(self.start.0) as f64;
        // A frequency of 0 gives infinity, which saturates.
        (ticks * 1e9 / self.ticks_per_second) as u64
    }
}

/// Arguments and environment as JSON can hold them: UTF-8, other bytes as `\xNN`.
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
