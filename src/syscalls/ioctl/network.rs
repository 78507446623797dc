//! Sockets, network interfaces, wireless, tunnels (include/uapi/linux/sockios.h, wireless.h,
//! `if_tun.h`).

use super::{IoctlRequest, request, silent, unknown};
use crate::syscalls::value::{u16_at, u32_at, u64_at};
use crate::syscalls::write::{Write, at_pointer, structure};

const INT: u64 = 4;
const TIMEVAL: u64 = 16;
/// `struct ifreq`, which most requests of interfaces read and write.
const IFREQ: Write = structure(2, 40);
/// `struct iwreq`.
const IWREQ: Write = structure(2, 32);
/// `struct iwreq` with a `struct iw_point`: a pointer to data, and their size in bytes.
const IW_POINT: &[Write] =
    &[IWREQ, at_pointer(u64_at(2, 16), u16_at(2, 24), 1).counted_by(u16_at(2, 24))];
/// `struct ifconf`: the size of a buffer in bytes, and a pointer to it.
const IFCONF: &[Write] =
    &[structure(2, INT), at_pointer(u64_at(2, 8), u32_at(2, 0), 1).counted_by(u32_at(2, 0))];

pub(super) const REQUESTS: &[IoctlRequest] = &[
    silent(0x8901, "FIOSETOWN"),
    silent(0x8902, "SIOCSPGRP"),
    request(0x8903, "FIOGETOWN", &[structure(2, INT)]),
    request(0x8904, "SIOCGPGRP", &[structure(2, INT)]),
    request(0x8905, "SIOCATMARK", &[structure(2, INT)]),
    request(0x8906, "SIOCGSTAMP_OLD", &[structure(2, TIMEVAL)]),
    request(0x8907, "SIOCGSTAMPNS_OLD", &[structure(2, TIMEVAL)]),
    request(0x8010_8906, "SIOCGSTAMP_NEW", &[structure(2, TIMEVAL)]),
    request(0x8010_8907, "SIOCGSTAMPNS_NEW", &[structure(2, TIMEVAL)]),
    silent(0x890b, "SIOCADDRT"),
    silent(0x890c, "SIOCDELRT"),
    request(0x8910, "SIOCGIFNAME", &[IFREQ]),
    silent(0x8911, "SIOCSIFLINK"),
    request(0x8912, "SIOCGIFCONF", IFCONF),
    request(0x8913, "SIOCGIFFLAGS", &[IFREQ]),
    request(0x8914, "SIOCSIFFLAGS", &[IFREQ]),
    request(0x8915, "SIOCGIFADDR", &[IFREQ]),
    request(0x8916, "SIOCSIFADDR", &[IFREQ]),
    request(0x8917, "SIOCGIFDSTADDR", &[IFREQ]),
    request(0x8918, "SIOCSIFDSTADDR", &[IFREQ]),
    request(0x8919, "SIOCGIFBRDADDR", &[IFREQ]),
    request(0x891a, "SIOCSIFBRDADDR", &[IFREQ]),
    request(0x891b, "SIOCGIFNETMASK", &[IFREQ]),
    request(0x891c, "SIOCSIFNETMASK", &[IFREQ]),
    request(0x891d, "SIOCGIFMETRIC", &[IFREQ]),
    request(0x891e, "SIOCSIFMETRIC", &[IFREQ]),
    request(0x891f, "SIOCGIFMEM", &[IFREQ]),
    request(0x8920, "SIOCSIFMEM", &[IFREQ]),
    request(0x8921, "SIOCGIFMTU", &[IFREQ]),
    request(0x8922, "SIOCSIFMTU", &[IFREQ]),
    request(0x8923, "SIOCSIFNAME", &[IFREQ]),
    request(0x8924, "SIOCSIFHWADDR", &[IFREQ]),
    request(0x8925, "SIOCGIFENCAP", &[IFREQ]),
    request(0x8926, "SIOCSIFENCAP", &[IFREQ]),
    request(0x8927, "SIOCGIFHWADDR", &[IFREQ]),
    request(0x8929, "SIOCGIFSLAVE", &[IFREQ]),
    request(0x8930, "SIOCSIFSLAVE", &[IFREQ]),
    request(0x8931, "SIOCADDMULTI", &[IFREQ]),
    request(0x8932, "SIOCDELMULTI", &[IFREQ]),
    request(0x8933, "SIOCGIFINDEX", &[IFREQ]),
    request(0x8934, "SIOCSIFPFLAGS", &[IFREQ]),
    request(0x8935, "SIOCGIFPFLAGS", &[IFREQ]),
    request(0x8936, "SIOCDIFADDR", &[IFREQ]),
    request(0x8937, "SIOCSIFHWBROADCAST", &[IFREQ]),
    request(0x8938, "SIOCGIFCOUNT", &[IFREQ]),
    request(0x8942, "SIOCGIFTXQLEN", &[IFREQ]),
    request(0x8943, "SIOCSIFTXQLEN", &[IFREQ]),
    // A pointer leads to structures of a hundred kinds.
    unknown(0x8946, "SIOCETHTOOL"),
    request(0x8947, "SIOCGMIIPHY", &[IFREQ]),
    request(0x8948, "SIOCGMIIREG", &[IFREQ]),
    request(0x8949, "SIOCSMIIREG", &[IFREQ]),
    request(0x894b, "SIOCOUTQNSD", &[structure(2, INT)]),
    silent(0x894c, "SIOCGSKNS"),
    silent(0x8953, "SIOCDARP"),
    request(0x8954, "SIOCGARP", &[structure(2, 68)]),
    silent(0x8955, "SIOCSARP"),
    request(0x8970, "SIOCGIFMAP", &[IFREQ]),
    request(0x8971, "SIOCSIFMAP", &[IFREQ]),
    request(0x8b00, "SIOCSIWCOMMIT", &[IWREQ]),
    request(0x8b01, "SIOCGIWNAME", &[IWREQ]),
    request(0x8b05, "SIOCGIWFREQ", &[IWREQ]),
    request(0x8b07, "SIOCGIWMODE", &[IWREQ]),
    request(0x8b09, "SIOCGIWSENS", &[IWREQ]),
    request(0x8b0b, "SIOCGIWRANGE", IW_POINT),
    request(0x8b15, "SIOCGIWAP", &[IWREQ]),
    request(0x8b19, "SIOCGIWSCAN", IW_POINT),
    request(0x8b1b, "SIOCGIWESSID", IW_POINT),
    request(0x8b1d, "SIOCGIWNICKN", IW_POINT),
    request(0x8b21, "SIOCGIWRATE", &[IWREQ]),
    request(0x8b23, "SIOCGIWRTS", &[IWREQ]),
    request(0x8b25, "SIOCGIWFRAG", &[IWREQ]),
    request(0x8b27, "SIOCGIWTXPOW", &[IWREQ]),
    request(0x8b29, "SIOCGIWRETRY", &[IWREQ]),
    request(0x8b2b, "SIOCGIWENCODE", IW_POINT),
    request(0x8b2d, "SIOCGIWPOWER", &[IWREQ]),
    // These numbers encode an int, but the kernel writes a struct ifreq.
    request(0x4004_54ca, "TUNSETIFF", &[IFREQ]),
    request(0x8004_54d2, "TUNGETIFF", &[IFREQ]),
    request(0x8004_54cf, "TUNGETFEATURES", &[structure(2, INT)]),
    request(0x8004_54d3, "TUNGETSNDBUF", &[structure(2, INT)]),
    request(0x8004_54d7, "TUNGETVNETHDRSZ", &[structure(2, INT)]),
    silent(0x4004_54cb, "TUNSETPERSIST"),
];
