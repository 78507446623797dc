//! `qSupported`: the features of the client and of this server.

use super::frame::PACKET_SIZE_BYTES;
use super::signals::Numbering;
use super::thread_id;
use crate::common::Tid;
use crate::session::{Forks, Run, Session};

/// The features of a client: those that it announces in `qSupported`, and those that it turns on by
/// later packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub(super) struct ClientFeatures {
    /// True if the client understands `swbreak` stops.
    pub(super) swbreak: bool,
    /// True if the client understands `hwbreak` stops.
    pub(super) hwbreak: bool,
    /// True if the client understands the reply that no resumed thread is left (`N`).
    pub(super) no_resumed: bool,
    /// True if the client understands `exec` stops.
    pub(super) exec_events: bool,
    /// True if thread IDs include the process, in both directions.
    pub(super) multiprocess: bool,
    /// The kinds of forks for which the client understands stops.
    pub(super) forks: Forks,
    /// True if the client wants all threads in each stop reply (`QListThreadsInStopReply`).
    pub(super) lists_threads: bool,
    /// True if the client's packets about registers name their thread (`QThreadSuffixSupported`).
    pub(super) names_threads: bool,
    /// The client's numbering of signals, which a later packet may change.
    pub(super) signals: Numbering,
    /// True if the client expands run-length encoding in replies, as gdb and LLDB do.
    pub(super) expands_runs: bool,
    /// True for LLDB or one of its front ends, recognized by the lack of `qRelocInsn`, which only
    /// gdb offers.
    pub(super) lldb: bool,
}

impl ClientFeatures {
    /// Returns a thread ID in the client's format: with its process if the client knows several and
    /// the process is known.
    pub(super) fn thread_id<R: Run>(self, session: &Session<R>, tid: Tid) -> String {
        let pid = session.run().process_of(tid).filter(|_| self.multiprocess);
        pid.map_or_else(|| thread_id::format(tid), |pid| thread_id::format_with_process(pid, tid))
    }
}

/// Parses the client's `qSupported`. A packet without a list has no features, and is not LLDB's.
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
        // Later packets change these.
        lists_threads: false,
        names_threads: false,
        signals: Numbering::Gdb,
        // gdb and LLDB announce this, simpler clients do not.
        expands_runs: list
            .split(|byte| *byte == b';')
            .any(|item| item.starts_with(b"xmlRegisters=")),
        // LLDB expects IDs of processes only if it knows forks: it detaches from one of two
        // processes by its ID.
        multiprocess: has(b"multiprocess+") && (!lldb || forks != Forks::default()),
        forks,
        lldb,
    }
}

/// Returns the reply to `qSupported`: gdbstub's features, and those that this server has besides.
/// Processes and forks are offered only to a client with these features, and stops at system calls
/// only if the run `catches_calls`.
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
    fn forks_are_reported_to_those_who_know_several_processes() {
        let client = parse(b"qSupported:multiprocess+;fork-events+;vfork-events+;qRelocInsn+");
        assert_eq!(client.forks, Forks { fork: true, vfork: true });
        let offered = String::from_utf8(extend(b"multiprocess+;swbreak+", client, false)).unwrap();
        for feature in ["multiprocess+", "fork-events+", "vfork-events+"] {
            assert_eq!(offered.split(';').filter(|item| *item == feature).count(), 1, "{offered}");
        }
        // Without process IDs there are no forks; LLDB does not expect the IDs without forks.
        for alone in [&b"qSupported:fork-events+;vfork-events+"[..], b"qSupported:multiprocess+"] {
            let client = parse(alone);
            assert_eq!((client.multiprocess, client.forks), (false, Forks::default()));
            let offered = extend(b"multiprocess+;swbreak+", client, false);
            assert!(!String::from_utf8(offered).unwrap().contains("process+"));
        }
        // LLDB detaches from one of two processes by its ID.
        let client = parse(b"qSupported:multiprocess+;fork-events+");
        assert_eq!((client.lldb, client.multiprocess, client.forks.fork), (true, true, true));
        let client = parse(b"qSupported:multiprocess+;qRelocInsn+");
        assert_eq!((client.multiprocess, client.forks), (true, Forks::default()));
    }
}
