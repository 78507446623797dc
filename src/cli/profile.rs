//! `contraflow profile`: the instructions of each function or line.

use super::ask_arguments::{self, Unit};
use super::rows::{Cell, Rows};
use super::{EXIT_ERROR, Failure, ask, count_text, say};
use crate::ask::{FunctionCost, LineCost, Profile};
use crate::capture::Leaving;
use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;

pub(super) fn run(arguments: &ask_arguments::Profile) -> Result<ExitCode, Failure> {
    let (_found, asked) = ask::open(arguments.recording.as_deref())?;
    let leaving = Leaving::on_signals();
    let Some(profile) = asked.profile(&|| leaving.is_asked())? else {
        say(&"interrupted");
        return Ok(ExitCode::from(EXIT_ERROR));
    };
    if profile.gaps > 0 {
        let gaps = count_text(profile.gaps, "gap");
        say(&format!("the path has {gaps}, whose instructions are not counted"));
    }
    let limit =
        arguments.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    match arguments.by {
        _ if arguments.collapsed => collapsed(&profile)?,
        Unit::Function => functions(&profile, arguments, limit)?,
        Unit::Line => lines(&profile, arguments, limit)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each call stack with its instructions on one line, for tools that draw flame graphs. A
/// semicolon in a name becomes a colon.
fn collapsed(profile: &Profile) -> Result<(), Failure> {
    let mut out = BufWriter::new(stdout().lock());
    for (stack, count) in &profile.stacks {
        let names: Vec<String> = stack.iter().map(|name| name.replace(';', ":")).collect();
        writeln!(out, "{} {count}", names.join(";"))?;
    }
    Ok(out.flush()?)
}

/// Returns two right-aligned columns: a count, and its share of the whole `of` in percent, cut to
/// hundredths. The share is that of 1 if `of` is 0.
fn share_columns(count: u64, of: u64) -> String {
    let hundredths = u128::from(count) * 10_000 / u128::from(of.max(1));
    format!("{count:>14} {:>3}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Prints the instructions of each function, for at most `limit` functions, those with the most
/// instructions of their own first.
fn functions(
    profile: &Profile,
    arguments: &ask_arguments::Profile,
    limit: usize,
) -> Result<(), Failure> {
    let names = ["function", "self", "total", "calls"].map(str::to_owned).to_vec();
    let mut rows = Rows::begin(arguments.form, names)?;
    let all = profile.instructions;
    for FunctionCost { name, own, total, calls } in profile.functions.iter().take(limit) {
        let cells =
            vec![Cell::text(name), Cell::number(*own), Cell::number(*total), Cell::number(*calls)];
        rows.print_row(cells, || {
            vec![format!(
                "{}  {}  {calls:>9}  {name}",
                share_columns(*own, all),
                share_columns(*total, all)
            )]
        })?;
    }
    Ok(rows.flush()?)
}

/// Prints the instructions of each line, for at most `limit` lines, those with the most
/// instructions first.
fn lines(
    profile: &Profile,
    arguments: &ask_arguments::Profile,
    limit: usize,
) -> Result<(), Failure> {
    let names = ["file", "line", "function", "self"].map(str::to_owned).to_vec();
    let mut rows = Rows::begin(arguments.form, names)?;
    let all = profile.instructions;
    for LineCost { file, line, function, own } in profile.lines.iter().take(limit) {
        let cells = vec![
            Cell::text(&**file),
            Cell::number((*line).into()),
            Cell::text(&**function),
            Cell::number(*own),
        ];
        rows.print_row(cells, || {
            vec![format!("{}  {file}:{line}  {function}", share_columns(*own, all))]
        })?;
    }
    Ok(rows.flush()?)
}
