//! The kernel's description of the PMU `intel_pt`: its number, the fields of its `config`, and the
//! capabilities of the CPU. Reads a few small files in a directory, which tests fabricate.
//!
//! The names are those of `arch/x86/events/intel/pt.c`; `caps` are hexadecimal and come from CPUID
//! leaf 14H (SDM table "CPUID Leaf 14H Enumeration of Intel Processor Trace Capabilities").

use crate::capture::perf_error::Error;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directory in which the kernel describes all PMUs.
pub(super) const DEVICES: &str = "/sys/bus/event_source/devices";

/// The kernel's description of the PMU `intel_pt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PtPmu {
    /// The PMU's number, for `perf_event_attr.type`.
    pub(super) number: u32,
    fields: BTreeMap<String, Field>,
    caps: BTreeMap<String, u64>,
    /// The number of filter ranges that an event can have.
    pub(super) filter_ranges: usize,
    /// The CPU's nominal (maximum non-turbo) ratio: its frequency in units of 100 MHz; `None` if
    /// unknown.
    pub(super) nominal_ratio: Option<u8>,
    /// EBX and EAX of CPUID leaf 15H, the ratio of the TSC to the core crystal clock; `None` if
    /// unknown.
    pub(super) cpuid_15: Option<(u32, u32)>,
}

/// The place of a field in `perf_event_attr.config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The number of the field's lowest bit.
    low: u32,
    /// The field's number of bits.
    width: u32,
}

impl Field {
    /// Parses `config:N` or `config:N-M`, the numbers of bits; `None` if it is invalid.
    fn parse(text: &str) -> Option<Self> {
        let bits = text.strip_prefix("config:")?;
        let (low, high) = bits.split_once('-').unwrap_or((bits, bits));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high && high < 64).then(|| Self { low, width: high - low + 1 })
    }

    /// Returns the largest value that the field can have.
    pub(super) fn max_value(&self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// Returns `config` with this value in the field. Drops the bits of the value that the field
    /// has no room for.
    pub(super) fn set(&self, config: u64, value: u64) -> u64 {
        let mask = self.max_value() << self.low;
        config & !mask | value << self.low & mask
    }

    /// Returns the field's value in `config`.
    pub(super) fn get(&self, config: u64) -> u64 {
        config >> self.low & self.max_value()
    }
}

impl PtPmu {
    /// Reads the description of `intel_pt` in the directory `devices`. Fails without one, with an
    /// error that depends on whether this CPU has PT, and if a file has an unexpected text.
    pub(super) fn read(devices: &Path) -> Result<Self, Error> {
        let dir = devices.join("intel_pt");
        if !dir.is_dir() {
            return Err(if cpu_has_pt() { Error::NoPmu { path: dir } } else { Error::NoIntelPt });
        }
        let number = number(&dir.join("type"), 10)?.ok_or_else(|| no_number(&dir.join("type")))?;
        let mut fields = BTreeMap::new();
        for (name, path, text) in files(&dir.join("format"))? {
            // Fields of `config1` and so on are not used here.
            if text.starts_with("config:") {
                let field = Field::parse(&text).ok_or_else(|| unreadable(&path, &text))?;
                fields.insert(name, field);
            }
        }
        let mut caps = BTreeMap::new();
        for (name, path, text) in files(&dir.join("caps"))? {
            let value = u64::from_str_radix(&text, 16).map_err(|_| unreadable(&path, &text))?;
            caps.insert(name, value);
        }
        let reported = decimal(&dir.join("nr_addr_filters"))?;
        let ranges = reported.or_else(|| caps.get("num_address_ranges").copied()).unwrap_or(0);
        let nominal = decimal(&dir.join("max_nonturbo_ratio"))?;
        Ok(Self {
            number: u32::try_from(number).map_err(|_| no_number(&dir.join("type")))?,
            fields,
            caps,
            filter_ranges: usize::try_from(ranges).unwrap_or(0),
            nominal_ratio: nominal.and_then(|n| u8::try_from(n).ok()).filter(|ratio| *ratio > 0),
            cpuid_15: tsc_ratio(&dir.join("tsc_art_ratio"))?,
        })
    }

    /// Returns the field of `config` with this name; `None` if there is none.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.get(name)
    }

    /// Returns the names of all fields.
    pub(super) fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// Returns the value of a capability by its name in `caps`; 0 if the kernel does not have it.
    pub(super) fn cap(&self, name: &str) -> u64 {
        self.caps.get(name).copied().unwrap_or(0)
    }
}

/// Returns true if the CPU has PT: bit 25 of EBX in CPUID leaf 7 (SDM volume 2, "CPUID").
pub(super) fn cpu_has_pt() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx >> 25 & 1 != 0
}

/// Returns the error for a file of the PMU that does not exist, or whose number is too large.
fn no_number(path: &Path) -> Error {
    Error::Sysfs { path: path.to_owned(), why: "holds no valid number".to_owned() }
}

/// Returns the error for a file of the PMU with a text that is no such number.
fn unreadable(path: &Path, text: &str) -> Error {
    Error::Sysfs { path: path.to_owned(), why: format!("{text:?} is invalid") }
}

/// Returns the text of a file without white space at its ends; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Sysfs { path: path.to_owned(), why: error.to_string() }),
    }
}

/// Reads a number from a file; `None` if there is no such file. Fails if it has another text.
fn number(path: &Path, radix: u32) -> Result<Option<u64>, Error> {
    let Some(text) = read(path)? else { return Ok(None) };
    u64::from_str_radix(&text, radix).map(Some).map_err(|_| unreadable(path, &text))
}

/// Reads a decimal number from a file; `None` if there is no such file. Fails if it has another
/// text.
fn decimal(path: &Path) -> Result<Option<u64>, Error> {
    number(path, 10)
}

/// Reads a ratio `EBX:EAX` of CPUID leaf 15H, in decimal. Returns `None` if the file does not
/// exist, or if either number is 0, as the CPU does not know the ratio then; an error for any other
/// text.
fn tsc_ratio(path: &Path) -> Result<Option<(u32, u32)>, Error> {
    let Some(text) = read(path)? else { return Ok(None) };
    let parts = text.split_once(':').and_then(|(n, d)| n.parse().ok().zip(d.parse().ok()));
    let (ebx, eax) = parts.ok_or_else(|| unreadable(path, &text))?;
    Ok((ebx > 0 && eax > 0).then_some((ebx, eax)))
}

/// Reads the files of a directory. Returns their names, paths and contents, without white space at
/// the ends; none if there is no directory. Fails if a file cannot be read.
fn files(dir: &Path) -> Result<Vec<(String, PathBuf, String)>, Error> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if let Some((name, text)) = name.zip(read(&path)?) {
            found.push((name, path, text));
        }
    }
    Ok(found)
}
