//! The target description: the server's registers, under gdb's names and features.

use super::numbers;
use crate::session::{KnownRegisters, Register};
use std::fmt::Write;

/// SSE vector types, as gdb's own description of the feature defines them.
const VECTORS: &str = concat!(
    r#"<vector id="v8bf16" type="bfloat16" count="8"/><vector id="v4f" type="ieee_single" count="4"/>"#,
    r#"<vector id="v2d" type="ieee_double" count="2"/><vector id="v16i8" type="int8" count="16"/>"#,
    r#"<vector id="v8i16" type="int16" count="8"/><vector id="v4i32" type="int32" count="4"/>"#,
    r#"<vector id="v2i64" type="int64" count="2"/><union id="vec128">"#,
    r#"<field name="v8_bfloat16" type="v8bf16"/><field name="v4_float" type="v4f"/>"#,
    r#"<field name="v2_double" type="v2d"/><field name="v16_int8" type="v16i8"/>"#,
    r#"<field name="v8_int16" type="v8i16"/><field name="v4_int32" type="v4i32"/>"#,
    r#"<field name="v2_int64" type="v2i64"/><field name="uint128" type="uint128"/></union>"#,
);

/// The type of the upper halves of AVX-512 registers.
const HALVES: &str = r#"<vector id="v2ui128" type="uint128" count="2"/>"#;

const FLAGS: &str = concat!(
    r#"<flags id="i386_eflags" size="4"><field name="" start="22" end="31"/>"#,
    r#"<field name="CF" start="0" end="0"/><field name="" start="1" end="1"/>"#,
    r#"<field name="PF" start="2" end="2"/><field name="AF" start="4" end="4"/>"#,
    r#"<field name="ZF" start="6" end="6"/><field name="SF" start="7" end="7"/>"#,
    r#"<field name="TF" start="8" end="8"/><field name="IF" start="9" end="9"/>"#,
    r#"<field name="DF" start="10" end="10"/><field name="OF" start="11" end="11"/>"#,
    r#"<field name="NT" start="14" end="14"/><field name="RF" start="16" end="16"/>"#,
    r#"<field name="VM" start="17" end="17"/><field name="AC" start="18" end="18"/>"#,
    r#"<field name="VIF" start="19" end="19"/><field name="VIP" start="20" end="20"/>"#,
    r#"<field name="ID" start="21" end="21"/></flags>"#,
);

const MXCSR: &str = concat!(
    r#"<flags id="i386_mxcsr" size="4"><field name="IE" start="0" end="0"/>"#,
    r#"<field name="DE" start="1" end="1"/><field name="ZE" start="2" end="2"/>"#,
    r#"<field name="OE" start="3" end="3"/><field name="UE" start="4" end="4"/>"#,
    r#"<field name="PE" start="5" end="5"/><field name="DAZ" start="6" end="6"/>"#,
    r#"<field name="IM" start="7" end="7"/><field name="DM" start="8" end="8"/>"#,
    r#"<field name="ZM" start="9" end="9"/><field name="OM" start="10" end="10"/>"#,
    r#"<field name="UM" start="11" end="11"/><field name="PM" start="12" end="12"/>"#,
    r#"<field name="FZ" start="15" end="15"/></flags>"#,
);

/// The available vector registers; each variant includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Vectors {
    /// XMM0 to XMM15.
    Sse,
    /// The upper halves of YMM0 to YMM15.
    Avx,
    /// The masks, and the vectors of 512 bits.
    Avx512,
}

impl Vectors {
    /// Returns the largest vectors of which a thread's registers are known; [`Self::Sse`] if none
    /// is.
    pub(super) fn of(registers: &KnownRegisters) -> Self {
        match (registers.has_avx512(), registers.has_avx()) {
            (true, _) => Self::Avx512,
            (_, true) => Self::Avx,
            _ => Self::Sse,
        }
    }

    /// Returns true if a target description with these vectors has the register, as it has all that
    /// are not of AVX or AVX-512.
    fn include(self, register: Register) -> bool {
        (self >= Self::Avx || !register.is_avx()) && (self == Self::Avx512 || !register.is_avx512())
    }
}

/// Returns the registers that the target description contains.
pub(super) fn registers_of(vectors: Vectors) -> Vec<Register> {
    numbers::registers().filter(|register| vectors.include(*register)).collect()
}

/// Returns the target description, `target.xml`, with the registers of [`registers_of`].
pub(super) fn describe(vectors: Vectors) -> String {
    let mut xml = String::from(
        r#"<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd"><target version="1.0"><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>"#,
    );
    let registers = registers_of(vectors);
    for (feature, types) in [
        ("org.gnu.gdb.i386.core", FLAGS.to_owned()),
        ("org.gnu.gdb.i386.sse", format!("{VECTORS}{MXCSR}")),
        ("org.gnu.gdb.i386.linux", String::new()),
        ("org.gnu.gdb.i386.segments", String::new()),
        ("org.gnu.gdb.i386.avx", String::new()),
        ("org.gnu.gdb.i386.avx512", format!("{VECTORS}{HALVES}")),
    ] {
        let of_feature = registers.iter().filter(|register| feature_of(**register) == feature);
        let of_feature: String = of_feature.filter_map(|register| element(*register)).collect();
        if !of_feature.is_empty() {
            // Writes to a string cannot fail.
            let _ = write!(xml, r#"<feature name="{feature}">{types}{of_feature}</feature>"#);
        }
    }
    xml.push_str("</target>");
    xml
}

/// Returns the feature in which gdb expects a register.
fn feature_of(register: Register) -> &'static str {
    if register.is_avx512() {
        return "org.gnu.gdb.i386.avx512";
    }
    let name = register.name();
    match name.as_str() {
        "orig_rax" => "org.gnu.gdb.i386.linux",
        "fs_base" | "gs_base" => "org.gnu.gdb.i386.segments",
        "mxcsr" => "org.gnu.gdb.i386.sse",
        name if name.starts_with("xmm") => "org.gnu.gdb.i386.sse",
        name if name.starts_with("ymm") => "org.gnu.gdb.i386.avx",
        _ => "org.gnu.gdb.i386.core",
    }
}

/// Returns the XML element of a register; `None` for a register without a gdb number.
fn element(register: Register) -> Option<String> {
    let name = register.name();
    let (kind, group) = match name.as_str() {
        "rip" => ("code_ptr", ""),
        "rsp" | "rbp" => ("data_ptr", ""),
        "eflags" => ("i386_eflags", ""),
        "mxcsr" => ("i386_mxcsr", "vector"),
        // st0 to st7.
        name if name.starts_with("st") => ("i387_ext", ""),
        name if name.starts_with("xmm") => ("vec128", ""),
        name if name.starts_with("ymm") => ("uint128", ""),
        name if name.starts_with("zmm") => ("v2ui128", ""),
        // The masks of AVX-512: k0 to k7.
        name if name.starts_with('k') => ("uint64", ""),
        // The control registers of the x87 FPU: fctrl to fop, but neither fs nor fs_base.
        name if name.starts_with('f') && name.len() > 2 && !name.ends_with("base") => {
            ("int", "float")
        }
        "orig_rax" | "fs_base" | "gs_base" => ("int", ""),
        _ if register.size_bytes() == 4 => ("int32", ""),
        _ => ("int64", ""),
    };
    let group = if group.is_empty() { String::new() } else { format!(r#" group="{group}""#) };
    let (bits, number) = (8 * register.size_bytes(), numbers::number(register)?);
    Some(format!(r#"<reg name="{name}" bitsize="{bits}" type="{kind}" regnum="{number}"{group}/>"#))
}
