//! LLDB trace bundles, context switches, and whole imports of a CPU's trace.

use super::traces;

/// Descriptions of LLDB trace bundles, of threads and of CPUs.
fn descriptions() -> [Vec<u8>; 2] {
    let of_threads = r#"{"type": "intel-pt", "cpuInfo": {"vendor": "intel", "family": 6,
        "model": 85, "stepping": 4}, "processes": [{"pid": 1, "triple": "x86_64-*-linux",
        "threads": [{"tid": 1, "iptTrace": "a"}, {"tid": 2, "iptTrace": "b"}],
        "modules": [{"file": "m", "systemPath": "/m", "loadAddress": 4096,
        "uuid": "00112233-4455"}]}]}"#;
    let of_cpus = r#"{"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6,
        "model": 85, "stepping": 4}, "processes": [{"pid": 1, "threads": [{"tid": 1}],
        "modules": []}], "cpus": [{"id": 4, "iptTrace": "a", "contextSwitchTrace": "b"}],
        "tscPerfZeroConversion": {"timeMult": 1076264588, "timeShift": 31,
        "timeZero": "18433473881008870804"}}"#;
    [of_threads.into(), of_cpus.into()]
}

/// Context switches of three threads of process 1 as perf writes them, and some that were lost.
pub(crate) fn switches() -> Vec<u8> {
    let record = |number: u8| {
        let out = if number.is_multiple_of(2) { 0x20 } else { 0 };
        let mut bytes = vec![15, 0, 0, 0, 0, out, 32, 0];
        let thread = [1, 0, 0, 0, 1 + number / 2 % 3, 0, 0, 0];
        bytes.extend(thread.repeat(2));
        bytes.extend((u64::from(number) * 20_000).to_le_bytes());
        bytes
    };
    let lost = [2, 0, 0, 0, 0, 0, 24, 0].into_iter().chain([0; 16]).collect();
    let records = (0..10).map(record).chain([lost]).chain((10..20).map(record));
    records.collect::<Vec<_>>().concat()
}

/// Inputs of the target `import`: each begins with a letter that tells what it is.
pub(crate) fn imports() -> Vec<Vec<u8>> {
    let mut inputs: Vec<_> = descriptions().into();
    inputs.push([b"s".to_vec(), switches()].concat());
    for trace in traces() {
        inputs.push([b"t", &*trace].concat());
        let size = u16::try_from(switches().len()).unwrap_or(0).to_le_bytes();
        inputs.push([b"w", &size[..], &*switches(), &*trace].concat());
    }
    inputs
}
