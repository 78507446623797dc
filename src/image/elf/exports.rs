//! The symbols that a file exports.

use object::{Object, ObjectSymbol};

/// Returns the names and addresses, as linked, of the dynamic symbols that a file defines, except
/// for names that are not UTF-8; none if the file is damaged.
pub fn exports(file: &[u8]) -> Vec<(String, u64)> {
    let Ok(file) = object::File::parse(file) else { return Vec::new() };
    file.dynamic_symbols()
        .filter(ObjectSymbol::is_definition)
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .collect()
}
