//! `qSupported`: what the client can do, and what this server can.

use super::frame::PACKET_SIZE_BYTES;
use super::signals::Numbering;
use super::thread_id;
use crate::common::Tid;
use crate::session::{Forks, Run, Session};

/// What the client said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct ClientFeatures {
    /// It understands `swbreak` stops.
    pub(super) swbreak: bool,
    /// It understands `hwbreak` stops.
    pub(super) hwbreak: bool,
    /// It understands that no thread runs any more.
    pub(super) no_resumed: bool,
    /// It understands `exec` stops.
    pub(super) exec_events: bool,
    /// It names the process with each thread, and so do we.
    pub(super) multiprocess: bool,
    /// The births of processes that it understands stops for.
    pub(super) forks: Forks,
    /// It wants all threads in each stop reply.
    pub(super) lists_threads: bool,
    /// Its packets about registers name their thread.
    pub(super) names_threads: bool,
    /// How it numbers signals.
    pub(super) signals: Numbering,
    /// It is a debugger that expands runs in replies, as gdb and LLDB do.
    pub(super) expands_runs: bool,
    /// It is LLDB, or one of its front ends: gdb alone offers to relocate instructions.
    pub(super) lldb: bool,
}

impl ClientFeatures {
    /// A thread id as this client has it.
    pub(super) fn thread_id<R: Run>(self, session: &Session<R>, tid: Tid) -> String {
        let pid = session.run().process_of(tid).filter(|_| self.multiprocess);
        pid.map_or_else(|| thread_id::format(tid), |pid| thread_id::format_both(pid, tid))
    }
}

/// Reads the client's `qSupported`.
pub(super) fn parse(body: &[u8]) -> ClientFeatures {
    let list = body.strip_prefix(b"qSupported:").unwrap_or_default();
    let has = |feature: &[u8]| list.split(|byte| *byte == b';').any(|item| item == feature);
    let lldb = !list.is_empty() && !has(b"qRelocInsn+");
    let wants = |feature: &[u8]| has(b"multiprocess+") && has(feature);
    let forks = Forks { fork: wants(b"fork-events+"), vfork: wants(b"vfork-events+") };
    ClientFeatures {
        swbreak: has(b"swbreak+"),
        hwbreak: has(b"hwbreak+"),
        no_resumed: has(b"no-resumed+"),
        exec_events: has(b"exec-events+"),
        lists_threads: false,
        names_threads: false,
        signals: Numbering::Gdb,
        expands_runs: list
            .split(|byte| *byte == b';')
            .any(|item| item.starts_with(b"xmlRegisters=")),
        multiprocess: forks != Forks::default(),
        forks,
        lldb,
    }
}

/// Adds this room's features to gdbstub's. Process numbers in thread ids are offered to clients that
/// are told of forks, and to no others: one process is served.
pub(super) fn extend(gdbstub: &[u8], client: ClientFeatures, catches_calls: bool) -> Vec<u8> {
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
        b"qXfer:siginfo:write+",
        b"QPassSignals+",
        b"QProgramSignals+",
        b"QEnvironmentHexEncoded+",
        b"QEnvironmentReset+",
        b"QEnvironmentUnset+",
        b"QSetWorkingDir+",
        b"QStartupWithShell+",
        b"QDisableRandomization+",
        b"exec-events+",
        b"no-resumed+",
        b"ConditionalBreakpoints+",
        b"Qbtrace:pt+",
        b"Qbtrace:off+",
        b"Qbtrace-conf:pt:size+",
        b"qXfer:btrace:read+",
        b"qXfer:btrace-conf:read+",
    ]);
    let offers = [
        (client.multiprocess, &b"multiprocess+"[..]),
        (client.forks.fork, b"fork-events+"),
        (client.forks.vfork, b"vfork-events+"),
    ];
    features.extend(offers.iter().filter(|(is_offered, _)| *is_offered).map(|(_, name)| name));
    if catches_calls {
        features.push(b"QCatchSyscalls+");
    }
    features.join(&b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_told_to_those_who_know_several_processes() {
        let client = parse(b"qSupported:multiprocess+;fork-events+;vfork-events+;qRelocInsn+");
        assert_eq!(client.forks, Forks { fork: true, vfork: true });
        let offered = String::from_utf8(extend(b"multiprocess+;swbreak+", client, false)).unwrap();
        for feature in ["multiprocess+", "fork-events+", "vfork-events+"] {
            assert_eq!(offered.split(';').filter(|item| *item == feature).count(), 1, "{offered}");
        }
        for alone in [&b"qSupported:fork-events+;vfork-events+"[..], b"qSupported:multiprocess+"] {
            let client = parse(alone);
            assert_eq!((client.multiprocess, client.forks), (false, Forks::default()));
            let offered = extend(b"multiprocess+;swbreak+", client, false);
            assert!(!String::from_utf8(offered).unwrap().contains("process+"));
        }
    }
}
