//! Sessions of gdb and LLDB with the server: a packet a line.

/// As gdb connects, looks around, sets breakpoints, runs both ways and leaves.
const GDB: &str = "\
qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;xmlRegisters=i386
vMustReplyEmpty
QStartNoAckMode
Hg0
qXfer:features:read:target.xml:0,ffb
qXfer:threads:read::0,1000
qAttached
Hc-1
qC
?
qXfer:auxv:read::0,1000
qXfer:exec-file:read:1:0,1000
vFile:setfs:0
vFile:open:2f62696e2f74727565,0,0
vFile:pread:0,1000,0
vFile:fstat:0
vFile:close:0
qXfer:libraries-svr4:read::0,1000
qXfer:siginfo:read::0,1000
qSymbol::
g
p10
m1000,10
x1000,10
Z0,1010,1
Hc1
bc
bs
s
c
z0,1010,1
vCont;r1000,1004:1;c
vCont;s:1;c
qContraflow.stack:1,0,10
qContraflow.line:1,1000,1010
qRcmd,7365656b2033
qRcmd,7768656e
qRcmd,67617073
qRcmd,696e666f
M1000,1:00
P10=00
D";

/// As LLDB does, with a second thread.
const LLDB: &str = "\
!+
QStartNoAckMode
qSupported:xmlRegisters=i386,arm,mips,arc;multiprocess+;fork-events+;vfork-events+
QThreadSuffixSupported
qHostInfo
vCont?
qProcessInfo
?
qXfer:features:read:target.xml:0,fffe
qfThreadInfo
qsThreadInfo
qThreadExtraInfo,2
T2
Hg2
p10
p0
Z1,2002,1
vCont;s:2
vCont;c
bs
bc
z1,2002,1
!\x03
k";

/// Branch tracing, and a line that is not clean.
const BTRACE: &str = "\
qSupported:swbreak+
Qbtrace:pt
Qbtrace-conf:pt:size=10000
qXfer:btrace-conf:read::0,1000
qXfer:btrace:read:all:0,1000
qXfer:btrace:read:new:0,1000
Qbtrace:off
!$qC#00
!-
!+
!$m1000,$qC#b4
qContraflow.select:2
bs
D;1";

/// What both ask beyond that: programs to run, searches, conditions, traces, commands of people.
const MORE: &str = "\
qSupported:swbreak+;ConditionalBreakpoints+;QCatchSyscalls+
!
QEnvironmentReset
QEnvironmentHexEncoded:413d42
QSetWorkingDir:2f746d70
QStartupWithShell:0
QDisableRandomization:0
vRun;2f62696e2f74727565;61
vAttach;1
R00
QCatchSyscalls:1;1;2
QProgramSignals:e;f
qSearch:memory:1000;20;\u{10}\u{10}
qCRC:1000,20
Z0,1010,1;X4,26001027;X1,27
bc
vCont;c
qRcmd,66696e64202a31303130
qRcmd,686973746f7279
qRcmd,6d61726b2061
qRcmd,7365656b20323525
qRcmd,7365656b2061
qRcmd,7374617473
qRcmd,7365656b2d6f6e2d636f6e74696e75652033
s
QListThreadsInStopReply
jThreadsInfo
qThreadStopInfo2
qMemoryRegionInfo:1000
QSaveRegisterState
QRestoreRegisterState:1
jLLDBTraceSupported
jLLDBTraceGetState:{\"type\":\"intel-pt\"}]
jLLDBTraceGetBinaryData:{\"type\":\"intel-pt\",\"kind\":\"iptTrace\",\"tid\":1}]
qRcmd,65786974
k";

/// All four.
pub(crate) fn sessions() -> Vec<Vec<u8>> {
    [GDB, LLDB, BTRACE, MORE].map(|session| session.as_bytes().to_vec()).to_vec()
}
