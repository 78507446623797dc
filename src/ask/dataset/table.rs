//! The files of a run: one for each table, or for each thread of a table. A thread has several
//! files if one was closed to bound the number of open files. Memory is bounded as well.

use super::columns::{Cell, Columns};
use super::schema::{SCHEMA_VERSION, Table};
use crate::ask::error::Error;
use crate::common::Tid;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of waiting rows at which a row group is written: engines read groups of some ten
/// megabytes fast.
const GROUP_BYTES: usize = 32 << 20;
/// The maximum number of bytes of the waiting rows of all files.
const WAITING_BYTES: usize = 96 << 20;
/// The maximum number of open files.
const OPEN_FILES: usize = 64;

/// Columns with a different value in each row: a dictionary of them would only cost.
const DISTINCT: [&str; 3] = ["at", "position", "returned_position"];

/// A partition of a table: all of it, or the rows of one thread.
type Partition = (Table, Option<Tid>);

/// The files of a run's tables, as they are written.
pub(super) struct Tables {
    root: PathBuf,
    run: String,
    open: BTreeMap<Partition, Part>,
    /// The number of the next file of each partition that has had a file.
    numbers: BTreeMap<Partition, u32>,
    /// Files that are whole: their hidden paths and their names.
    whole: Vec<(PathBuf, PathBuf)>,
    rows: u64,
    waiting_bytes: usize,
}

/// A file that is being written.
struct Part {
    columns: Columns,
    file: SerializedFileWriter<File>,
    hidden: PathBuf,
    path: PathBuf,
    /// The number of the last row that was added to it, counted over all files.
    last: u64,
}

impl Tables {
    pub(super) fn new(root: PathBuf, run: String) -> Self {
        let (open, numbers, whole) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { root, run, open, numbers, whole, rows: 0, waiting_bytes: 0 }
    }

    /// Returns the number of rows that were added to all tables.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row to a table; `thread` is given if the table is partitioned by thread.
    pub(super) fn add(
        &mut self,
        table: Table,
        thread: Option<Tid>,
        row: Vec<Cell>,
    ) -> Result<(), Error> {
        let partition = (table, thread);
        if !self.open.contains_key(&partition) {
            if self.open.len() >= OPEN_FILES {
                self.close_oldest()?;
            }
            let part = self.create(partition)?;
            self.open.insert(partition, part);
        }
        self.rows += 1;
        let Some(part) = self.open.get_mut(&partition) else { return Ok(()) };
        part.last = self.rows;
        let before = part.columns.size_bytes();
        part.columns.push(row).map_err(|error| no_dataset(&part.path, &error))?;
        self.waiting_bytes += part.columns.size_bytes() - before;
        if part.columns.size_bytes() >= GROUP_BYTES {
            self.waiting_bytes -= part.flush()?;
        }
        while self.waiting_bytes >= WAITING_BYTES {
            let largest = self.open.values_mut().max_by_key(|part| part.columns.size_bytes());
            let Some(largest) = largest else { break };
            self.waiting_bytes -= largest.flush()?;
        }
        Ok(())
    }

    /// Creates the next file of a partition, under a hidden name.
    fn create(&mut self, (table, thread): Partition) -> Result<Part, Error> {
        let mut dir = self.root.join(table.name()).join(format!("run={}", self.run));
        dir.extend(thread.map(|tid| format!("thread={tid}")));
        fs::create_dir_all(&dir).map_err(|error| no_dataset(&dir, &error))?;
        let number = self.numbers.entry((table, thread)).or_default();
        let name = format!("part-{number}.parquet");
        *number += 1;
        let (hidden, path) = (dir.join(format!("_{name}")), dir.join(name));
        let file = File::create(&hidden).map_err(|error| no_dataset(&hidden, &error))?;
        let schema = table.schema().map_err(|error| no_dataset(&path, &error))?;
        let columns = Columns::new(&schema);
        let version = KeyValue::new("contraflow.schema_version".into(), SCHEMA_VERSION.to_string());
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("contraflow {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![version]));
        for column in DISTINCT {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
        }
        let properties = properties.build();
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let file = file.map_err(|error| no_dataset(&path, &error))?;
        Ok(Part { columns, file, hidden, path, last: 0 })
    }

    /// Closes the file with the oldest last row.
    fn close_oldest(&mut self) -> Result<(), Error> {
        let oldest = self.open.iter().min_by_key(|(_, part)| part.last).map(|(of, _)| *of);
        let Some(part) = oldest.and_then(|of| self.open.remove(&of)) else { return Ok(()) };
        self.close(part)
    }

    /// Closes a file, which keeps its hidden name until [`Self::finish`].
    fn close(&mut self, mut part: Part) -> Result<(), Error> {
        self.waiting_bytes -= part.flush()?;
        let Part { file, hidden, path, .. } = part;
        file.close().map_err(|error| no_dataset(&path, &error))?;
        self.whole.push((hidden, path));
        Ok(())
    }

    /// Closes all files and renames them to their final names, the one of table `runs` last. A
    /// table without rows gets an empty file, from which engines read its columns: that of
    /// `first_thread` if the table is partitioned by thread.
    pub(super) fn finish(&mut self, first_thread: Option<Tid>) -> Result<(), Error> {
        for table in Table::ALL {
            if !self.numbers.keys().any(|(of, _)| *of == table) {
                let thread = first_thread.filter(|_| table.is_by_thread());
                let part = self.create((table, thread))?;
                self.close(part)?;
            }
        }
        while let Some((_, part)) = self.open.pop_last() {
            self.close(part)?;
        }
        let runs = self.root.join(Table::Runs.name());
        self.whole.sort_by_key(|(_, path)| path.starts_with(&runs));
        for (hidden, path) in self.whole.drain(..) {
            fs::rename(&hidden, &path).map_err(|error| no_dataset(&path, &error))?;
        }
        Ok(())
    }
}

impl Part {
    /// Writes the waiting rows. Returns the number of their bytes.
    fn flush(&mut self) -> Result<usize, Error> {
        let waited = self.columns.size_bytes();
        self.columns.write(&mut self.file).map_err(|error| no_dataset(&self.path, &error))?;
        Ok(waited)
    }
}

/// Returns the error for a file or directory of a dataset.
pub(super) fn no_dataset(path: &Path, error: &dyn Display) -> Error {
    Error::Dataset { path: path.to_owned(), why: error.to_string() }
}
