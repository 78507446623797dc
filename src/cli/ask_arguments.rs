//! The command line of questions about whole histories.

use clap::{Args, ValueEnum, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Form {
    /// Print a JSON object per line; an unknown value is null
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Print comma-separated values, with a line of names first
    #[arg(long)]
    pub(super) csv: bool,
}

#[derive(Debug, Args)]
pub(super) struct Hits {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// The code: `FILE:LINE`, a function, or an address such as 0x401136
    #[arg(long, value_name = "WHERE")]
    pub(super) at: String,
    /// Expressions to evaluate at each execution, with commas between them: 'a->id, list[0].name,
    /// bt 3'. Variables, members, pointers, arrays, operators of C, casts to basic types, registers
    /// such as $rax; bt N for the call stack
    #[arg(long, value_name = "EXPRESSIONS", default_value = "", hide_default_value = true)]
    pub(super) print: String,
    /// Begin at this position
    #[arg(long, value_name = "POSITION")]
    pub(super) from: Option<String>,
    /// End after so many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) form: Form,
}

#[derive(Debug, Args)]
#[command(override_usage = "contraflow origin [OPTIONS] [REC] EXPRESSION")]
pub(super) struct Origin {
    /// A recording's directory or name, the latest if not given; and the value: a variable, a
    /// member, an element, or a register such as $rax. With --bytes, an address
    #[arg(value_name = "[REC] EXPRESSION", num_args = 1..=2, required = true)]
    pub(super) of: Vec<OsString>,
    /// Where it has the value; the end of the run if not given
    #[arg(long, value_name = "POSITION")]
    pub(super) at: Option<String>,
    /// The number of the frame, from 0 for the innermost one; if not given, the first one that
    /// knows the variable
    #[arg(long, value_name = "N")]
    pub(super) frame: Option<usize>,
    /// The thread whose variable or register it is; the one that executes at the position if not
    /// given
    #[arg(long, value_name = "TID")]
    pub(super) thread: Option<i32>,
    /// Follow N bytes of memory, at an address
    #[arg(long, value_name = "N", conflicts_with = "frame", value_parser = value_parser!(u64).range(1..))]
    pub(super) bytes: Option<u64>,
    /// End after so many steps
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) form: Form,
}

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// A recording's directory or name
    #[arg(value_name = "GOOD")]
    pub(super) good: PathBuf,
    /// Another recording, of the same program or of another build of it
    #[arg(value_name = "BAD")]
    pub(super) bad: PathBuf,
    /// Print differences in libraries, too
    #[arg(long)]
    pub(super) libraries: bool,
    /// End after so many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) form: Form,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct Calls {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// A function; repeat for more. Without it, all calls are printed
    #[arg(long, value_name = "NAME")]
    pub(super) function: Vec<String>,
    /// Print only calls of functions in the program's own file, and not in libraries
    #[arg(long)]
    pub(super) own: bool,
    /// Print the arguments of each call
    #[arg(long)]
    pub(super) args: bool,
    /// Print the returned value of each call, and the position of the return; a call is printed
    /// when it returns
    #[arg(long)]
    pub(super) returns: bool,
    /// Print the number of instructions that the thread executed in each call, with those of the
    /// calls inside it; a call is printed when it returns
    #[arg(long)]
    pub(super) duration: bool,
    /// End after so many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) form: Form,
}

#[derive(Debug, Args)]
pub(super) struct Profile {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// The parts of the program to count
    #[arg(long, value_enum, default_value_t = Unit::Function)]
    pub(super) by: Unit,
    /// End after so many
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    /// Print collapsed stacks, for flame graphs: functions with semicolons between them, and the
    /// instructions of the innermost one
    #[arg(long, conflicts_with_all = ["json", "csv", "by", "limit"])]
    pub(super) collapsed: bool,
    #[command(flatten)]
    pub(super) form: Form,
}

/// A part of a program whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Unit {
    /// Functions: their own instructions, and with those of the functions that they called
    Function,
    /// Lines of the source
    Line,
}

#[derive(Debug, Args)]
pub(super) struct Coverage {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// Write to this file instead of the standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write only files whose path begins like this. Repeat for more
    #[arg(long, value_name = "PREFIX")]
    pub(super) include: Vec<String>,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct ExportParquet {
    /// The directories or names of recordings; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recordings: Vec<PathBuf>,
    /// The directory of the dataset; created if it is not there
    #[arg(short, long, value_name = "DATASET")]
    pub(super) output: PathBuf,
    /// Replace runs that the dataset has already
    #[arg(long)]
    pub(super) force: bool,
    /// Write only calls of this function. Repeat for more
    #[arg(long, value_name = "NAME")]
    pub(super) function: Vec<String>,
    /// Write only calls of functions in the program's own file, and not in libraries
    #[arg(long)]
    pub(super) own: bool,
    /// Write the arguments of each call
    #[arg(long)]
    pub(super) args: bool,
    /// Write the returned value of each call
    #[arg(long)]
    pub(super) returns: bool,
    /// Write every execution of this code: `FILE:LINE`, a function, or an address. Repeat for more
    #[arg(long, value_name = "WHERE")]
    pub(super) at: Vec<String>,
    /// Expressions to evaluate at each of these executions, with commas between them
    #[arg(
        long,
        value_name = "EXPRESSIONS",
        requires = "at",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) print: String,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Debug, Args)]
pub(super) struct ExportCalls {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Replace FILE
    #[arg(long)]
    pub(super) force: bool,
}
