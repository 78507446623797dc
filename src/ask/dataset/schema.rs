//! The tables, as Parquet's message types. A change of a column's name, type or meaning needs
//! another [`SCHEMA_VERSION`]; new optional columns do not.

use parquet::errors::ParquetError;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

/// The version of the tables, in each file and in each row of `runs`.
pub const SCHEMA_VERSION: i32 = 1;

/// A table of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Runs,
    Threads,
    Calls,
    SystemCalls,
    Signals,
    Lines,
    Hits,
}

impl Table {
    /// All tables. Runs come first, as they are the first to be removed.
    pub(super) const ALL: [Self; 7] = [
        Self::Runs,
        Self::Threads,
        Self::Calls,
        Self::SystemCalls,
        Self::Signals,
        Self::Lines,
        Self::Hits,
    ];

    /// Returns the name of the table's directory.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Threads => "threads",
            Self::Calls => "calls",
            Self::SystemCalls => "system_calls",
            Self::Signals => "signals",
            Self::Lines => "lines",
            Self::Hits => "hits",
        }
    }

    /// Returns true if a run's rows are partitioned by thread.
    pub(super) const fn is_by_thread(self) -> bool {
        matches!(self, Self::Calls | Self::SystemCalls | Self::Signals | Self::Hits)
    }

    /// Returns the columns of the table.
    pub(super) fn schema(self) -> Result<Type, ParquetError> {
        parse_message_type(self.schema_text())
    }

    /// Returns the columns in the text form of Parquet's schemas.
    const fn schema_text(self) -> &'static str {
        match self {
            Self::Runs => {
                "message runs {
                    required int32 schema_version;
                    required binary recording (STRING);
                    required binary program (STRING);
                    required binary arguments (STRING);
                    optional binary build (STRING);
                    optional int32 exit_status;
                    optional int32 signal;
                    optional boolean failed;
                    required boolean exact;
                    required int64 started (TIMESTAMP(MICROS,true));
                    optional int64 duration_ns;
                    required int64 threads;
                    required int64 instructions;
                    required int64 gaps;
                    required binary written_by (STRING);
                }"
            }
            Self::Threads => {
                "message threads {
                    required int32 thread;
                    required int32 process;
                    optional binary name (STRING);
                    required int64 instructions;
                    required int64 gaps;
                }"
            }
            Self::Calls => {
                "message calls {
                    required int64 at;
                    required binary position (STRING);
                    required int64 depth;
                    optional binary function (STRING);
                    required int64 address;
                    required binary how (STRING);
                    optional binary caller (STRING);
                    optional binary caller_file (STRING);
                    optional int64 caller_line;
                    optional binary returned_position (STRING);
                    optional int64 instructions;
                    optional binary arguments (STRING);
                    optional binary result (STRING);
                    optional int64 result_integer;
                    optional double result_real;
                }"
            }
            Self::SystemCalls => {
                "message system_calls {
                    required int64 at;
                    required binary position (STRING);
                    optional int64 number;
                    optional binary name (STRING);
                    optional int64 result;
                    optional int32 errno;
                }"
            }
            Self::Signals => {
                "message signals {
                    required int64 at;
                    required binary position (STRING);
                    required int32 signal;
                    optional binary name (STRING);
                    required boolean handled;
                    required int64 address;
                    optional binary function (STRING);
                    optional binary file (STRING);
                    optional int64 line;
                }"
            }
            Self::Lines => {
                "message lines {
                    required binary file (STRING);
                    required int64 line;
                    required int64 count;
                }"
            }
            Self::Hits => {
                "message hits {
                    required int64 at;
                    required binary position (STRING);
                    required binary code (STRING);
                    optional binary function (STRING);
                    optional binary file (STRING);
                    optional int64 line;
                    optional int64 depth;
                    optional binary caller (STRING);
                    optional binary expression (STRING);
                    optional binary value (STRING);
                    optional int64 value_integer;
                    optional double value_real;
                }"
            }
        }
    }
}
