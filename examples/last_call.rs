//! Finds the last call of a function in a recording, and who called it:
//! `cargo run --example last_call -- RECORDING FUNCTION`.

use contraflow::session::{Direction, Found, History, Recording, Search};
use std::collections::BTreeSet;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, function] = &arguments[..] else {
        return Err("give the directory of a recording, and the name of a function".into());
    };
    let recording = Recording::open(Path::new(dir))?;
    let entries: BTreeSet<_> = recording.addresses_of(function).into_iter().collect();
    if entries.is_empty() {
        return Err(format!("the program has no function {function}").into());
    }
    let search = Search::beyond(recording.total(), 0, Direction::Backward, None, &entries);
    let Found::At(position) = recording.find(&search, &|| false) else {
        println!("{function} was not called");
        return Ok(());
    };
    println!("{function} was last called at position {position} of {}", recording.total());
    let Some(tid) = recording.running_at(position) else { return Ok(()) };
    for frame in recording.call_stack(tid, position) {
        let place = frame.call_site.and_then(|addr| recording.location_of(addr));
        println!(
            "  by {}",
            place.map_or("an unknown caller".to_owned(), |place| place.to_string())
        );
    }
    Ok(())
}
