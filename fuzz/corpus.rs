//! The inputs that mutants are made of: the seeds, those kept in `corpus/`, and what was found to
//! do something new.

use crate::targets::Target;
use crate::traits::{Traits, hash};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A target's corpus in memory has at most so many inputs.
const LIMIT: usize = 4096;
/// What is kept in files is at most so large, each.
const FILE_LIMIT_BYTES: usize = 4096;
/// Pieces that are left out of an input, at most, to make it smaller.
const TRIES: usize = 400;

/// The inputs of a target, and what they do.
#[derive(Default)]
pub(crate) struct Corpus {
    pub inputs: Vec<Vec<u8>>,
    known: BTreeSet<u64>,
}

/// Where a target's corpus is kept.
pub(crate) fn dir(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name)
}

impl Corpus {
    /// The seeds of a target and its files, which are in the order of their names.
    pub(crate) fn load(target: &Target) -> io::Result<Self> {
        let mut inputs = (target.seeds)();
        inputs.extend(files(&dir(target))?.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?);
        Ok(Self { inputs, ..Self::default() })
    }

    /// Learns what the inputs do.
    pub(crate) fn feed_all(
        &mut self,
        mut feed: impl FnMut(&[u8]) -> io::Result<Traits>,
    ) -> io::Result<()> {
        for input in &self.inputs {
            self.known.extend(feed(input)?.beyond(&self.known));
        }
        Ok(())
    }

    /// Takes an input that did something new.
    pub(crate) fn offer(&mut self, input: Vec<u8>, traits: &Traits) {
        let new = traits.beyond(&self.known);
        if !new.is_empty() && self.inputs.len() < LIMIT {
            self.known.extend(new);
            self.inputs.push(input);
        }
    }

    /// How many different things the inputs do.
    pub(crate) fn traits(&self) -> usize {
        self.known.len()
    }

    /// Leaves what does all that the whole does, the richest first, each cut to what it takes.
    pub(crate) fn reduce(
        &mut self,
        mut feed: impl FnMut(&[u8]) -> io::Result<Traits>,
    ) -> io::Result<()> {
        let mut inputs = Vec::new();
        for input in std::mem::take(&mut self.inputs) {
            let traits = feed(&input)?;
            let too_large = input.len() > FILE_LIMIT_BYTES;
            let order = (too_large, Reverse(traits.count()), input.len(), hash(&input));
            inputs.push((order, input, traits));
        }
        inputs.sort_by_key(|(order, ..)| *order);
        let mut known = BTreeSet::new();
        for (_, input, traits) in inputs {
            let new = traits.beyond(&known);
            if new.is_empty() {
                continue;
            }
            let input = minimised(input, &new, &mut feed)?;
            if input.len() <= FILE_LIMIT_BYTES {
                known.extend(feed(&input)?.beyond(&known));
                self.inputs.push(input);
            }
        }
        Ok(())
    }

    /// Writes the inputs to files, in place of those that are there.
    pub(crate) fn save(&self, target: &Target) -> io::Result<()> {
        let dir = dir(target);
        fs::create_dir_all(&dir)?;
        for file in files(&dir)? {
            fs::remove_file(file)?;
        }
        for input in &self.inputs {
            fs::write(dir.join(format!("{:016x}", hash(input))), input)?;
        }
        Ok(())
    }
}

/// The input without pieces that it does the same without; large ones are tried first.
fn minimised(
    mut input: Vec<u8>,
    wanted: &BTreeSet<u64>,
    feed: &mut impl FnMut(&[u8]) -> io::Result<Traits>,
) -> io::Result<Vec<u8>> {
    let mut size = input.len().next_power_of_two() / 2;
    let mut tries = 0;
    while size > 0 && tries < TRIES {
        let mut at = 0;
        while at < input.len() && tries < TRIES {
            let mut less = input.clone();
            less.drain(at..(at + size).min(input.len()));
            tries += 1;
            if feed(&less)?.has_all(wanted) {
                input = less;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    Ok(input)
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = entries.collect::<Result<Vec<_>, _>>()?;
    files.sort();
    Ok(files)
}
