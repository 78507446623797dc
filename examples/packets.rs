//! Prints the packets of a raw trace, under their names in the Intel SDM, from its first PSB on:
//! `cargo run --example packets -- FILE`. The files in `trace/` of a recording of a path are raw traces.

use contraflow::pt::Packets;
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("give the file of a trace")?;
    let trace = std::fs::read(file)?;
    let mut out = std::io::stdout().lock();
    for (offset, packet) in Packets::synced(&trace) {
        match packet {
            Ok(packet) => writeln!(out, "{offset:#x} {packet:?}")?,
            Err(error) => writeln!(out, "{offset:#x} {error}; goes on at the next PSB")?,
        }
    }
    Ok(())
}
