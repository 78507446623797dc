//! What an audit found.

use contraflow::syscalls::{Call, Model, ioctl_requests};
use std::collections::{BTreeMap, BTreeSet};

/// Calls whose argument names what they do, and which.
const MULTIPLEXED: [(&str, usize); 18] = [
    ("ioctl", 1),
    ("fcntl", 1),
    ("prctl", 0),
    ("arch_prctl", 0),
    ("futex", 1),
    ("shmctl", 1),
    ("semctl", 2),
    ("msgctl", 1),
    ("ptrace", 0),
    ("keyctl", 0),
    ("bpf", 0),
    ("seccomp", 0),
    ("syslog", 0),
    ("modify_ldt", 0),
    ("madvise", 2),
    ("sysfs", 0),
    ("getsockopt", 2),
    ("quotactl", 0),
];

/// A call by name, and by operation where it has some.
pub(super) fn variant(call: &Call) -> String {
    let Some(model) = Model::by_number(call.number) else { return format!("call {}", call.number) };
    let selector = MULTIPLEXED.iter().find(|(name, _)| *name == model.name);
    let Some((name, arg)) = selector else { return model.name.to_owned() };
    let operation = call.args[*arg] & 0xffff_ffff;
    let named =
        |request: &&contraflow::syscalls::IoctlRequest| u64::from(request.number) == operation;
    match ioctl_requests().find(named).filter(|_| *name == "ioctl") {
        Some(request) => format!("{name} {}", request.name),
        None => format!("{name} {operation:#x}"),
    }
}

/// How many bytes were claimed and how many changed, in one call.
#[derive(Clone, Copy, Default)]
pub(super) struct Width {
    pub(super) claimed: u64,
    pub(super) changed: u64,
}

#[derive(Default)]
pub(super) struct Report {
    /// Calls that succeeded, and those that failed.
    pub(super) succeeded: BTreeMap<String, u64>,
    pub(super) failed: BTreeMap<String, BTreeSet<i64>>,
    /// The most that a variant changed, with what was claimed then.
    pub(super) widths: BTreeMap<String, Width>,
    pub(super) unknown: BTreeSet<String>,
    pub(super) assumed: BTreeSet<String>,
    pub(super) faults: Vec<String>,
    /// Bytes that the end of a thread explains.
    pub(super) written_at_ends: u64,
}

impl Report {
    pub(super) fn count(&mut self, variant: &str, result: i64) {
        if (-4095..0).contains(&result) {
            self.failed.entry(variant.to_owned()).or_default().insert(-result);
        } else {
            *self.succeeded.entry(variant.to_owned()).or_default() += 1;
        }
    }

    pub(super) fn measure(&mut self, variant: &str, width: Width) {
        let widest = self.widths.entry(variant.to_owned()).or_default();
        if width.changed > widest.changed || widest.claimed == 0 {
            *widest = width;
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (variant, count) in other.succeeded {
            *self.succeeded.entry(variant).or_default() += count;
        }
        for (variant, errors) in other.failed {
            self.failed.entry(variant).or_default().extend(errors);
        }
        for (variant, width) in other.widths {
            self.measure(&variant, width);
        }
        self.unknown.extend(other.unknown);
        self.assumed.extend(other.assumed);
        self.faults.extend(other.faults);
        self.written_at_ends += other.written_at_ends;
    }
}
