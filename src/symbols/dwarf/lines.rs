//! The line table of one unit. Follows gdb in choosing the row of an address (`find_pc_line`): the
//! last one at or below it, with preference for a recommended breakpoint location (`is_stmt`) among
//! rows at the same address. Also follows gdb in choosing which rows to keep
//! (`lnp_state_machine::record_line`).

use super::Reader;
use super::units::file_path;
use crate::symbols::spans::{Span, Spans};
use gimli::{ColumnType, LineInstruction, LineRow, UnitRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The line table of one unit.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The paths of source files, by their numbers in the line table.
    files: HashMap<u64, Arc<str>>,
    rows: Vec<Row>,
    /// The indices in `rows` of each contiguous run of code; its rows are sorted by address.
    sequences: Vec<Range<usize>>,
    /// The value of each span is an index in `sequences`.
    by_address: Spans,
    /// The addresses at which the prologue of a function has ended, in ascending order.
    prologue_ends: Vec<u64>,
}

/// A row of a line table: the source line of the code from `address` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) address: u64,
    /// The number of the file in the line table.
    pub(super) file: u64,
    pub(super) line: u32,
    /// The column, from 1; zero if it is unknown.
    pub(super) column: u32,
    /// True if the row is recommended for breakpoints.
    pub(super) is_stmt: bool,
}

impl Lines {
    /// Reads the whole table, up to any damage; an empty one if the unit has none. Skips sequences
    /// that start outside `code`, since they belong to functions that the linker dropped, and rows
    /// that gdb does not keep (`Builder::admit`).
    pub(super) fn parse(unit: UnitRef<'_, Reader>, code: &Spans) -> Self {
        let Some(mut program) = unit.line_program.clone() else { return Self::default() };
        let mut builder = Builder {
            code,
            lines: Self::default(),
            spans: Vec::new(),
            start: 0,
            last: LastRow::default(),
        };
        let mut instructions = program.header().instructions();
        let mut row = LineRow::new(program.header());
        // True after an address that a linker set, in the middle of a sequence, for a function that
        // it dropped: a huge one, or one below the last row's, as addresses rise in a sequence. A
        // whole sequence at a low address is dropped in `end_sequence`.
        let mut is_after_tombstone = false;
        while let Ok(Some(instruction)) = instructions.next_instruction(program.header()) {
            match &instruction {
                LineInstruction::SetAddress(to) => {
                    is_after_tombstone = *to < row.address() || *to >= u64::MAX - 1;
                }
                // gimli negates this number, which would overflow.
                LineInstruction::AdvanceLine(i64::MIN) => break,
                _ => {}
            }
            match row.execute(instruction, &mut program) {
                Ok(true) => {
                    builder.push(&row, is_after_tombstone);
                    is_after_tombstone &= !row.end_sequence();
                    row.reset(program.header());
                }
                Ok(false) => {}
                Err(_) => break,
            }
        }
        let mut lines = builder.finish();
        let numbers =
            lines.rows.iter().map(|row| row.file).collect::<std::collections::HashSet<_>>();
        let path = |file| Some((file, file_path(unit, program.header(), file)?));
        lines.files = numbers.into_iter().filter_map(path).collect();
        lines
    }

    /// Returns the address range of each sequence; its value is an index in the list of sequences.
    pub(super) fn sequences(&self) -> impl Iterator<Item = Span> {
        self.by_address.iter()
    }

    /// Returns the row that describes the code at `addr`; `None` if no sequence contains `addr`.
    /// Code without a line counts to the row before it.
    pub(super) fn row_at(&self, addr: u64) -> Option<Row> {
        let sequence = usize::try_from(self.by_address.find(addr)?.value).ok()?;
        let rows = self.rows.get(self.sequences.get(sequence)?.clone())?;
        let rows = rows.get(..rows.partition_point(|row| row.address <= addr))?;
        let last = rows.last()?;
        let mut same = rows.iter().rev().take_while(|row| row.address == last.address);
        Some(*same.find(|row| row.is_stmt).unwrap_or(last))
    }

    /// Returns the path of the file with a number in the table; `None` if no row has that file, or
    /// its path is damaged.
    pub(super) fn file(&self, number: u64) -> Option<&Arc<str>> {
        self.files.get(&number)
    }

    /// Returns the address range of each row, the path of its file, and its line. A range can be
    /// empty. Skips rows whose file is unknown.
    pub(super) fn row_ranges(&self) -> impl Iterator<Item = (Range<u64>, &Arc<str>, u32)> {
        let of_sequence = move |span: Span| {
            let sequence = self.sequences.get(usize::try_from(span.value).unwrap_or(usize::MAX));
            let rows = sequence.and_then(|of| self.rows.get(of.clone())).unwrap_or_default();
            rows.iter().enumerate().filter_map(move |(number, row)| {
                let end = rows.get(number + 1).map_or(span.end, |next| next.address);
                Some((row.address..end, self.file(row.file)?, row.line))
            })
        };
        self.by_address.iter().flat_map(of_sequence)
    }

    /// Returns the address at which a function's prologue ends: the first marked one in the range
    /// `function`, of which it may be the start. `None` if the compiler marked none.
    pub(super) fn prologue_end(&self, function: Range<u64>) -> Option<u64> {
        let next = self.prologue_ends.partition_point(|at| *at < function.start);
        self.prologue_ends.get(next).copied().filter(|at| *at < function.end)
    }

