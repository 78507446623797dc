//! Memory contents, from the final state and the images.

use super::link_map::{Library, LinkMap, link_maps};
use super::mapped::Modules;
use crate::common::{Addr, Tid};
use crate::image::core::{Core, Thread};
use crate::image::{Bytes, Error, Image};

/// The time of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTime {
    /// The end of the run, when no code executes any more.
    End,
    /// Any earlier time: only file mappings that the program could never write to are known.
    Past,
}

/// The final state of a run; empty if the recorder could not write it.
#[derive(Debug, Default)]
pub struct FinalState {
    core: Option<Core>,
}

impl FinalState {
    /// Reads the state from a core file.
    pub fn of_core(bytes: &Bytes) -> Result<Self, Error> {
        Ok(Self { core: Some(Core::parse(bytes)?) })
    }

    /// Returns the core file; `None` if the recorder could not write one.
    pub fn core(&self) -> Option<&Core> {
        self.core.as_ref()
    }

    /// Returns a thread that lived to the end of the run; `None` for others, and without a core
    /// file. Its registers are those after its last instruction.
    pub fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.core.as_ref()?.contents.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Returns the libraries loaded at the end of the run: the dynamic linker's list, which starts
    /// with the program, without a name. Leaves out the vdso, and entries whose dynamic section
    /// `image` does not map. If the memory of this list is unknown, derives the libraries, without
    /// the program, from `image` and the path of the program; `None` if no program is mapped there.
    pub fn libraries(&self, image: &Image, program: Option<&str>) -> Option<Vec<Library>> {
        let derived = || Some(Modules::of(image, program)?.libraries());
        self.listed(image).or_else(derived)
    }

    /// Returns the auxiliary vector that the kernel passed to the program. Without a final state,
    /// it has only the entries that follow from the mappings; `None` if no program is mapped in
    /// `image` either.
    pub fn auxv(&self, image: &Image, program: Option<&str>) -> Option<Vec<u8>> {
        let recorded = self.core.as_ref().map(|core| core.contents.auxv.clone());
        let derived = || Some(Modules::of(image, program)?.auxv());
        recorded.filter(|auxv| !auxv.is_empty()).or_else(derived)
    }

    /// Returns the dynamic linker's list of loaded files, without the vdso and without entries
    /// whose dynamic section is not mapped. `None` without a final state, or if the list is
    /// unknown.
    fn listed(&self, image: &Image) -> Option<Vec<Library>> {
        let auxv = &self.core.as_ref()?.contents.auxv;
        let maps = link_maps(auxv, &|addr, buf| self.read(AccessTime::End, image, addr, buf))?;
        // The vdso has a name without a directory, and no file.
        let of_file = |(number, map): &(usize, LinkMap)| *number == 0 || map.name.contains('/');
        let libraries = maps.into_iter().enumerate().filter(of_file).map(|(_, map)| map);
        let with_file = |map: LinkMap| {
            let file = image.section_at(map.dynamic)?.name.clone();
            Some(Library { map, file })
        };
        Some(libraries.filter_map(with_file).collect())
    }

    /// Copies bytes from `addr` on into `buf`, up to the first that is unknown at `time`, and
    /// returns their number. `image` contains the mappings at that time.
    pub fn read(&self, time: AccessTime, image: &Image, addr: Addr, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_run(time, image, addr.wrapping_add(done as u64), rest) {
                0 => break,
                size => done += size,
            }
        }
        done
    }

    /// Copies the bytes at `addr` that one source has: the core, or a file. Returns their number.
    fn read_run(&self, time: AccessTime, image: &Image, addr: Addr, buf: &mut [u8]) -> usize {
        let core = self.core.as_ref().filter(|_| time == AccessTime::End);
        match core.map_or(0, |core| core.read(addr, buf)) {
            0 => image.read_file_data(addr, buf),
            from_core => from_core,
        }
    }
}
