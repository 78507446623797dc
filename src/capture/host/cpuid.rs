//! The CPU of this machine, by CPUID (SDM volume 2, "CPUID").

use crate::recording::HostCpu;
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// Returns the vendor, family, model and stepping of this CPU.
pub fn host_cpu() -> HostCpu {
    let vendor = __cpuid(0);
    let vendor: Vec<u8> =
        [vendor.ebx, vendor.edx, vendor.ecx].into_iter().flat_map(u32::to_le_bytes).collect();
    let signature = __cpuid(1).eax;
    let bits = |low: u32, count: u32| signature >> low & ((1 << count) - 1);
    let (family, model) = (bits(8, 4), bits(4, 4));
    let extended_model = if matches!(family, 6 | 15) { bits(16, 4) << 4 } else { 0 };
    HostCpu {
        vendor: String::from_utf8_lossy(&vendor).into_owned(),
        family: if family == 15 { family + bits(20, 8) } else { family },
        model: model | extended_model,
        stepping: bits(0, 4),
    }
}

/// Returns true if CPUID reports Intel PT: leaf 7, EBX bit 25.
pub(super) fn has_intel_pt() -> bool {
    const INTEL_PT: u32 = 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & INTEL_PT != 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_the_kernel() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.split(':').next().unwrap().trim() == name);
            line.unwrap().split(':').nth(1).unwrap().trim().to_owned()
        };
        let cpu = super::host_cpu();
        assert_eq!(cpu.vendor, field("vendor_id"));
        assert_eq!(cpu.family.to_string(), field("cpu family"));
        assert_eq!(cpu.model.to_string(), field("model"));
        assert_eq!(cpu.stepping.to_string(), field("stepping"));
        let has = field("flags").split_whitespace().any(|flag| flag == "intel_pt");
        assert_eq!(super::has_intel_pt(), has);
    }
}
