//! The context switches in perf's records, for the CPUs that have a trace.
//!
//! perf writes a record when a thread is switched in or out, and `ItraceStart` when the tracing of
//! a thread starts. Where one of the switches has no record, [`switches`] infers it from the thread
//! that ran on the CPU before.

use super::super::super::error::ErrorKind;
use super::super::super::format::TraceId;
use super::super::imported::CpuSwitch;
use super::super::trace_bytes::TraceBytes;
use super::process::Process;
use crate::common::{Pid, Tid};
use crate::pt::TscToNs;
use crate::sideband::SwitchKind;
use crate::sideband::perf_data::{AuxInfo, PerfData, PerfEvent};
use std::collections::{BTreeSet, HashMap};

/// Checks that there are context switches, and a clock for their times, to assign the traces of
/// CPUs to threads.
pub(super) fn check(data: &PerfData, info: &AuxInfo) -> Result<(), ErrorKind> {
    let is_switch = |event: &PerfEvent| {
        matches!(event, PerfEvent::Switch { .. } | PerfEvent::ItraceStart { .. })
    };
    if info.clock.is_none() {
        return Err(ErrorKind::NoSwitches("their clock is unknown"));
    }
    let any = data.records.iter().any(|record| is_switch(&record.event));
    match (any, info.has_tracepoint_switches()) {
        (true, _) => Ok(()),
        (false, true) => {
            Err(ErrorKind::NoSwitches("context switches by the tracepoint sched:sched_switch"))
        }
        (false, false) => Err(ErrorKind::NoSwitches("no context switches")),
    }
}

/// Returns which threads, of any process, were switched in and out on the CPUs that have a trace,
/// and where records were lost. Infers the switches that perf did not record. Empty if the clock is
/// unknown.
pub(super) fn switches(
    data: &PerfData,
    process: &Process,
    clock: Option<TscToNs>,
    traces: &[(TraceId, TraceBytes)],
) -> Vec<CpuSwitch> {
    let cpus = traces.iter().filter_map(|(id, _)| match id {
        TraceId::Cpu(cpu) => Some(*cpu),
        TraceId::Thread(_) => None,
    });
    let cpus: BTreeSet<u32> = cpus.collect();
    let Some(clock) = clock.filter(|_| !cpus.is_empty()) else { return Vec::new() };
    let mut switches = Vec::new();
    // The thread that runs on a CPU: `None` if no thread does, or if it is unknown after a loss.
    let mut running: HashMap<u32, Option<(Pid, Tid)>> = HashMap::new();
    // CPUs without a loss since their last switch: successive losses count as one.
    let mut whole = cpus.clone();
    for (_, record) in process.records(data) {
        let Some(time_ns) = record.id.time_ns else { continue };
        let tsc = clock.tsc(time_ns);
        let mut switch = |cpu, kind| switches.push(CpuSwitch { cpu, tsc, kind });
        let own = record.id.cpu.filter(|cpu| cpus.contains(cpu));
        match (&record.event, own) {
            (PerfEvent::Lost(_), Some(cpu)) if whole.remove(&cpu) => {
                switch(cpu, SwitchKind::Lost);
                running.entry(cpu).and_modify(|thread| *thread = None);
            }
            // Losses of a CPU without a trace do not matter.
            (PerfEvent::Lost(_), None) if record.id.cpu.is_none() => {
                for cpu in std::mem::take(&mut whole) {
                    switch(cpu, SwitchKind::Lost);
                    running.entry(cpu).and_modify(|thread| *thread = None);
                }
            }
            (PerfEvent::Switch { out, other }, Some(cpu)) => {
                let Some((pid, tid)) = record.id.task else { continue };
                // If a CPU's first record is a switch in, it also names the thread that ran before.
                if let (false, Some(before), false) = (out, other, running.contains_key(&cpu)) {
                    switch(cpu, SwitchKind::Out(before.0, before.1));
                }
                let kind = if *out { SwitchKind::Out(pid, tid) } else { SwitchKind::In(pid, tid) };
                switch(cpu, kind);
                whole.insert(cpu);
                running.insert(cpu, (!out).then_some((pid, tid)));
            }
            // A thread whose tracing starts is running, even if its switch is missing.
            (PerfEvent::ItraceStart { pid, tid }, Some(cpu)) => {
                let runs = Some((*pid, *tid));
                if running.get(&cpu).copied().flatten() != runs {
                    switch(cpu, SwitchKind::In(*pid, *tid));
                    whole.insert(cpu);
                    running.insert(cpu, runs);
                }
            }
            _ => {}
        }
    }
    switches
}
