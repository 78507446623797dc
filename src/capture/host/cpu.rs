//! The CPU as the kernel reports it (`/proc/cpuinfo`).

use super::root::Root;
use serde::Serialize;

/// The properties of the machine's CPUs, by the first entry in `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// The vendor by CPUID, such as `GenuineIntel`; empty if unknown.
    pub vendor: String,
    /// The CPU's name; empty if unknown.
    pub model_name: String,
    /// Family, model and stepping as decimal numbers with slashes between: `6/94/3`.
    pub signature: String,
    /// The number of CPUs online.
    pub online: u64,
    /// True if the CPU has the flag `intel_pt`.
    pub intel_pt: bool,
    /// True if the CPU has the flag `hypervisor`, so that this is a virtual machine.
    pub hypervisor: bool,
    /// True if the machine has cores of two kinds (performance and efficiency).
    pub hybrid: bool,
}

impl Cpu {
    /// Reads the facts of the CPU. Texts that cannot be read are empty, abilities are absent, and
    /// at least one CPU is online.
    pub(super) fn of(root: &Root) -> Self {
        let text = root.text("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(':'));
            let mut values = fields.filter(|(key, _)| key.trim() == name);
            values.next().map(|(_, value)| value.trim()).unwrap_or_default()
        };
        let has = |flag: &str| field("flags").split_whitespace().any(|word| word == flag);
        let listed =
            text.lines().filter(|line| line.split(':').next().map(str::trim) == Some("processor"));
        let online = root.text("/sys/devices/system/cpu/online").and_then(|list| count(&list));
        let signature = ["cpu family", "model", "stepping"].map(field);
        Self {
            vendor: field("vendor_id").to_owned(),
            model_name: field("model name").to_owned(),
            signature: signature.join("/"),
            online: online.unwrap_or(listed.count() as u64).max(1),
            intel_pt: has("intel_pt"),
            hypervisor: has("hypervisor"),
            hybrid: ["cpu_core", "cpu_atom"]
                .iter()
                .all(|pmu| root.has(&format!("/sys/bus/event_source/devices/{pmu}"))),
        }
    }
}

/// Counts the numbers in a list of the kernel's, such as `0-3,8`; `None` if the list is invalid.
fn count(numbers: &str) -> Option<u64> {
    numbers.split(',').try_fold(0, |sum: u64, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_are_counted() {
        for (list, expected) in
            [("0", Some(1)), ("0-3", Some(4)), ("0-3,8,10-11", Some(7)), ("3-1", None), ("", None)]
        {
            assert_eq!(super::count(list), expected, "{list:?}");
        }
    }
}
