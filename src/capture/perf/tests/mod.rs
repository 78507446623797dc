//! The backend without its hardware.

mod config;
mod fixtures;
