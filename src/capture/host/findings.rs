//! Findings: the facts in plain words, a line each.

use super::choice::{Choice, Obstacle, PathBackend};
use super::debuggers::{Debugger, FIRST_REVERSE_LLDB};
use super::facts::Facts;
use super::perf_events::{HIGHEST_OPEN_PARANOID, WANTED_BUFFER_BYTES};
use super::pmu::Pmu;
use nix::errno::Errno;
use serde::Serialize;

/// One line about a machine as a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject, in a word or two.
    pub about: &'static str,
    /// True if the subject is as a recorder needs it; `None` if that does not apply.
    pub good: Option<bool>,
    /// The text of the line after the subject.
    pub text: String,
}

/// Returns one finding for each fact, then those about the choice.
#[must_use]
pub fn findings(facts: &Facts, choice: &Choice) -> Vec<Finding> {
    let mut lines = vec![cpu(facts), intel_pt(facts), pmu(facts)];
    lines.extend(facts.pmu.iter().flat_map(abilities));
    lines.extend([perf_events(facts), buffers(facts), privileges(facts), seccomp(facts)]);
    lines.push(ptrace(facts));
    if let Some(known) = &facts.debuggers {
        lines.push(gdb(known.iter().find(|debugger| debugger.name == "gdb")));
        lines.push(lldb(known.iter().find(|debugger| debugger.name == "lldb")));
    }
    lines.push(record(choice));
    lines.extend(record_path(choice));
    lines.push(better(choice));
    lines
}

/// Returns a finding; `good` is `None` if it is neither good nor bad.
fn line(about: &'static str, good: impl Into<Option<bool>>, text: impl Into<String>) -> Finding {
    Finding { about, good: good.into(), text: text.into() }
}

/// Formats a size in KiB below 1 MiB, otherwise in MiB with at most one decimal.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes / 1024),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20),
    }
}

/// Returns the line on the CPU.
fn cpu(facts: &Facts) -> Finding {
    let cpu = &facts.cpu;
    let name = if cpu.model_name.is_empty() { "unknown" } else { &cpu.model_name };
    let machine = if cpu.hypervisor { ", in a virtual machine" } else { "" };
    let kinds = if cpu.hybrid { " of two kinds" } else { "" };
    let (vendor, signature, online) = (&cpu.vendor, &cpu.signature, cpu.online);
    line("CPU", None, format!("{name} ({vendor} {signature}), {online} online{kinds}{machine}"))
}

/// Returns the line that says if the CPU has Intel PT, and if not, why.
fn intel_pt(facts: &Facts) -> Finding {
    let text = match Obstacle::of(facts).filter(|_| !facts.cpu.intel_pt) {
        Some(obstacle) => format!("no: {}", obstacle.description(facts)),
        None => "yes: the CPU has it".to_owned(),
    };
    line("Intel PT", facts.cpu.intel_pt, text)
}

/// Returns the line that says if the kernel has a PMU for Intel PT.
fn pmu(facts: &Facts) -> Finding {
    const PATH: &str = "/sys/bus/event_source/devices/intel_pt";
    let text = match (&facts.pmu, facts.cpu.intel_pt) {
        (Some(Pmu { pmu_type: Some(number), .. }), _) => {
            format!("yes: the kernel offers it as {PATH}, number {number}")
        }
        (Some(_), _) => format!("damaged: {PATH} has no number"),
        (None, false) => format!("no: there is no {PATH}, nor a CPU for it"),
        (None, true) => format!(
            "no: there is no {PATH}, though the CPU has Intel PT: the kernel is built without it, \
             or the firmware or a hypervisor hides it"
        ),
    };
    line("PMU", facts.pmu.as_ref().is_some_and(|pmu| pmu.pmu_type.is_some()), text)
}

