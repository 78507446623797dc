//! The classes of file descriptors, devices and files by which system calls in the code cache are
//! made without a stop.

use super::process::TranslatedProcess;
use super::window::DESCRIPTORS_OFFSET;
use crate::translate::{CacheMemory, DESCRIPTOR_COUNT, DescriptorClass};

impl TranslatedProcess {
    /// Returns true if the caller should find out the class of a descriptor and note it. Returns
    /// false if the class is known, if the number is too large to be noted, or if no class is
    /// needed, since no calls are made in the cache.
    pub fn needs_descriptor_class(&self, fd: u64) -> bool {
        if !has_entry(fd) || self.stops_at_calls || self.has_foreign() {
            return false;
        }
        let mut class = [0];
        self.window.shared.read(DESCRIPTORS_OFFSET + fd, &mut class);
        class == [DescriptorClass::Unknown as u8]
    }

    /// Notes the class of a descriptor, unless its number is too large. The class is forgotten
    /// where a thread closes the descriptor in the cache.
    pub fn note_descriptor(&self, fd: u64, class: DescriptorClass) {
        if has_entry(fd) {
            self.window.shared.write(DESCRIPTORS_OFFSET + fd, &[class as u8]);
        }
    }

    /// Forgets the classes of all descriptors.
    pub fn forget_descriptors(&self) {
        self.window.shared.write(DESCRIPTORS_OFFSET, &[0; DESCRIPTOR_COUNT]);
    }

    /// Notes a device (`st_dev`) on which calls for regular files and directories do not block.
    /// Does nothing if it is known, or if as many devices are known as the table has room for.
    pub fn note_device(&mut self, device: u64) {
        if self.call_facts.add_device(device) {
            self.update_logged_calls();
        }
    }

    /// Notes that a file is mapped, so that a write to it changes the program's memory. Forgets the
    /// classes of all descriptors, and, if the file is new, sets anew which system calls threads
    /// make in the cache.
    pub fn note_mapped_file(&mut self, inode: u64) {
        self.forget_descriptors();
        if self.call_facts.add_mapped(inode) {
            self.update_logged_calls();
        }
    }
}

fn has_entry(fd: u64) -> bool {
    fd < DESCRIPTOR_COUNT as u64
}
