//! `qSupported`: what the client can do, and what this server can.

use super::frame::PACKET_SIZE_BYTES;

/// What the client said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct ClientFeatures {
    /// It understands `swbreak` stops.
    pub(super) swbreak: bool,
    /// It understands `hwbreak` stops.
    pub(super) hwbreak: bool,
    /// It understands `exec` stops.
    pub(super) exec_events: bool,
    /// It wants all threads in each stop reply.
    pub(super) lists_threads: bool,
    /// It is LLDB, or one of its front ends: gdb alone offers to relocate instructions.
    pub(super) lldb: bool,
}

/// Reads the client's `qSupported`.
pub(super) fn parse(body: &[u8]) -> ClientFeatures {
    let list = body.strip_prefix(b"qSupported:").unwrap_or_default();
    let has = |feature: &[u8]| list.split(|byte| *byte == b';').any(|item| item == feature);
    ClientFeatures {
        swbreak: has(b"swbreak+"),
        hwbreak: has(b"hwbreak+"),
        exec_events: has(b"exec-events+"),
        lists_threads: false,
        lldb: !list.is_empty() && !has(b"qRelocInsn+"),
    }
}

/// Adds this room's features to gdbstub's. Process numbers in thread ids are not offered: one
/// process is served.
pub(super) fn extend(gdbstub: &[u8], catches_calls: bool) -> Vec<u8> {
    let mut features: Vec<&[u8]> = gdbstub
        .split(|byte| *byte == b';')
        .filter(|item| *item != b"multiprocess+" && !item.starts_with(b"PacketSize="))
        .collect();
    let size = format!("PacketSize={PACKET_SIZE_BYTES:x}");
    features.insert(0, size.as_bytes());
    features.extend([
        &b"ReverseStep+"[..],
        b"ReverseContinue+",
        b"qXfer:features:read+",
        b"qXfer:threads:read+",
        b"qXfer:auxv:read+",
        b"qXfer:exec-file:read+",
        b"qXfer:libraries-svr4:read+",
        b"qXfer:siginfo:read+",
        b"QPassSignals+",
        b"QProgramSignals+",
        b"QEnvironmentHexEncoded+",
        b"QEnvironmentReset+",
        b"QEnvironmentUnset+",
        b"QSetWorkingDir+",
        b"QStartupWithShell+",
        b"QDisableRandomization+",
        b"exec-events+",
        b"ConditionalBreakpoints+",
        b"Qbtrace:pt+",
        b"Qbtrace:off+",
        b"Qbtrace-conf:pt:size+",
        b"qXfer:btrace:read+",
        b"qXfer:btrace-conf:read+",
    ]);
    if catches_calls {
        features.push(b"QCatchSyscalls+");
    }
    features.join(&b';')
}