/// Returns the lines on what the PT unit can do.
fn abilities(pmu: &Pmu) -> Vec<Finding> {
    let filters = match pmu.address_ranges {
        0 => {
            "none: the unit traces all code; --filter is for the soft and step backends".to_owned()
        }
        count => format!("{count} address ranges, for filters and for where a trace stops"),
    };
    let has = |has: bool, name: &'static str| has.then_some(name);
    let list = |parts: &[Option<&str>]| {
        let parts: Vec<_> = parts.iter().flatten().copied().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    let times = list(&[Some("TSC"), has(pmu.mtc, "MTC"), has(pmu.psb_cyc, "CYC")]);
    let psb = match pmu.psb_bytes() {
        Some((least, most)) if least < most => {
            format!("; a PSB each {} to {}", size(least), size(most))
        }
        Some((one, _)) => format!("; a PSB each {}", size(one)),
        None => "; the CPU fixes the PSB period".to_owned(),
    };
    let output = list(&[
        has(pmu.topa && pmu.topa_multiple_entries, "tables of regions (ToPA)"),
        has(pmu.topa && !pmu.topa_multiple_entries, "tables of one region (ToPA)"),
        has(pmu.single_range, "a single range"),
    ]);
    let more = list(&[
        has(pmu.ptwrite, "PTWRITE"),
        has(pmu.power_events, "power events"),
        has(pmu.event_trace, "interrupts and other events"),
    ]);
    vec![
        line("filters", pmu.address_ranges > 0, filters),
        line("times", pmu.mtc || pmu.psb_cyc, times + &psb),
        line("output", pmu.topa, output),
        line("also traced", None, more),
    ]
}

/// Returns the line that says if this process may trace by perf events.
fn perf_events(facts: &Facts) -> Finding {
    let Some(paranoid) = facts.perf_events.paranoid else {
        return line("perf events", false, "no: the kernel has none");
    };
    let open = facts.perf_events.allow_tracing_by(&facts.process);
    let meaning = match (paranoid, open) {
        (..=-1, _) => "everything is open to all users",
        (..=HIGHEST_OPEN_PARANOID, _) => "users may trace user code of their own programs",
        (_, true) => "nothing is open to others, but this process has the capability",
        (_, false) => "nothing is open without CAP_PERFMON or CAP_SYS_ADMIN",
    };
    let errno = facts.tried.as_ref().map(|tried| tried.perf_errno);
    let tried = match errno {
        None => String::new(),
        Some(None) => "; perf_event_open(2) works".to_owned(),
        Some(Some(errno)) => {
            format!("; perf_event_open(2) is refused ({})", Errno::from_raw(errno))
        }
    };
    let good = open && errno.flatten().is_none();
    let word = if good { "yes" } else { "no" };
    line(
        "perf events",
        good,
        format!("{word}: perf_event_paranoid is {paranoid}: {meaning}{tried}"),
    )
}

/// Returns the line on the memory that trace buffers may have.
fn buffers(facts: &Facts) -> Finding {
    let (events, process, cpus) = (&facts.perf_events, &facts.process, facts.cpu.online);
    let wanted = size(WANTED_BUFFER_BYTES);
    let Some(lockable) = events.lockable_bytes(process, cpus) else {
        let why = match (process.capabilities.ipc_lock, process.locked_limit_bytes) {
            (true, _) => "CAP_IPC_LOCK",
            (false, None) => "RLIMIT_MEMLOCK is unlimited",
            (false, Some(_)) => "perf_event_paranoid is -1",
        };
        let text = format!("no limit ({why}); a thread's trace buffer wants {wanted}");
        return line("buffers", true, text);
    };
    let parts = format!(
        "{} may be locked: {} KiB (perf_event_mlock_kb) for each of {cpus} CPUs, and {} of the \
         process (RLIMIT_MEMLOCK)",
        size(lockable),
        events.mlock_kib.unwrap_or(0),
        size(process.locked_limit_bytes.unwrap_or(0)),
    );
    let text = match lockable / WANTED_BUFFER_BYTES {
        0 => format!("{parts}: less than the {wanted} that a thread's trace buffer wants"),
        threads => format!("{parts}: trace buffers of {wanted} for {threads} threads"),
    };
    line("buffers", lockable >= WANTED_BUFFER_BYTES, text)
}

/// Returns the line on the user and the capabilities of this process.
fn privileges(facts: &Facts) -> Finding {
    let names = facts.process.capabilities.names();
    let names = if names.is_empty() { "none that matter".to_owned() } else { names.join(", ") };
    let user = match facts.process.uid {
        Some(0) => "root".to_owned(),
        Some(uid) => format!("user {uid}"),
        None => "unknown user".to_owned(),
    };
    line("privileges", None, format!("{user}; capabilities: {names}"))
}

/// Returns the line on filters of system calls.
fn seccomp(facts: &Facts) -> Finding {
    let text = match (facts.process.seccomp, facts.process.container) {
        (0, _) => "no filter of system calls".to_owned(),
        (_, Some(container)) => {
            format!("a filter of system calls is active, as containers of {container} have")
        }
        (_, None) => "a filter of system calls is active, as containers have".to_owned(),
    };
    line("seccomp", facts.process.seccomp == 0, text)
}

/// Returns the line that says which processes can be traced by ptrace(2).
fn ptrace(facts: &Facts) -> Finding {
    let fault = facts.tried.as_ref().map(|tried| tried.ptrace_fault.as_ref());
    let tried = match fault {
        None => String::new(),
        Some(None) => "yes: a program was started, stopped and ended; ".to_owned(),
        // Without Yama, there is no scope to report.
        Some(Some(fault)) if facts.process.ptrace_scope.is_none() => {
            return line("ptrace", false, format!("no: {fault}"));
        }
        Some(Some(fault)) => format!("no: {fault}; "),
    };
    let may = facts.process.capabilities.sys_ptrace;
    let scope = match facts.process.ptrace_scope {
        None => "the kernel has no Yama, so record -p attaches to your own processes".to_owned(),
        Some(0) => "Yama's ptrace_scope is 0: your own processes can be traced".to_owned(),
        Some(scope @ 1..=2) if may => {
            format!("Yama's ptrace_scope is {scope}, which CAP_SYS_PTRACE overrides")
        }
        Some(1) => {
            "Yama's ptrace_scope is 1: only programs that contraflow starts can be traced, and \
             record -p fails for others"
                .to_owned()
        }
        Some(2) => "Yama's ptrace_scope is 2: tracing needs CAP_SYS_PTRACE".to_owned(),
        Some(scope) => {
            format!("Yama's ptrace_scope is {scope}: nothing can be traced until a reboot")
        }
    };
    let by_yama = match facts.process.ptrace_scope {
        None | Some(..=1) => true,
        Some(2) => may,
        Some(_) => false,
    };
    line("ptrace", fault.map_or(by_yama, |fault| fault.is_none()), tried + &scope)
}

/// Returns the part of a debugger's line on its own decoder.
fn decodes(debugger: &Debugger) -> &'static str {
    match debugger.intel_pt {
        Some(true) => "decodes Intel PT itself (libipt)",
        Some(false) => "does not decode Intel PT itself (no libipt)",
        None => "does not say whether it decodes Intel PT itself",
    }
}

