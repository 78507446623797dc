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
    open: BTreeMap<Partition, OpenFile>,
    /// The number that the next file of a partition gets, for each partition that has had a file.
    next_numbers: BTreeMap<Partition, u32>,
    /// Closed files: their hidden paths and their final ones.
    closed: Vec<(PathBuf, PathBuf)>,
    /// The number of rows that were added to all files.
    rows: u64,
    /// The bytes of the rows that are not written yet, of all open files.
    waiting_bytes: usize,
}

/// A file of a partition that is being written.
struct OpenFile {
    columns: Columns,
    file: SerializedFileWriter<File>,
    /// The hidden path under which it is written, and its final one.
    hidden: PathBuf,
    path: PathBuf,
    /// The number of the last row that was added to it, counted over all files.
    last_row: u64,
}

impl Tables {
    pub(super) fn new(root: PathBuf, run: String) -> Self {
        let (open, next_numbers, closed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { root, run, open, next_numbers, closed, rows: 0, waiting_bytes: 0 }
    }

    /// Returns the number of rows that were added to all tables.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row to a table; `thread` is given if the table is partitioned by thread. Opens the
    /// file if there is none, and writes waiting rows if there are too many. After an error, the
    /// run's files are not whole.
    pub(super) fn add_row(
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
            let file = self.create(partition)?;
            self.open.insert(partition, file);
        }
        self.rows += 1;
        let Some(file) = self.open.get_mut(&partition) else { return Ok(()) };
        file.last_row = self.rows;
        let before = file.columns.size_bytes();
        file.columns.push(row).map_err(|error| dataset_error(&file.path, &error))?;
        self.waiting_bytes += file.columns.size_bytes() - before;
        if file.columns.size_bytes() >= GROUP_BYTES {
            self.waiting_bytes -= file.flush()?;
        }
        while self.waiting_bytes >= WAITING_BYTES {
            let largest = self.open.values_mut().max_by_key(|file| file.columns.size_bytes());
            let Some(largest) = largest else { break };
            self.waiting_bytes -= largest.flush()?;
        }
        Ok(())
    }

    /// Creates the next file of a partition, under a hidden name, and the directories to it.
    fn create(&mut self, (table, thread): Partition) -> Result<OpenFile, Error> {
        let mut dir = self.root.join(table.name()).join(format!("run={}", self.run));
        dir.extend(thread.map(|tid| format!("thread={tid}")));
        fs::create_dir_all(&dir).map_err(|error| dataset_error(&dir, &error))?;
        let number = self.next_numbers.entry((table, thread)).or_default();
        let name = format!("part-{number}.parquet");
        *number += 1;
        let (hidden, path) = (dir.join(format!("_{name}")), dir.join(name));
        let file = File::create(&hidden).map_err(|error| dataset_error(&hidden, &error))?;
        let schema = table.schema().map_err(|error| dataset_error(&path, &error))?;
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
        let file = file.map_err(|error| dataset_error(&path, &error))?;
        Ok(OpenFile { columns, file, hidden, path, last_row: 0 })
    }

    /// Closes the file with the oldest last row.
    fn close_oldest(&mut self) -> Result<(), Error> {
        let oldest = self.open.iter().min_by_key(|(_, file)| file.last_row).map(|(of, _)| *of);
        let Some(file) = oldest.and_then(|of| self.open.remove(&of)) else { return Ok(()) };
        self.close(file)
    }

    /// Closes a file, which keeps its hidden name until [`Self::finish`].
    fn close(&mut self, mut file: OpenFile) -> Result<(), Error> {
        self.waiting_bytes -= file.flush()?;
        let OpenFile { file, hidden, path, .. } = file;
        file.close().map_err(|error| dataset_error(&path, &error))?;
        self.closed.push((hidden, path));
        Ok(())
    }

    /// Closes all files and renames them to their final names, the one of table `runs` last. A
    /// table without rows gets an empty file, from which engines read its columns: that of
    /// `first_thread` if the table is partitioned by thread.
    pub(super) fn finish(&mut self, first_thread: Option<Tid>) -> Result<(), Error> {
        for table in Table::ALL {
            if !self.next_numbers.keys().any(|(of, _)| *of == table) {
                let thread = first_thread.filter(|_| table.is_by_thread());
                let file = self.create((table, thread))?;
                self.close(file)?;
            }
        }
        while let Some((_, file)) = self.open.pop_last() {
            self.close(file)?;
        }
        let runs = self.root.join(Table::Runs.name());
        self.closed.sort_by_key(|(_, path)| path.starts_with(&runs));
        for (hidden, path) in self.closed.drain(..) {
            fs::rename(&hidden, &path).map_err(|error| dataset_error(&path, &error))?;
        }
        Ok(())
    }
}

impl OpenFile {
    /// Writes the waiting rows of the file. Returns the number of their bytes.
    fn flush(&mut self) -> Result<usize, Error> {
        let size_bytes = self.columns.size_bytes();
        self.columns
            .write_row_group(&mut self.file)
            .map_err(|error| dataset_error(&self.path, &error))?;
        Ok(size_bytes)
    }
}

/// Returns the error for a file or directory of a dataset.
pub(super) fn dataset_error(path: &Path, error: &dyn Display) -> Error {
    Error::Dataset { path: path.to_owned(), why: error.to_string() }
}
