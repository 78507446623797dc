//! Hints to gdb's user on connecting. At this time gdb shows console output only if it comes with
//! the reply to `qTStatus`, which gdb sends once. contraflow's script keeps gdb from sending this
//! packet.

use super::{frame, hex};

const NO_SCRIPT: &str = "\
contraflow: this gdb has not loaded contraflow's script. Without it, backtrace, finish and
reverse-next do not work in the past. To load it:
  shell contraflow gdbinit > contraflow.gdb
  source contraflow.gdb
";

/// Returns the answer to `qTStatus` as framed packets: the hint as console output, and the empty
/// reply, which means that tracepoints are not supported.
pub(super) fn script_hint() -> Vec<u8> {
    let note = format!("O{}", hex::encode(NO_SCRIPT.as_bytes()));
    [frame::encode(note.as_bytes()), frame::encode(b"")].concat()
}
