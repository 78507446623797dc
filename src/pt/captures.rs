//! Real captures for tests. They are not part of the project; tests that do not find them print a
//! notice and pass.

use super::{Packet, Packets};
use std::path::PathBuf;

/// Reads a file of the conformance captures; `None`, and a notice on stderr, if it is missing.
pub(super) fn capture(path: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("CONTRAFLOW_CONFORMANCE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    let bytes = std::fs::read(folder.join(path)).ok();
    if bytes.is_none() {
        // Not eprintln!, which the test harness captures.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!(
                "SKIPPED: no {path} in {}; set CONTRAFLOW_CONFORMANCE\n",
                folder.display()
            ),
        );
    }
    bytes
}

/// Returns the packets of a capture that has no fault.
pub(super) fn packets(trace: &[u8]) -> impl Iterator<Item = Packet> {
    Packets::synced(trace).map(|(offset, packet)| match packet {
        Ok(packet) => packet,
        Err(error) => panic!("at {offset:#x}: {error}"),
    })
}

/// Compares with the counts of another decoder.
#[test]
fn captured_packets_are_all_known() {
    let captures = [
        ("dynamorio/hello-cyc/pt.bin", [545, 538, 0]),
        ("dynamorio/hello-libc/pt.bin", [4577, 1467, 2810]),
    ];
    for (path, expected) in captures {
        let Some(trace) = capture(path) else { return };
        let mut found = [0; 3];
        for packet in packets(&trace) {
            match packet {
                Packet::Cyc(_) => found[0] += 1,
                Packet::Mtc(_) => found[1] += 1,
                Packet::TntShort(_) | Packet::TntLong(_) => found[2] += 1,
                _ => {}
            }
        }
        assert_eq!(found, expected, "CYC, MTC and TNT in {path}");
    }
    let others = [
        "hase/control_flow-20180404T163033/perf.data.1-aux-idx1.bin",
        "hase/loopy-20180514T145114/perf.data.1-aux-idx1.bin",
        "lldb/intelpt-trace/3842849.trace",
        "lldb/intelpt-trace-multi-file/multi-file.trace",
        "lldb/intelpt-multi-core-trace/cores/45.intelpt_trace",
        "lldb/intelpt-multi-core-trace/cores/51.intelpt_trace",
    ];
    for trace in others.into_iter().filter_map(capture) {
        assert!(packets(&trace).count() > 50);
    }
}
