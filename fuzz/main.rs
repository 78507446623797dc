//! Feeds mutated inputs to what reads hostile bytes. A panic, an input that takes too long or too
//! much memory, and what the target says of its result, are faults; the input goes to
//! `artifacts/`.
//!
//! It is a program of commands ([`USAGE`]), not a list of tests. It needs a stable toolchain only: it
//! flips, cuts, repeats and splices the inputs of `corpus/` and valid ones that it makes, and keeps
//! those that do something new; see [`traits`].

#![forbid(unsafe_code)]

mod check;
mod corpus;
mod mutate;
mod random;
mod seeds;
mod supervisor;
mod targets;
mod traits;
mod worker;

use corpus::Corpus;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use targets::Target;
use worker::Worker;

const USAGE: &str = "\
cargo test --test fuzz -- COMMAND
  run SECONDS [TARGET]...      feed mutants, so long to each target
  grow MUTANTS [TARGET]...     feed so many, and keep what does new things in fuzz/corpus/
  check                        whether each kind of fault is found
  TARGET FILE...               feed files
FUZZ_JOBS targets at a time (2). FUZZ_SEED is the number that all follows from: grow always does
the same with the same one (1); run takes another each time, unless it is given.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--worker", dir, target, task @ ..] => work(Path::new(dir), target, task).map(|()| true),
        ["check"] => check::check().map(|()| true),
        ["run" | "grow", count, names @ ..] => many(&arguments[..2], count, names),
        [target, _, ..] => one(target, &arguments[1..]),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

type Done<T> = Result<T, Box<dyn Error>>;

fn named(name: &str) -> Done<&'static Target> {
    let names: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
    let unknown = || format!("{name:?} is no target; there are {}\n{USAGE}", names.join(", "));
    Ok(targets::named(name).ok_or_else(unknown)?)
}

fn variable(name: &str) -> Done<Option<u64>> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    Ok(Some(text.parse().map_err(|_| format!("{name}={text}: not a number"))?))
}

/// Supervises a run, or the growing of the corpora.
fn many(task: &[String], count: &str, names: &[&str]) -> Done<bool> {
    let _: u64 = count.parse().map_err(|_| format!("{count:?} is no number\n{USAGE}"))?;
    let names = names.iter().map(|name| named(name)).collect::<Done<Vec<_>>>()?;
    let all = || targets::ALL.iter().filter_map(|target| targets::named(target.name)).collect();
    let chosen = if names.is_empty() { all() } else { names };
    let given = variable("FUZZ_SEED")?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = given.unwrap_or_else(|| if task[0] == "grow" { 1 } else { now() });
    let jobs = usize::try_from(variable("FUZZ_JOBS")?.unwrap_or(2))?;
    let arguments = [task, &[seed.to_string()]].concat();
    Ok(supervisor::supervise(&chosen, jobs, &arguments))
}

/// Supervises the feeding of files.
fn one(target: &str, files: &[String]) -> Done<bool> {
    let arguments = [&["feed".to_owned()], files].concat();
    Ok(supervisor::supervise(&[named(target)?], 1, &arguments))
}

/// What a worker does.
fn work(dir: &Path, target: &str, task: &[&str]) -> Done<()> {
    let target = named(target)?;
    let worker = Worker::start(target, dir)?;
    let start = Instant::now();
    match task {
        ["run", seconds, seed] => {
            let mut corpus = Corpus::load(target)?;
            let before = corpus.inputs.len();
            let time = Duration::from_secs(seconds.parse()?);
            let inputs = worker.run(&mut corpus, time, seed.parse()?)?;
            println!(
                "{}: {inputs} inputs in {:.0?}, seed {seed}; {} traits, corpus {before} and {} new",
                target.name,
                start.elapsed(),
                corpus.traits(),
                corpus.inputs.len() - before,
            );
        }
        ["grow", mutants, seed] => {
            let mut corpus = Corpus::load(target)?;
            worker.grow(&mut corpus, mutants.parse()?, seed.parse()?)?;
            corpus.save(target)?;
            let (files, traits) = (corpus.inputs.len(), corpus.traits());
            println!("{}: {files} files for {traits} traits", target.name);
        }
        ["feed", files @ ..] => {
            for file in files {
                let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
                worker.feed(&input)?;
                println!("{}: {file}: fine, in {:.1?}", target.name, start.elapsed());
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
