//! The description of an LLDB trace bundle (`thread trace save`): JSON, read from memory. Opens no
//! file and trusts nothing: an error names the value that LLDB cannot have written.

use super::super::manifest::HostCpu;
use super::fields::{BadBundle, Field, ROOT};
use crate::common::{Addr, Pid, Tid};
use crate::pt::TscToNs;
use std::collections::HashSet;

/// The parsed description of an LLDB trace bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The process ID.
    pub pid: Pid,
    /// The threads of the process.
    pub threads: Vec<BundleThread>,
    /// The loaded programs and libraries.
    pub modules: Vec<Module>,
    /// The CPUs, if the traces are of CPUs and not of threads.
    pub cpus: Vec<BundleCpu>,
    /// The CPU that wrote the traces.
    pub cpu: HostCpu,
    /// The conversion from perf's clock to the TSC; present for traces of CPUs.
    pub clock: Option<TscToNs>,
}

/// A thread of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleThread {
    /// The thread's ID.
    pub tid: Tid,
    /// The file name of the thread's trace; `None` if there is none.
    pub trace: Option<String>,
}

/// A loaded program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The path of the copy in the bundle's directory; without a copy, the path on the traced
    /// machine.
    pub file: String,
    /// The path on the traced machine.
    pub system_path: String,
    /// The address at which the lowest page is loaded.
    pub addr: Addr,
    /// The build ID, if the description has it.
    pub build_id: Option<Vec<u8>>,
}

/// A CPU of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleCpu {
    /// The CPU's number.
    pub id: u32,
    /// The file name of the CPU's trace.
    pub trace: String,
    /// The file name of the CPU's context switches.
    pub switches: String,
}

const MAX_TID: u64 = i32::MAX as u64;

impl Bundle {
    /// Parses a description. Fails at the first value that is missing or wrong.
    pub fn parse(json: &[u8]) -> Result<Self, BadBundle> {
        let value = serde_json::from_slice(json).map_err(|error| BadBundle {
            place: ROOT.to_owned(),
            what: format!("is not JSON: {error}"),
        })?;
        let root = Field::root(&value);
        let kind = root.get("type")?;
        if kind.text()? != "intel-pt" {
            return Err(kind.wrong(format!("is {:?}, but only intel-pt is known", kind.text()?)));
        }
        let kernel = root.get("kernel")?;
        if kernel.is_there() {
            return Err(kernel.wrong("exists, but traces of a kernel cannot be imported"));
        }
        let cpu = cpu(&root.get("cpuInfo")?)?;
        let processes = root.get("processes")?;
        let all = processes.list()?;
        let read: Vec<_> = all.iter().map(process).collect::<Result<_, _>>()?;
        let [(pid, threads, modules)] = read.as_slice() else {
            let what = format!("has {} processes, but a recording has one", read.len());
            return Err(processes.wrong(what));
        };
        let (cpus, clock) = cpus(&root)?;
        let bundle = Self {
            pid: *pid,
            threads: threads.clone(),
            modules: modules.clone(),
            cpus,
            cpu,
            clock,
        };
        bundle.check_traces(all.first().unwrap_or(&processes))?;
        Ok(bundle)
    }

    /// Fails unless threads or CPUs have traces, but not both.
    fn check_traces(&self, process: &Field<'_>) -> Result<(), BadBundle> {
        let threads = process.get("threads")?;
        let traced = self.threads.iter().filter(|thread| thread.trace.is_some()).count();
        match (self.cpus.is_empty(), traced) {
            (true, 0) => Err(threads.wrong("have no traces, and neither have CPUs")),
            (false, 1..) => Err(threads.wrong("have traces, and so have CPUs")),
            _ => Ok(()),
        }
    }
}

/// Parses the CPU that wrote the traces. Fails unless it is one of Intel's.
fn cpu(info: &Field<'_>) -> Result<HostCpu, BadBundle> {
    let vendor = info.get("vendor")?;
    let name = match vendor.text()? {
        "GenuineIntel" | "intel" => "GenuineIntel",
        other => return Err(vendor.wrong(format!("is {other:?}, but only Intel has Intel PT"))),
    };
    // The ranges of CPUID's fields.
    let number = |name: &str, high: u64| {
        let number = info.get(name)?.number(0, high)?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    };
    Ok(HostCpu {
        vendor: name.to_owned(),
        family: number("family", 0xf + 0xff)?,
        model: number("model", 0xff)?,
        stepping: number("stepping", 0xf)?,
    })
}

