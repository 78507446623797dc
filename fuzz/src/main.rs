//! Feeds mutated inputs to what reads hostile bytes, for some seconds each. A panic, or an input
//! that takes too long, is a fault; the input is written to `artifacts/`.
//!
//! A plain mutator that needs nothing but a stable toolchain: it flips, cuts, repeats and splices
//! valid inputs, which it makes itself. `contraflow-fuzz SECONDS [TARGET]`.

mod seeds;
mod targets;

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An input that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Xorshift: the runs differ by their seed, which is printed.
pub struct Random(u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or(0) % bound.max(1)
    }
}

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(12) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        let size = random.below((bytes.len() - at).min(64)) + 1;
        let end = (at + size).min(bytes.len());
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = u8::try_from(random.below(256)).unwrap_or(0),
            2 => bytes[at..end].fill([0, 0xff, 0x02, 0x82][random.below(4)]),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let to = (from + 64).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

fn run(target: &targets::Target, time: Duration, seed: u64) -> bool {
    let mut random = Random(seed | 1);
    let seeds = (target.seeds)();
    let start = Instant::now();
    let mut inputs = 0_u64;
    while start.elapsed() < time {
        let input = mutate(&mut random, &seeds);
        let began = Instant::now();
        let caught = std::panic::catch_unwind(|| (target.feed)(&input));
        let slow = began.elapsed() > PATIENCE;
        inputs += 1;
        if caught.is_err() || slow {
            let path = format!("artifacts/{}-{seed:x}-{inputs}", target.name);
            let written =
                std::fs::create_dir_all("artifacts").and_then(|()| std::fs::write(&path, &input));
            let what = if slow { "hangs" } else { "panics" };
            eprintln!("{}: {what} on {path} ({written:?})", target.name);
            return false;
        }
    }
    println!("{}: {inputs} inputs in {:?}, seed {seed:x}", target.name, start.elapsed());
    true
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.first().and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
    let wanted = arguments.get(1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = now.map_or(1, |now| u64::from(now.subsec_nanos()) << 20 | 1);
    let targets = targets::all();
    let chosen = targets.iter().filter(|target| wanted.is_none_or(|name| name == target.name));
    let mut fine = true;
    for target in chosen {
        fine &= run(target, Duration::from_secs(seconds), seed);
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