/// Returns the version of a debugger, in words if it is unknown.
fn version(debugger: &Debugger) -> &str {
    if debugger.version.is_empty() { "of unknown version" } else { &debugger.version }
}

/// Returns the line on gdb, which is `None` if it was not found.
fn gdb(found: Option<&Debugger>) -> Finding {
    let Some(gdb) = found else {
        return line("gdb", false, "no: not in PATH; replay needs it, or another with --gdb");
    };
    let python = match gdb.python {
        Some(false) => "; without Python: no backtraces of the past, no cf- commands",
        _ => "",
    };
    let text = format!("yes: {} {}, {}{python}", gdb.path.display(), version(gdb), decodes(gdb));
    line("gdb", gdb.python != Some(false), text)
}

/// Returns the line on LLDB, which is `None` if it was not found.
fn lldb(found: Option<&Debugger>) -> Finding {
    let Some(lldb) = found else {
        return line("lldb", None, "not found; gdb does all that contraflow can");
    };
    let backwards = if lldb.major() >= FIRST_REVERSE_LLDB {
        "goes backwards".to_owned()
    } else {
        format!("does not go backwards ({FIRST_REVERSE_LLDB} is the first that does)")
    };
    let place = if lldb.in_path { "" } else { " (not in PATH)" };
    let text =
        format!("{} {}{place}, {backwards}, {}", lldb.path.display(), version(lldb), decodes(lldb));
    line("lldb", lldb.major() >= FIRST_REVERSE_LLDB, text)
}

/// Returns the line that says if this machine can record exactly.
fn record(choice: &Choice) -> Finding {
    match choice.means {
        PathBackend::Nothing => line("record", false, format!("cannot record: {}", choice.because)),
        _ => line("record", true, "records exactly, with all values: needs ptrace only"),
    }
}

/// Returns the line on how this machine records paths; `None` if it cannot record.
fn record_path(choice: &Choice) -> Option<Finding> {
    let how = match choice.means {
        PathBackend::Hardware => "uses the CPU's Intel PT",
        PathBackend::Soft => "uses software PT (--backend soft, translation)",
        PathBackend::Nothing => return None,
    };
    Some(line("record --path", true, format!("{how}: {}", choice.because)))
}

/// Returns the line on what the user can do for a better recording.
fn better(choice: &Choice) -> Finding {
    let text = match &choice.better {
        Some(better) => format!("{} ({})", better.command, better.gain),
        None => "nothing to improve on this machine".to_owned(),
    };
    line("better", None, text)
}
