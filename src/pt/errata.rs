//! The processors that write packets in conflict with the SDM, according to Intel's specification
//! updates. Data only: the decoder handles the errata.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use thiserror::Error;

/// A processor by its CPUID signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// Its manufacturer.
    pub vendor: Vendor,
    /// Display family.
    pub family: u16,
    /// Display model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// A processor's manufacturer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Intel, the only manufacturer of processors with PT.
    Intel,
    /// Any other manufacturer.
    Other,
}

/// Error for text that is not a processor's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("a processor is given as family/model or family/model/stepping, as in 6/94/3")]
pub struct BadCpu;

impl FromStr for Cpu {
    type Err = BadCpu;

    /// Parses an Intel processor as `family/model` or `family/model/stepping`, in decimal or with
    /// `0x`. The stepping defaults to 0.
    fn from_str(text: &str) -> Result<Self, BadCpu> {
        let mut numbers = text.split('/').map(|number| match number.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).map_err(|_| BadCpu),
            None => number.parse().map_err(|_| BadCpu),
        });
        let family = numbers.next().ok_or(BadCpu)??;
        let model = numbers.next().ok_or(BadCpu)??.try_into().map_err(|_| BadCpu)?;
        let stepping = numbers.next().unwrap_or(Ok(0))?.try_into().map_err(|_| BadCpu)?;
        match numbers.next() {
            None => Ok(Self { vendor: Vendor::Intel, family, model, stepping }),
            Some(_) => Err(BadCpu),
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.family, self.model, self.stepping)
    }
}

/// An erratum, under the first of the names that Intel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Erratum {
    /// PSB+ before a TIP.PGE can hold a FUP and a MODE.Exec as if packets were already enabled
    /// (also SKD024, SKL021, KBL021).
    Bdm70,
    /// A transactional abort right after a branch can give that branch a wrong target.
    Bdm64,
    /// OVF can replace the further bytes of a CYC (also SKL049, KBL041).
    Skd007,
    /// A VM entry that clears `TraceEn` can put a FUP before its TIP.PGD (also SKL024, KBL023).
    Skd022,
    /// The FUP or TIP.PGE after an OVF can be missing (also SKD014, SKL033, KBL030).
    Skd010,
    /// The TIP.PGD of a direct jump or call that leaves the filter can lack its IP (also KBL014).
    Skl014,
    /// OVF can be followed by a TIP.PGD.
    Apl11,
    /// OVF can be followed by a FUP though packets are disabled by the filter.
    Apl12,
    /// A CYC, and an MTC with it, can be missing before a PSB.
    Skl168,
    /// In a VMX guest with TSC offset or scaling, TMA is wrong and an extra byte follows it.
    Skz84,
}

/// A set of errata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Errata(u16);

impl Errata {
    /// No erratum: the assumption for an unknown processor.
    pub const NONE: Self = Self(0);

