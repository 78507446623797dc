//! Virtual consoles, keyboards and frame buffers (include/uapi/linux/kd.h, vt.h, fb.h).

use super::{IoctlRequest, request, silent, unknown};
use crate::syscalls::write::structure;

const INT: u64 = 4;
const VAR_SCREENINFO: u64 = 160;
const FIX_SCREENINFO: u64 = 80;

pub(super) const REQUESTS: &[IoctlRequest] = &[
    silent(0x4b2f, "KIOCSOUND"),
    silent(0x4b30, "KDMKTONE"),
    request(0x4b31, "KDGETLED", &[structure(2, 1)]),
    silent(0x4b32, "KDSETLED"),
    request(0x4b33, "KDGKBTYPE", &[structure(2, 1)]),
    silent(0x4b3a, "KDSETMODE"),
    request(0x4b3b, "KDGETMODE", &[structure(2, INT)]),
    request(0x4b44, "KDGKBMODE", &[structure(2, INT)]),
    silent(0x4b45, "KDSKBMODE"),
    request(0x4b46, "KDGKBENT", &[structure(2, 4)]),
    silent(0x4b47, "KDSKBENT"),
    request(0x4b48, "KDGKBSENT", &[structure(2, 513)]),
    request(0x4b4a, "KDGKBDIACR", &[structure(2, 772)]),
    request(0x4b4c, "KDGETKEYCODE", &[structure(2, 8)]),
    silent(0x4b4d, "KDSETKEYCODE"),
    request(0x4b52, "KDKBDREP", &[structure(2, 8)]),
    request(0x4b62, "KDGKBMETA", &[structure(2, INT)]),
    silent(0x4b63, "KDSKBMETA"),
    request(0x4b64, "KDGKBLED", &[structure(2, 1)]),
    silent(0x4b65, "KDSKBLED"),
    request(0x4b70, "GIO_CMAP", &[structure(2, 48)]),
    unknown(0x4b60, "GIO_FONT"),
    unknown(0x4b66, "GIO_UNIMAP"),
    unknown(0x4b6b, "GIO_FONTX"),
    unknown(0x4b72, "KDFONTOP"),
    request(0x5600, "VT_OPENQRY", &[structure(2, INT)]),
    request(0x5601, "VT_GETMODE", &[structure(2, 8)]),
    silent(0x5602, "VT_SETMODE"),
    request(0x5603, "VT_GETSTATE", &[structure(2, 6)]),
    silent(0x5605, "VT_RELDISP"),
    silent(0x5606, "VT_ACTIVATE"),
    silent(0x5607, "VT_WAITACTIVE"),
    silent(0x5608, "VT_DISALLOCATE"),
    silent(0x560b, "VT_LOCKSWITCH"),
    silent(0x560c, "VT_UNLOCKSWITCH"),
    request(0x4600, "FBIOGET_VSCREENINFO", &[structure(2, VAR_SCREENINFO)]),
    request(0x4601, "FBIOPUT_VSCREENINFO", &[structure(2, VAR_SCREENINFO)]),
    request(0x4602, "FBIOGET_FSCREENINFO", &[structure(2, FIX_SCREENINFO)]),
    unknown(0x4604, "FBIOGETCMAP"),
    silent(0x4605, "FBIOPUTCMAP"),
    request(0x4606, "FBIOPAN_DISPLAY", &[structure(2, VAR_SCREENINFO)]),
    silent(0x4611, "FBIOBLANK"),
];
