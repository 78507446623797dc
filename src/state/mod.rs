//! Registers and memory at a position: known, with the source, or unavailable.
