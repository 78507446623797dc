//! ioctl(2).

use super::{BASE, Effects, FakeMemory, call, written};
use crate::common::{Addr, AddrRange};
use crate::syscalls::ioctl_requests;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

fn effects(request: u64, result: i64) -> Effects {
    let memory = |_: Addr, _: &mut [u8]| 0;
    call("ioctl", &[3, request, 0x100]).begin(&memory).end(result, &memory)
}

fn sized(size_bytes: u64) -> Vec<AddrRange> {
    vec![AddrRange::sized(Addr(0x100), size_bytes)]
}

#[test]
fn irregular_requests_are_in_the_table() {
    assert_eq!(effects(0x5401, 0), Effects::Known(sized(36)));
    assert_eq!(effects(0x5421, 0), Effects::Known(Vec::new()));
    assert_eq!(effects(0x8004_b706, 1), Effects::Known(Vec::new()));
}

#[test]
fn numbers_encode_regular_requests() {
    // EVIOCGNAME(32), RTC_RD_TIME, and one of an unlisted kind.
    assert_eq!(effects(0x8020_4506, 5), Effects::Known(sized(32)));
    assert_eq!(effects(0x8024_7009, 0), Effects::Known(sized(36)));
    assert_eq!(effects(0x8010_9901, 0), Effects::Assumed(sized(16)));
    assert_eq!(effects(0x4010_9901, 0), Effects::Assumed(Vec::new()));
}

#[test]
fn numbers_with_a_wrong_size_or_direction_are_in_the_table() {
    // PPS_GETPARAMS, PPS_FETCH: the number has the size of a pointer to the structure.
    assert_eq!(effects(0x8008_70a1, 0), Effects::Known(sized(40)));
    assert_eq!(effects(0xc008_70a4, 0), Effects::Known(sized(64)));
    // PPS_GETCAP writes an int.
    assert_eq!(effects(0x8008_70a3, 0), Effects::Known(sized(4)));
    // RTC_PARAM_GET and IOC_OPAL_GET_LR_STATUS encode a read; IOC_OPAL_DISCOVERY has a pointer.
    assert_eq!(effects(0x4018_7013, 0), Effects::Known(sized(24)));
    assert_eq!(effects(0x4130_70ed, 0), Effects::Known(sized(304)));
    assert_eq!(effects(0x4010_70ef, 0), Effects::Unknown);
}

#[test]
fn requests_without_direction_are_unknown() {
    // A number without direction, and a graphics card's, whose structures hold pointers.
    assert_eq!(effects(0x9901, 0), Effects::Unknown);
    assert_eq!(effects(0xc010_64b2, 0), Effects::Unknown);
    // A device that does not know the request wrote nothing.
    assert_eq!(effects(0x9901, -25), Effects::Known(Vec::new()));
    assert_eq!(effects(0x9901, -14), Effects::Unknown);
}

#[test]
fn requests_may_point_to_buffers() {
    let scene = FakeMemory::new();
    scene.put32(BASE, 400).put64(BASE + 8, 0x500);
    let open = scene.begin("ioctl", &[3, 0x8912, BASE]);
    scene.put32(BASE, 80);
    assert_eq!(scene.end(&open, 0), [(BASE, 4), (0x500, 80)]);
    scene.put32(BASE + 24, 5).put32(BASE + 20, 2);
    assert_eq!(scene.whole("ioctl", &[3, 0xc020_660b, BASE], 0), [(BASE, 32 + 2 * 56)]);
    assert_eq!(written("ioctl", &[3, 0xffff_ffff_0000_5413, 0x100], 0), [(0x100, 8)]);
}

#[test]
fn no_request_is_listed_twice() {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = ioctl_requests().filter(|row| !seen.insert(row.number)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// Compiles a program of assertions, one for each name that the machine's headers have.
#[test]
fn numbers_are_those_of_the_kernels_headers() {
    let mut source = HEADERS.iter().fold(String::new(), |mut source, header| {
        let _ = writeln!(source, "#if __has_include(<{header}>)\n#include <{header}>\n#endif");
        source
    });
    for row in ioctl_requests() {
        let (name, number) = (row.name, row.number);
        let assertion = format!("_Static_assert((unsigned){name} == {number:#x}u, \"{name}\");");
        let _ = writeln!(source, "#ifdef {name}\n{assertion}\n#endif");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests.c");
    std::fs::write(&file, source).unwrap();
    match Command::new("gcc").args(["-w", "-fsyntax-only"]).arg(&file).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => super::header::skipped("gcc is not installed"),
    }
}

const HEADERS: [&str; 31] = [
    "asm/termbits.h",
    "linux/serial.h",
    "sys/socket.h",
    "sys/ioctl.h",
    "linux/fs.h",
    "linux/fiemap.h",
    "linux/fscrypt.h",
    "linux/fsverity.h",
    "linux/nsfs.h",
    "linux/inotify.h",
    "linux/seccomp.h",
    "linux/perf_event.h",
    "linux/userfaultfd.h",
    "linux/sockios.h",
    "linux/wireless.h",
    "linux/if_tun.h",
    "linux/blkzoned.h",
    "linux/hdreg.h",
    "linux/loop.h",
    "linux/dm-ioctl.h",
    "linux/kd.h",
    "linux/vt.h",
    "linux/fb.h",
    "linux/cdrom.h",
    "scsi/sg.h",
    "linux/nvme_ioctl.h",
    "linux/i2c-dev.h",
    "linux/input.h",
    "linux/pps.h",
    "linux/rtc.h",
    "linux/sed-opal.h",
];