    /// Creates the set of these errata.
    const fn new(errata: &[Erratum]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < errata.len() {
            bits |= 1 << errata[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// Returns this set with `erratum` added.
    #[must_use]
    pub const fn with(self, erratum: Erratum) -> Self {
        Self(self.0 | 1 << erratum as u16)
    }

    /// Returns true if the set contains `erratum`.
    #[must_use]
    pub const fn has(self, erratum: Erratum) -> bool {
        self.0 >> erratum as u16 & 1 != 0
    }

    /// Returns the errata of `cpu`; `None` if they are unknown, which differs from having none.
    #[must_use]
    pub fn of(cpu: Cpu) -> Option<Self> {
        let mut rows = TABLE.iter().filter(|row| row.describes(cpu));
        rows.next().map(|row| row.errata)
    }
}

/// Processors with the same errata.
struct Row {
    family: u16,
    models: &'static [u8],
    steppings: RangeInclusive<u8>,
    errata: Errata,
}

impl Row {
    /// Returns true if the row is about `cpu`.
    fn describes(&self, cpu: Cpu) -> bool {
        cpu.vendor == Vendor::Intel
            && cpu.family == self.family
            && self.models.contains(&cpu.model)
            && self.steppings.contains(&cpu.stepping)
    }
}

/// All steppings.
const ANY: RangeInclusive<u8> = 0..=u8::MAX;

use Erratum::{Apl11, Apl12, Bdm64, Bdm70, Skd007, Skd010, Skd022, Skl014, Skl168, Skz84};

/// The errata of each processor. The first row that describes a processor applies.
static TABLE: &[Row] = &[
    // Broadwell.
    Row {
        family: 6,
        models: &[0x3d, 0x47, 0x4f, 0x56],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Bdm64]),
    },
    // Skylake, Kaby Lake, Coffee Lake, Comet Lake.
    Row {
        family: 6,
        models: &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skd007, Skd022, Skd010, Skl014, Skl168]),
    },
    // Skylake, Cascade Lake and Cooper Lake servers, Ice Lake servers.
    Row {
        family: 6,
        models: &[0x55, 0x6a, 0x6c],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skl014, Skd022, Skz84]),
    },
    // Sapphire Rapids, Emerald Rapids, Granite Rapids.
    Row {
        family: 6,
        models: &[0x8f, 0xcf, 0xad, 0xae],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skd022, Skz84]),
    },
    // Cannon Lake, Ice Lake, Tiger Lake, Rocket Lake.
    Row {
        family: 6,
        models: &[0x66, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0xa8],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skl014, Skd022]),
    },
    // Alder Lake, Raptor Lake, Meteor Lake, Arrow Lake, Lunar Lake, Panther Lake.
    Row {
        family: 6,
        models: &[0x97, 0x9a, 0xba, 0xb7, 0xbf, 0xc5, 0xc6, 0xb5, 0xaa, 0xac, 0xbd, 0xcc, 0xd5],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skd022, Apl11]),
    },
    // Goldmont.
    Row { family: 6, models: &[0x5c, 0x5f], steppings: ANY, errata: Errata::new(&[Apl12, Apl11]) },
    // Goldmont Plus, Tremont, Crestmont, Darkmont.
    Row {
        family: 6,
        models: &[0x7a, 0x86, 0x96, 0x9c, 0xb6, 0xaf, 0xdd],
        steppings: ANY,
        errata: Errata::new(&[Apl11]),
    },
    // Nova Lake.
    Row {
        family: 0x12,
        models: &[0x01, 0x03],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skd022, Apl11]),
    },
    // Diamond Rapids.
    Row {
        family: 0x13,
        models: &[0x01],
        steppings: ANY,
        errata: Errata::new(&[Bdm70, Skd022, Skz84]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn errata(cpu: &str) -> Option<Errata> {
        Errata::of(cpu.parse().expect("a processor"))
    }

    #[test]
    fn processors_have_their_errata() {
        let skylake = errata("6/94/3").expect("a known processor");
        let its = [Bdm70, Skd007, Skd022, Skd010, Skl014, Skl168];
        assert!(its.into_iter().all(|erratum| skylake.has(erratum)));
        assert!(![Bdm64, Apl11, Apl12, Skz84].into_iter().any(|erratum| skylake.has(erratum)));
        assert_eq!(errata("6/79/1"), Some(Errata::NONE.with(Bdm64).with(Bdm70)));
        assert_eq!(errata("0x6/0x5c"), Some(Errata::NONE.with(Apl11).with(Apl12)));
    }

    #[test]
    fn an_unknown_processor_has_none_that_are_known() {
        assert_eq!(errata("6/1/1"), None);
        let cpu: Cpu = "6/94/3".parse().expect("a processor");
        assert_eq!(Errata::of(Cpu { vendor: Vendor::Other, ..cpu }), None);
    }

    #[test]
    fn no_processor_is_in_two_rows() {
        for family in [6, 0x12, 0x13] {
            for model in 0..=u8::MAX {
                let cpu = Cpu { vendor: Vendor::Intel, family, model, stepping: 1 };
                assert!(TABLE.iter().filter(|row| row.describes(cpu)).count() <= 1, "{cpu}");
            }
        }
    }

    #[test]
    fn signatures_are_read_and_written() {
        for text in ["", "6", "6/", "6/300", "6/94/3/1", "six/94", "6/0xg"] {
            assert_eq!(text.parse::<Cpu>(), Err(BadCpu), "{text}");
        }
        assert_eq!("0x6/0x5e/3".parse::<Cpu>().map(|cpu| cpu.to_string()), Ok("6/94/3".into()));
    }
}
