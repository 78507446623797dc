//! A recording as perf.data, for perf's own decoder and the tools built on perf. The code goes to a
//! directory beside it, for `--symfs`: it contains the recording's copies of files, the vdso of
//! another boot, and code that was in no file.

use super::super::error::{At, Error, ErrorKind};
use super::super::format::TraceId;
use super::super::reader::{Reader, Trace};
use super::converter::Converter;
use super::symfs::Symfs;
use crate::sideband::perf_data::AuxTrace;
use crate::sideband::{Event, Record};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The result of an export.
#[derive(Clone, Debug)]
pub struct ExportedPerf {
    /// The directory with the code, for perf's `--symfs`.
    pub symfs: PathBuf,
    /// The size of all traces in bytes.
    pub trace_bytes: u64,
    /// The errors of missing or damaged images, whose code the export lacks.
    pub lost: Vec<String>,
}

/// Writes a recording as perf.data to `out`, and its code to the directory `out` with the suffix
/// `.symfs`. Neither may exist; with `replace`, first removes the regular file `out`, whatever it
/// contains, and the directory if an export made it; anything else there is an error. A failed
/// export leaves no file `out`, but may leave the directory. Missing images are no failure
/// ([`ExportedPerf::lost`]).
pub fn export_perf(reader: &Reader, out: &Path, replace: bool) -> Result<ExportedPerf, Error> {
    let mut name = out.as_os_str().to_owned();
    name.push(".symfs");
    let root = PathBuf::from(name);
    if replace {
        remove(out, &root)?;
    }
    let file = match File::create_new(out) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::new(out, ErrorKind::ExportExists));
        }
        result => result.at(out)?,
    };
    let exported = write(reader, out, file, root);
    if exported.is_err() {
        // A partial file is useless, and the original error is more important than this one.
        let _ = fs::remove_file(out);
    }
    exported
}

/// Removes the file and the directory of a previous export: any regular file `out`, without a look
/// at its contents, and `root`, which must have the [`MARK`]. Fails, and removes nothing, if
/// anything else is there.
fn remove(out: &Path, root: &Path) -> Result<(), Error> {
    let is_exports = root.join(MARK).is_file();
    if !is_exports && fs::symlink_metadata(root).is_ok() {
        return Err(Error::new(root, ErrorKind::ExportExists));
    }
    if let Ok(metadata) = fs::symlink_metadata(out) {
        if !metadata.is_file() {
            return Err(Error::new(out, ErrorKind::ExportExists));
        }
        fs::remove_file(out).at(out)?;
    }
    if is_exports {
        fs::remove_dir_all(root).at(root)?;
    }
    Ok(())
}

/// The name of a file that marks directories of exports.
const MARK: &str = ".contraflow";

/// Writes the records and traces to `file`, and the code to the new directory `root`.
fn write(reader: &Reader, out: &Path, file: File, root: PathBuf) -> Result<ExportedPerf, Error> {
    let records = reader.sideband()?;
    let ids = reader.traces()?;
    let traces = ids.iter().map(|id| reader.trace(*id)).collect::<Result<Vec<_>, _>>()?;
    let symfs = Symfs::create(root)?;
    symfs.store(MARK, b"made by contraflow export\n")?;
    let mut converter = Converter::new(reader, &symfs, &records, &ids)?;
    converter.add_threads(reader.manifest(), &records);
    converter.add_traces(&ids, &traces);
    let mut rest = records.iter().peekable();
    while let Some(record) = rest.next() {
        // perf reports an exec(2) and the new name in one record.
        let name = rest.next_if(|next| is_name_of(next, record));
        match (&record.event, name.map(|name| &name.event)) {
            (Event::Exec { .. }, Some(Event::Comm { name })) => {
                converter.add_exec(record, name.clone());
            }
            _ => converter.add_record(record)?,
        }
    }
    converter.store_code_files()?;
    // perf ignores times without a reference, and 0 means none.
    let reference = records.iter().map(|record| record.tsc.0).max().unwrap_or(0).max(1);
    let pieces = ids.iter().zip(&traces).zip(0..);
    let pieces: Vec<_> =
        pieces.map(|((id, trace), index)| area(*id, trace, index, reference)).collect();
    let mut file = BufWriter::new(file);
    converter.writer.write(&pieces, &mut file).and_then(|()| file.flush()).at(out)?;
    Ok(ExportedPerf {
        trace_bytes: traces.iter().map(|trace| trace.as_ref().len() as u64).sum(),
        lost: converter.lost,
        symfs: symfs.root().to_owned(),
    })
}

/// Returns true if `exec` is an exec(2), and `record` has the thread's new name after it.
fn is_name_of(record: &Record, exec: &Record) -> bool {
    matches!((&exec.event, &record.event), (Event::Exec { .. }, Event::Comm { .. }))
        && (record.tsc, record.tid) == (exec.tsc, exec.tid)
}

/// Returns a whole trace as one piece of an AUX area, with its bytes.
fn area(id: TraceId, trace: &Trace, index: u32, reference: u64) -> (AuxTrace, &[u8]) {
    let (tid, cpu) = match id {
        TraceId::Thread(tid) => (Some(tid), None),
        TraceId::Cpu(cpu) => (None, Some(cpu)),
    };
    let bytes = trace.as_ref();
    let piece = AuxTrace {
        record_offset: 0,
        start: 0,
        size_bytes: bytes.len(),
        stream_offset: 0,
        reference,
        index,
        tid,
        cpu,
    };
    (piece, bytes)
}
