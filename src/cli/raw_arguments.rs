//! The arguments that describe a raw trace: its bytes, its code, and its settings.

use crate::common::{Addr, AddrRange};
use crate::pt::{Cpu, CrystalRatio};
use clap::Args;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A raw trace and its settings. Addresses, offsets and sizes are hexadecimal.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Raw {
    /// A file of raw Intel PT bytes
    #[arg(long, value_name = "FILE")]
    pub(super) pt: Option<PathBuf>,
    /// A program or library that ran, with the address of its lowest page (hexadecimal; its linked
    /// address if not given)
    #[arg(long, value_name = "FILE[@ADDR]", requires = "pt")]
    pub(super) elf: Vec<ElfAt>,
    /// Code at an address: a whole file, or SIZE bytes of it from OFFSET on (all hexadecimal)
    #[arg(long, value_name = "FILE@ADDR[:OFFSET:SIZE]", requires = "pt")]
    pub(super) code: Vec<CodeAt>,
    /// A file of lines ADDR SIZE OFFSET PATH (hexadecimal); if ranges overlap, the first counts
    #[arg(long, value_name = "LIST", requires = "pt")]
    pub(super) code_list: Option<PathBuf>,
    /// A core file of the process
    #[arg(long, value_name = "FILE")]
    pub(super) core: Option<PathBuf>,
    /// The IP filter of the trace: first and last address (hexadecimal)
    #[arg(long, value_name = "A-B", requires = "pt")]
    pub(super) filter_range: Vec<Filter>,
    /// The processor, whose errata are worked around
    #[arg(long, value_name = "F/M[/S]", requires = "pt")]
    pub(super) cpu: Option<Cpu>,
    /// The `MTCFreq` setting of the trace
    #[arg(long, value_name = "N", requires = "pt", value_parser = clap::value_parser!(u8).range(0..16))]
    pub(super) mtc_freq: Option<u8>,
    /// The processor's ratio of TSC to crystal clock, from CPUID leaf 15H
    #[arg(long, value_name = "EBX/EAX", requires = "pt")]
    pub(super) cpuid_15: Option<Crystal>,
    /// The processor's nominal frequency, in 100 MHz
    #[arg(long, value_name = "N", requires = "pt")]
    pub(super) nom_freq: Option<u8>,
}

/// The value of `--elf`, `FILE[@ADDR]`: an ELF file, and the address of its lowest page. If the
/// whole text is the path of a file, it has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ElfAt {
    pub(super) path: PathBuf,
    pub(super) addr: Option<Addr>,
}

/// The value of `--code`, `FILE@ADDR[:OFFSET:SIZE]`: code in a file, and its address. The last `@`
/// is the one before the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeAt {
    pub(super) path: PathBuf,
    pub(super) addr: Addr,
    /// The offset and size of the code in the file, in bytes; `None` for the whole file.
    pub(super) part: Option<(u64, u64)>,
}

/// The value of `--filter-range`, `A-B`: the addresses from A to B, both included. A is not after
/// B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter(pub(super) AddrRange);

/// The value of `--cpuid-15`, `EBX/EAX`: the ratio of TSC to crystal clock. The numbers are
/// decimal, or hexadecimal with `0x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crystal(pub(super) CrystalRatio);

/// Parses a hexadecimal number, with or without `0x`; `None` if the text is no such number, or the
/// number is larger than 64 bits.
pub(super) fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // from_str_radix would accept a sign.
    digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

impl FromStr for ElfAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = Self { path: text.into(), addr: None };
        let Some((path, addr)) = text.rsplit_once('@').filter(|_| !Path::new(text).exists()) else {
            return Ok(whole);
        };
        let addr = hexadecimal(addr).ok_or_else(|| format!("{addr:?} is not an address"))?;
        Ok(Self { path: path.into(), addr: Some(Addr(addr)) })
    }
}

impl FromStr for CodeAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give FILE@ADDR or FILE@ADDR:OFFSET:SIZE, in hexadecimal".to_owned();
        let (path, rest) = text.rsplit_once('@').ok_or_else(wrong)?;
        let numbers: Option<Vec<u64>> = rest.split(':').map(hexadecimal).collect();
        let (addr, part) = match numbers.ok_or_else(wrong)?.as_slice() {
            [addr] => (*addr, None),
            [addr, offset, size] => (*addr, Some((*offset, *size))),
            _ => return Err(wrong()),
        };
        Ok(Self { path: path.into(), addr: Addr(addr), part })
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('-').and_then(|(a, b)| hexadecimal(a).zip(hexadecimal(b)));
        match numbers {
            Some((first, last)) if first <= last => {
                Ok(Self(AddrRange::new(Addr(first), Addr(last.saturating_add(1)))))
            }
            _ => Err("give the first and the last address, in hexadecimal, as in 401000-401fff"
                .to_owned()),
        }
    }
}

impl FromStr for Crystal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let numbers = text.split_once('/').and_then(|(b, a)| number(b).zip(number(a)));
        let (ebx, eax) = numbers.ok_or("give EBX/EAX, as in 308/2")?;
        Ok(Self(CrystalRatio { ebx, eax }))
    }
}
