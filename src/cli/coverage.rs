//! `contraflow coverage`: the executions of each function, branch and line, as a tracefile of lcov
//! (geninfo(1), FILES).

use super::{EXIT_ERROR, Failure, ask, ask_arguments, say};
use crate::ask::FileCoverage;
use crate::capture::Leaving;
use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

/// Writes the tracefile, of the source files that `--include` names, and replaces an existing one.
/// If the user interrupts it, writes nothing, and returns the exit status of an error.
pub(super) fn run(arguments: &ask_arguments::Coverage) -> Result<ExitCode, Failure> {
    let (found, asked) = ask::open(arguments.recording.as_deref())?;
    let leaving = Leaving::on_signals();
    let Some(files) = asked.coverage(&|| leaving.is_asked())? else {
        say(&"interrupted");
        return Ok(ExitCode::from(EXIT_ERROR));
    };
    if files.is_empty() {
        return Err(format!(
            "{}: the program has no debug information, so its lines are unknown: compile with -g",
            found.user_path().display()
        )
        .into());
    }
    let is_meant = |path: &str| {
        let include = &arguments.include;
        include.is_empty() || include.iter().any(|prefix| path.starts_with(prefix.as_str()))
    };
    let mut out: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(BufWriter::new(File::create(path)?)),
        None => Box::new(BufWriter::new(stdout().lock())),
    };
    for (path, file) in files.iter().filter(|(path, _)| is_meant(path)) {
        write(&mut *out, path, file)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the section of one source file. Each conditional branch is a block with two counts: of
/// the times that it was taken, and that it was not.
fn write(out: &mut dyn Write, path: &str, file: &FileCoverage) -> std::io::Result<()> {
    writeln!(out, "TN:\nSF:{path}")?;
    for (name, (line, _)) in &file.functions {
        writeln!(out, "FN:{line},{name}")?;
    }
    for (name, (_, count)) in &file.functions {
        writeln!(out, "FNDA:{count},{name}")?;
    }
    let hit = file.functions.values().filter(|(_, count)| *count > 0).count();
    writeln!(out, "FNF:{}\nFNH:{hit}", file.functions.len())?;
    let (mut block, mut hit) = (0, 0);
    for ((line, _), (taken, not_taken)) in &file.branches {
        writeln!(out, "BRDA:{line},{block},0,{taken}\nBRDA:{line},{block},1,{not_taken}")?;
        hit += usize::from(*taken > 0) + usize::from(*not_taken > 0);
        block += 1;
    }
    writeln!(out, "BRF:{}\nBRH:{hit}", 2 * file.branches.len())?;
    for (line, count) in &file.lines {
        writeln!(out, "DA:{line},{count}")?;
    }
    let hit = file.lines.values().filter(|count| **count > 0).count();
    writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", file.lines.len())
}
