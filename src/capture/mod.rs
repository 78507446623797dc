//! From a live process to a recording.
