//! The process that feeds inputs. It is alone with its target, and dies of what it finds: its
//! supervisor tells how it died, and of which input.

use crate::corpus::Corpus;
use crate::mutate::mutate;
use crate::random::Random;
use crate::targets::Target;
use crate::traits::Traits;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The exit status of a worker whose input hangs.
pub(crate) const HANGS: i32 = 99;

/// How often the watchdog looks.
const WATCH_PERIOD: Duration = Duration::from_millis(50);
/// On a machine that has much else to do a second of CPU time takes a while.
const WALL_FACTOR: u32 = 20;
/// `/proc/self/stat` counts CPU time in these, whatever the kernel's own clock.
const TICKS_A_SECOND: u64 = 100;

/// Feeds a target.
pub(crate) struct Worker {
    target: &'static Target,
    /// The input that is being fed: its size in 8 bytes, and itself.
    current: File,
    /// What belongs on disk while an input is fed.
    scratch: PathBuf,
    fed: Arc<AtomicU64>,
}

impl Worker {
    /// A worker with a directory of its own.
    pub(crate) fn start(target: &'static Target, dir: &Path) -> io::Result<Self> {
        let scratch = dir.join("scratch");
        fs::create_dir_all(&scratch)?;
        let current = File::create(dir.join("current"))?;
        let fed = Arc::new(AtomicU64::new(0));
        let (watched, limit) = (Arc::clone(&fed), target.time_limit);
        thread::spawn(move || watch(&watched, limit));
        Ok(Self { target, current, scratch, fed })
    }

    /// Feeds one input.
    pub(crate) fn feed(&self, input: &[u8]) -> io::Result<Traits> {
        self.current.write_all_at(&(input.len() as u64).to_le_bytes(), 0)?;
        self.current.write_all_at(input, 8)?;
        self.fed.fetch_add(1, Ordering::SeqCst);
        let mut traits = Traits::default();
        (self.target.feed)(input, &self.scratch, &mut traits);
        Ok(traits)
    }

    /// Feeds the corpus, and mutants of it for some time. Gives how many inputs that were.
    pub(crate) fn run(&self, corpus: &mut Corpus, time: Duration, seed: u64) -> io::Result<u64> {
        let start = Instant::now();
        corpus.feed_all(|input| self.feed(input))?;
        let mut random = Random::new(seed);
        while start.elapsed() < time {
            self.mutant(corpus, &mut random)?;
        }
        Ok(self.fed.load(Ordering::SeqCst))
    }

    /// The same for so many mutants, whatever the time; then only what is needed is left of the
    /// corpus, and that as small as it gets.
    pub(crate) fn grow(&self, corpus: &mut Corpus, mutants: u64, seed: u64) -> io::Result<()> {
        corpus.feed_all(|input| self.feed(input))?;
        let mut random = Random::new(seed);
        for _ in 0..mutants {
            self.mutant(corpus, &mut random)?;
        }
        corpus.reduce(|input| self.feed(input))
    }

    fn mutant(&self, corpus: &mut Corpus, random: &mut Random) -> io::Result<()> {
        let input = mutate(random, &corpus.inputs, self.target.words);
        let traits = self.feed(&input)?;
        corpus.offer(input, &traits);
        Ok(())
    }
}

/// Ends the process when an input takes too long.
fn watch(fed: &AtomicU64, limit: Duration) {
    let (mut last, mut since, mut used) = (0, Instant::now(), cpu_time());
    loop {
        thread::sleep(WATCH_PERIOD);
        let now = fed.load(Ordering::SeqCst);
        if now != last {
            (last, since, used) = (now, Instant::now(), cpu_time());
        } else if now > 0
            && (cpu_time().saturating_sub(used) > limit || since.elapsed() > limit * WALL_FACTOR)
        {
            std::process::exit(HANGS);
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which is in parentheses: user and system time are the 12th and 13th field.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_A_SECOND)
}
