//! Prints the last source lines that a recorded program executed, oldest first:
//! `cargo run --example path -- RECORDING [LINES]`.

use contraflow::session::{History, Recording};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("give the directory of a recording")?;
    let most = arguments.next().map_or(Ok(10), |count| count.parse())?;
    let recording = Recording::open(Path::new(&dir))?;
    let mut lines = Vec::new();
    // A position stands for the instruction that is about to be executed there.
    for position in (0..recording.total()).rev() {
        let Some(tid) = recording.running_at(position) else { continue };
        let Some(place) = recording.pc(tid, position).and_then(|pc| recording.location_of(pc))
        else {
            continue;
        };
        let line = place.line.map(|(file, line)| format!("{file}:{line}"));
        let text = format!("thread {tid} {} {}", place.function, line.unwrap_or_default());
        if lines.last() != Some(&text) {
            lines.push(text);
        }
        if lines.len() > most {
            break;
        }
    }
    for line in lines.iter().take(most).rev() {
        println!("{line}");
    }
    Ok(())
}