    /// Returns the address of the first row above `addr`, in the sequence that contains `addr`;
    /// `None` if `addr` is in no sequence, or not below the address of its last row.
    pub(super) fn next_row(&self, addr: u64) -> Option<u64> {
        let sequence = usize::try_from(self.by_address.find(addr)?.value).ok()?;
        let rows = self.rows.get(self.sequences.get(sequence)?.clone())?;
        rows.get(rows.partition_point(|row| row.address <= addr)).map(|row| row.address)
    }

    /// Returns all rows that allow a breakpoint, of files whose path satisfies `is_meant`.
    pub(super) fn breakpoint_rows<'a>(
        &'a self,
        is_meant: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Row> + 'a {
        let meant: Vec<u64> =
            self.files.iter().filter(|(_, path)| is_meant(path)).map(|(file, _)| *file).collect();
        let rows = if meant.is_empty() { &[] } else { &*self.rows };
        rows.iter().filter(move |row| row.is_stmt && meant.contains(&row.file))
    }
}

/// A builder of [`Lines`], which adds one sequence after another.
struct Builder<'a> {
    code: &'a Spans,
    lines: Lines,
    spans: Vec<Span>,
    /// The index of the first row of the current sequence.
    start: usize,
    last: LastRow,
}

/// The facts about earlier rows that decide whether the next row is kept.
#[derive(Default)]
struct LastRow {
    /// The address of the last row, kept or not.
    address: u64,
    /// True if a row at `address` was recommended for breakpoints.
    has_stmt: bool,
    /// The file and line of the last row that was kept.
    file_and_line: Option<(u64, u32)>,
    /// True if a row since the last change of the line had a discriminator.
    is_discriminated: bool,
}

impl Builder<'_> {
    /// Adds a row to the current sequence if gdb would keep it, or ends the sequence. Ignores a row
    /// that `is_after_tombstone`: it belongs to a function that the linker dropped.
    fn push(&mut self, row: &LineRow, is_after_tombstone: bool) {
        if row.end_sequence() {
            self.end_sequence(row.address());
        } else if !is_after_tombstone {
            if row.prologue_end() {
                self.lines.prologue_ends.push(row.address());
            }
            let column = match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(0),
            };
            let line = row.line().map_or(0, std::num::NonZeroU64::get);
            let short = Row {
                address: row.address(),
                file: row.file_index(),
                line: u32::try_from(line).unwrap_or(0),
                column,
                is_stmt: row.is_stmt(),
            };
            if self.admit(&short, row.discriminator() != 0) {
                self.last.file_and_line = Some((short.file, short.line));
                self.lines.rows.push(short);
            }
            self.last.has_stmt =
                row.is_stmt() || self.last.has_stmt && self.last.address == row.address();
            self.last.address = row.address();
        }
    }

    /// Returns true if gdb keeps a row. Then drops the rows that gdb replaces by it. Of two files
    /// at one address the later one is kept, unless only the earlier one is recommended for
    /// breakpoints. Rows that only distinguish blocks of one line, and rows without a line, are not
    /// kept.
    fn admit(&mut self, row: &Row, is_discriminated: bool) -> bool {
        let last = &mut self.last;
        let (is_new_file, is_new_line) = match last.file_and_line {
            Some((file, line)) => (file != row.file, line != row.line),
            None => (true, true),
        };
        last.is_discriminated = is_discriminated || !is_new_line && last.is_discriminated;
        let is_beaten = last.address == row.address && last.has_stmt && !row.is_stmt;
        if row.line == 0 || is_new_file && is_beaten {
            return false;
        }
        if is_new_file {
            self.drop_rows_at(row.address);
        }
        is_new_file || is_new_line || !self.last.is_discriminated
    }

    /// Drops the last rows of the current sequence that start at `address`.
    fn drop_rows_at(&mut self, address: u64) {
        while self.lines.rows.len() > self.start
            && self.lines.rows.last().is_some_and(|row| row.address == address)
        {
            self.lines.rows.pop();
        }
    }

    /// Ends the current sequence at `end`. Drops it if it is empty or starts outside of `code`.
    fn end_sequence(&mut self, end: u64) {
        self.drop_rows_at(end);
        let rows = self.start..self.lines.rows.len();
        let first = self.lines.rows.get(self.start).map(|row| row.address);
        match (first, u32::try_from(self.lines.sequences.len())) {
            (Some(start), Ok(value)) if start < end && self.code.find(start).is_some() => {
                if let Some(rows) = self.lines.rows.get_mut(rows.clone()) {
                    rows.sort_by_key(|row| row.address);
                }
                self.spans.push(Span { start, end, value });
                self.lines.sequences.push(rows);
            }
            _ => self.lines.rows.truncate(self.start),
        }
        self.start = self.lines.rows.len();
        self.last = LastRow::default();
    }

    /// Returns the table, without a last sequence that has no end.
    fn finish(mut self) -> Lines {
        self.lines.rows.truncate(self.start);
        self.lines.by_address = Spans::new(self.spans);
        self.lines.prologue_ends.sort_unstable();
        self.lines
    }
}
