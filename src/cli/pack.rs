//! `contraflow pack` and `contraflow unpack`: a recording as one file, and back.

use super::progress::Bar;
use super::record::{recording_argument, size_text};
use super::temporary::Temporary;
use super::{Failure, arguments, say};
use crate::capture::Leaving;
use crate::recording::pack::{pack, unpack};
use crate::recording::{Destination, Reader, Store};
use crate::session::companions_of;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The extension of packed recordings.
const EXTENSION: &str = "cfpack";

/// Packs a recording. The output appears only when it is complete, and replaces a file only with
/// --force.
pub(super) fn run(arguments: &arguments::Pack) -> Result<ExitCode, Failure> {
    let dir = Store::of_user().find(arguments.recording.as_deref())?;
    let reader = Reader::open(&dir)?;
    let out = arguments.output.clone().map_or_else(|| default_output(&dir), Ok)?;
    let taken = || format!("{}: exists already; --force replaces it", out.display());
    if fs::symlink_metadata(&out).is_ok() && !arguments.force {
        return Err(taken().into());
    }
    let companions = companions_of(&reader, arguments.sources)?;
    // The file is renamed when it is complete.
    let temporary = Temporary::beside(&out)?;
    let partial = temporary.dir().join("packed");
    let leaving = Leaving::on_signals();
    let mut bar = Bar::new("packing");
    pack(&reader, companions, &partial, &mut |done, total| {
        bar.show_part(done, total);
        !leaving.is_asked()
    })?;
    drop(bar);
    // Another process may have made the file since the first check.
    if fs::symlink_metadata(&out).is_ok() && !arguments.force {
        return Err(taken().into());
    }
    let failed = |error| format!("{}: {error}", out.display());
    let bytes = fs::metadata(&partial).map_err(failed)?.len();
    fs::rename(&partial, &out).map_err(failed)?;
    if !arguments.quiet {
        let name = recording_argument(&out, &Store::of_user());
        say(&format!("packed into {}: {}", out.display(), size_text(bytes)));
        say(&format!("step through it with: contraflow replay{name}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the default file to write: in the working directory, named after the recording's
/// directory, to which a link such as `latest` leads.
fn default_output(dir: &Path) -> Result<PathBuf, Failure> {
    let dir = fs::canonicalize(dir)?;
    let mut name = dir.file_name().ok_or("give the file to write with -o")?.to_owned();
    name.push(".");
    name.push(EXTENSION);
    Ok(name.into())
}

/// Unpacks a packed recording into a directory or into the store. Prepares a directory that the
/// user named before all else, to fail early, and discards it if unpacking fails. A directory in
/// the store is named after the program, which is known only after unpacking. A recording that is
/// in the store afterwards becomes its latest.
pub(super) fn unpack_file(arguments: &arguments::Unpack) -> Result<ExitCode, Failure> {
    let store = Store::of_user();
    let named_place = match &arguments.output {
        Some(dir) => Some(Destination::named(dir, arguments.force)?),
        None => None,
    };
    // Where the temporary directory is made: beside the named directory, or in the store.
    let parent =
        named_place.as_ref().map_or_else(|| store.create_dir(), |place| Ok(place.dir().into()));
    let unpacked = parent.map_err(Failure::from).and_then(|dir| unpack_beside(arguments, &dir));
    let (temporary, reader) = match unpacked {
        Ok(unpacked) => unpacked,
        Err(failure) => {
            if let Some(place) = named_place {
                place.roll_back();
            }
            return Err(failure);
        }
    };
    let place = match named_place {
        Some(place) => place,
        None => Destination::in_store(&store, Path::new(&reader.manifest().program))?,
    };
    let dir = place.dir().to_owned();
    // The place is an empty directory, which a rename replaces.
    if let Err(error) = fs::rename(reader.dir(), &dir) {
        place.roll_back();
        return Err(format!("{}: {error}", dir.display()).into());
    }
    place.remove_replaced()?;
    drop(temporary);
    store.set_latest(&dir)?;
    if !arguments.quiet {
        say(&format!("unpacked into {}", dir.display()));
        say(&format!(
            "step through it with: contraflow replay{}",
            recording_argument(&dir, &store)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Unpacks into a temporary directory beside `place`, the directory that the user named, or inside
/// `place` if it is the store. From there a rename can move the recording into place.
fn unpack_beside(
    arguments: &arguments::Unpack,
    place: &Path,
) -> Result<(Temporary, Reader), Failure> {
    let temporary = match arguments.output {
        Some(_) => Temporary::beside(place)?,
        None => Temporary::hidden_in(place)?,
    };
    let leaving = Leaving::on_signals();
    let mut bar = Bar::new("unpacking");
    let reader =
        unpack(&arguments.file, &temporary.dir().join("recording"), &mut |done, total| {
            bar.show_part(done, total);
            !leaving.is_asked()
        })?;
    Ok((temporary, reader))
}