type Process = (Pid, Vec<BundleThread>, Vec<Module>);

/// Parses a process with its threads and modules. Fails if it has no threads, one of them twice, or
/// an architecture other than x86-64.
fn process(process: &Field<'_>) -> Result<Process, BadBundle> {
    let pid = Pid(task(&process.get("pid")?)?);
    let triple = process.get("triple")?;
    if triple.is_there() && !triple.text()?.starts_with("x86_64") {
        return Err(triple.wrong(format!("is {:?}, but only x86_64 is supported", triple.text()?)));
    }
    let mut seen = HashSet::new();
    let mut threads = Vec::new();
    let listed = process.get("threads")?;
    for thread in listed.list()? {
        let number = thread.get("tid")?;
        let tid = Tid(task(&number)?);
        if !seen.insert(tid) {
            return Err(number.wrong(format!("is {tid}, as another thread's is")));
        }
        let trace = thread.get("iptTrace")?;
        let trace = if trace.is_there() { Some(trace.text()?.to_owned()) } else { None };
        threads.push(BundleThread { tid, trace });
    }
    if threads.is_empty() {
        return Err(listed.wrong("is empty"));
    }
    let modules = process.get("modules")?;
    let modules = if modules.is_there() { modules.list()? } else { Vec::new() };
    Ok((pid, threads, modules.iter().map(module).collect::<Result<_, _>>()?))
}

/// Parses the ID of a process or thread, which is positive.
fn task(number: &Field<'_>) -> Result<i32, BadBundle> {
    Ok(i32::try_from(number.number(1, MAX_TID)?).unwrap_or(i32::MAX))
}

/// Parses a module. One without a copy in the bundle is opened at its path on the traced machine.
fn module(module: &Field<'_>) -> Result<Module, BadBundle> {
    let system_path = module.get("systemPath")?.text()?.to_owned();
    let file = module.get("file")?;
    let file = if file.is_there() { file.text()?.to_owned() } else { system_path.clone() };
    let addr = Addr(module.get("loadAddress")?.number_or_text()?);
    let uuid = module.get("uuid")?;
    let build_id = if uuid.is_there() { Some(build_id(&uuid)?) } else { None };
    Ok(Module { file, system_path, addr, build_id })
}

/// Parses a build ID: hexadecimal digits with optional dashes.
fn build_id(uuid: &Field<'_>) -> Result<Vec<u8>, BadBundle> {
    let text = uuid.text()?;
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let byte = |pair: &[u8]| {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(*pair.first()?)?, digit(*pair.get(1)?)?);
        u8::try_from(high << 4 | low).ok()
    };
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.ok_or_else(|| uuid.wrong(format!("is {text:?}, which is not a UUID")))
}

/// Parses the CPUs with traces and their clock; none if the traces are of threads. Fails if the
/// list is empty or has a CPU twice, or without the clock.
fn cpus(root: &Field<'_>) -> Result<(Vec<BundleCpu>, Option<TscToNs>), BadBundle> {
    let listed = root.get("cpus")?;
    if !listed.is_there() {
        return Ok((Vec::new(), None));
    }
    let mut seen = HashSet::new();
    let mut cpus = Vec::new();
    for cpu in listed.list()? {
        let number = cpu.get("id")?;
        let id = u32::try_from(number.number(0, MAX_TID)?).unwrap_or(u32::MAX);
        if !seen.insert(id) {
            return Err(number.wrong(format!("is {id}, as another CPU's is")));
        }
        let text = |name| Ok(cpu.get(name)?.text()?.to_owned());
        cpus.push(BundleCpu {
            id,
            trace: text("iptTrace")?,
            switches: text("contextSwitchTrace")?,
        });
    }
    if cpus.is_empty() {
        return Err(listed.wrong("is empty"));
    }
    let clock = root.get("tscPerfZeroConversion")?;
    let field = |name, low, high| clock.get(name)?.number(low, high);
    let clock = TscToNs {
        multiplier: u32::try_from(field("timeMult", 1, u32::MAX.into())?).unwrap_or(1),
        shift: u8::try_from(field("timeShift", 0, 63)?).unwrap_or(0),
        zero_ns: clock.get("timeZero")?.number_or_text()?,
    };
    Ok((cpus, Some(clock)))
}
