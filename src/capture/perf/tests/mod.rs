//! The backend without its hardware.

mod config;
mod fixtures;
mod kernel;
mod random;
mod rings;
