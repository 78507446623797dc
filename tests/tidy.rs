//! Holds the tree to its drawing: rooms use only lower rooms, dependencies stay behind their
//! fences, `unsafe` stays where it may be, every file says what it is, and comments are in plain
//! English.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LINES_LIMIT: usize = 500;

/// Crates and the rooms that may name them.
const FENCES: [(&str, &[&str]); 14] = [
    ("gdbstub", &["gdb"]),
    ("nix", &["tracee", "engine", "capture", "recording", "cli"]),
    ("libc", &["tracee", "engine", "capture"]),
    ("gimli", &["symbols"]),
    ("addr2line", &["symbols"]),
    ("object", &["image", "symbols"]),
    ("iced_x86", &["insn", "flow", "translate", "cli"]),
    ("clap", &["cli"]),
    ("ruzstd", &["sideband"]),
    ("lz4_flex", &["recording"]),
    ("flate2", &["recording"]),
    ("parquet", &["ask"]),
    ("rmcp", &["mcp"]),
    ("tokio", &["mcp"]),
];

/// A crate, and the room that may name its constants only: errors, flags and signals.
const CONSTANTS_ONLY: (&str, &str) = ("libc", "replay");

/// Rooms that keep the rules of wording below. Add a room once its comments follow them.
const ROOMS_OF_PLAIN_WORDS: [&str; 24] = [
    "ask",
    "capture",
    "cli",
    "common",
    "dap",
    "encode",
    "engine",
    "flow",
    "gdb",
    "image",
    "insn",
    "mcp",
    "pt",
    "recording",
    "replay",
    "session",
    "sideband",
    "state",
    "symbols",
    "syscalls",
    "timeline",
    "tracee",
    "translate",
    "values",
];

/// Words that end in "s", like verbs in the third person, and are none at the start of a doc.
const NOT_VERBS: [&str; 14] = [
    "Addresses",
    "Always",
    "As",
    "Bits",
    "Bytes",
    "Has",
    "Instructions",
    "Is",
    "Its",
    "Less",
    "Packets",
    "Threads",
    "This",
    "Whereas",
];

/// Phrases for which there is a plainer word; a capital is the start of a sentence.
const BANNED_PHRASES: [&str; 15] = [
    "Gives",
    "What",
    "behind",
    "by itself",
    "come to",
    "is had",
    "let go",
    "meanwhile",
    "nobody",
    "of its own",
    "of use",
    "stands",
    "tells",
    "told",
    "whoever",
];

/// Parts of names for which there is a plainer word.
const DIALECT: [&str; 5] = ["behind", "meanwhile", "tell", "tells", "told"];

/// Where `unsafe` may stand: rooms, and one file.
const UNSAFE: [&str; 4] = ["tracee/", "engine/", "capture/", "recording/mapped.rs"];

struct Source {
    /// Relative to `src`.
    path: String,
    room: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    let source = |file: PathBuf| {
        let path = file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let room = path.split('/').next().unwrap().to_owned();
        Source { path, room, text: fs::read_to_string(file).unwrap() }
    };
    files.into_iter().map(source).collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The drawing of docs/architecture.md: each room's line, from the bottom.
fn levels() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = text.split("## Rooms and arrows").nth(1).expect("a drawing");
    let drawing = section.split("```").nth(1).expect("a drawing");
    let lines = drawing.lines().filter(|line| !line.is_empty()).rev().enumerate();
    let rooms = |(level, line): (usize, &str)| {
        line.split_whitespace().map(|room| (room.to_owned(), level)).collect::<Vec<_>>()
    };
    lines.flat_map(rooms).collect()
}

/// The code of a file without its comments.
fn code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.text.lines().enumerate();
    lines.filter_map(|(number, line)| {
        let code = line.split("//").next().unwrap_or_default();
        (!code.trim().is_empty()).then_some((number + 1, code))
    })
}

/// Returns the code of a file by statement: trees of `use` are in one piece.
fn statements(source: &Source) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in code(source) {
        match statements.last_mut().filter(|_| is_open) {
            Some((_, statement)) => statement.push_str(line),
            None => statements.push((number, line.to_owned())),
        }
        let (_, statement) = statements.last().expect("one was pushed");
        is_open = statement.contains("use crate::{") && !statement.contains(';');
    }
    statements
}

/// Returns the rooms that a statement names.
fn rooms_named<'a>(statement: &'a str, levels: &BTreeMap<String, usize>) -> Vec<&'a str> {
    let after = |(at, _): (usize, &str)| statement.get(at + "crate::".len()..);
    let mut named = Vec::new();
    for rest in statement.match_indices("crate::").filter_map(after) {
        for item in items(rest) {
            let word = |c: char| !c.is_alphanumeric() && c != '_';
            let name = item.trim().split(word).next().unwrap_or_default();
            named.extend(levels.contains_key(name).then_some(name));
        }
    }
    named
}

/// Returns the items of a tree of `use` at its first level, or all of the text.
fn items(text: &str) -> Vec<&str> {
    let Some(tree) = text.strip_prefix('{') else { return vec![text] };
    let (mut items, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&tree[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items
}

/// Files of a folder that use each other in circles, by their number. It may only fall: where there is
/// none, a file can be read after those that it uses.
const CIRCLES: [(&str, usize); 14] = [
    ("cli", 7),
    ("dap", 6),
    ("flow", 7),
    ("gdb", 8),
    ("insn", 2),
    ("pt/unit", 5),
    ("recording", 10),
    ("recording/import/perf", 2),
    ("replay", 13),
    ("symbols/dwarf", 3),
    ("syscalls", 7),
    ("tracee", 2),
    ("translate", 5),
    ("values", 5),
];

/// Returns the names that the statements of a file import by `use super::`, at their first level.
fn siblings(source: &Source) -> Vec<String> {
    let mut named = Vec::new();
    let mut open: Option<String> = None;
    for (_, line) in code(source) {
        let begins = line.trim().strip_prefix("use super::").map(str::to_owned);
        let Some(mut statement) = open.take().map(|text| text + line.trim()).or(begins) else {
            continue;
        };
        if !statement.contains(';') {
            statement.push(' ');
            open = Some(statement);
            continue;
        }
        for item in items(&statement) {
            let word = |c: char| !c.is_alphanumeric() && c != '_';
            named.push(item.trim().split(word).next().unwrap_or_default().to_owned());
        }
    }
    named
}

/// Returns the files of which a folder's `mod.rs` exports names, by the names.
fn exports(face: &Source) -> BTreeMap<String, String> {
    let text: String = code(face).map(|(_, line)| line.trim().to_owned() + " ").collect();
    let mut files = BTreeMap::new();
    for statement in text.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((file, names)) = statement.split_once("::") else { continue };
        for name in items(names) {
            let name = name.trim().rsplit([' ', ':']).next().unwrap_or_default();
            files.insert(name.to_owned(), file.to_owned());
        }
    }
    files
}

/// Returns for each file of each folder those of the folder that it uses. A folder in it counts as a file.
fn uses_by_folder() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let sources = sources();
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.path.contains("tests")) {
        let Some((folder, file)) = source.path.rsplit_once('/') else { continue };
        let name = file.trim_end_matches(".rs");
        if name != "mod" {
            let used = siblings(source).into_iter().collect();
            folders.entry(folder.to_owned()).or_default().insert(name.to_owned(), used);
        }
    }
    for (folder, files) in &mut folders {
        let face = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
        let face = sources.iter().find(|source| face.contains(&source.path));
        let exported = face.map(exports).unwrap_or_default();
        let names: BTreeSet<String> = files.keys().cloned().collect();
        for used in files.values_mut() {
            let file_of = |name: String| exported.get(&name).cloned().unwrap_or(name);
            *used = std::mem::take(used).into_iter().map(file_of).collect();
            used.retain(|name| names.contains(name));
        }
    }
    folders
}

/// Returns true if a file uses itself by way of others.
fn is_in_circle(file: &str, files: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![file]);
    while let Some(at) = next.pop() {
        for used in files[at].iter().filter(|used| *used != at) {
            if used == file {
                return true;
            }
            if seen.insert(used) {
                next.push(used);
            }
        }
    }
    false
}

#[test]
fn circles_of_files_only_get_fewer() {
    let folders = uses_by_folder();
    let count = |files: &BTreeMap<String, BTreeSet<String>>| {
        files.keys().filter(|file| is_in_circle(file, files)).count()
    };
    let found = folders.iter().map(|(folder, files)| (folder.as_str(), count(files)));
    let found: Vec<_> = found.filter(|(_, count)| *count > 0).collect();
    assert_eq!(found, CIRCLES, "if there are fewer than noted, lower the number");
}

#[test]
fn trees_of_use_are_read_in_one_piece() {
    let levels = BTreeMap::from(["insn", "pt", "flow"].map(|room| (room.to_owned(), 0)));
    let text = "use crate::{\n    insn::{Class, pt},\n    flow,\n};\nuse crate::pt::Packet;\n";
    let source = Source { path: String::new(), room: String::new(), text: text.to_owned() };
    let statements = statements(&source);
    let named: Vec<_> = statements.iter().map(|(_, text)| rooms_named(text, &levels)).collect();
    assert_eq!(named, [vec!["insn", "flow"], vec!["pt"]]);
}

/// The files of the rooms that keep the rules of wording.
fn plain_sources() -> Vec<Source> {
    let levels = levels();
    for room in ROOMS_OF_PLAIN_WORDS {
        assert!(levels.contains_key(room), "no room {room}");
    }
    let is_held = |source: &Source| ROOMS_OF_PLAIN_WORDS.contains(&source.room.as_str());
    sources().into_iter().filter(is_held).collect()
}

/// The comments of a file by line, without the code that is quoted in them.
fn comments(source: &Source) -> impl Iterator<Item = (usize, String)> {
    let lines = source.text.lines().enumerate();
    lines.filter_map(|(number, line)| {
        let (_, comment) = line.split_once("//")?;
        Some((number + 1, comment.split('`').step_by(2).collect()))
    })
}

/// The first line of the doc of each function, by its number.
fn docs_of_functions(source: &Source) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut doc = None;
    for (number, line) in source.text.lines().map(str::trim).enumerate() {
        if let Some(text) = line.strip_prefix("///") {
            doc = doc.or(Some((number + 1, text.trim())));
        } else if !line.starts_with("#[") {
            found.extend(doc.take().filter(|_| is_function(line)));
        }
    }
    found
}

/// The texts in double quotes of a file, by line, without those of its unit tests.
fn messages(source: &Source) -> Vec<(usize, &str)> {
    let tests = source.text.find("#[cfg(test)]\nmod tests {").unwrap_or(source.text.len());
    let last = source.text[..tests].lines().count();
    let lines = code(source).filter(|(number, _)| *number <= last);
    let mut found = Vec::new();
    let mut goes_on = false;
    for (number, line) in lines {
        let quoted: Vec<&str> = line.split('"').skip(usize::from(!goes_on)).step_by(2).collect();
        let is_odd = line.matches('"').count() % 2 == 1;
        goes_on = (goes_on != is_odd) && line.ends_with('\\');
        found.extend(quoted.into_iter().map(|text| (number, text)));
    }
    found
}

fn is_function(line: &str) -> bool {
    let after_scope = line.strip_prefix("pub(").and_then(|rest| rest.split_once(')'));
    let item = after_scope.map_or(line, |(_, rest)| rest);
    let mut words = item.split_whitespace();
    words.find(|word| !matches!(*word, "pub" | "const" | "unsafe")) == Some("fn")
}

fn is_verb(word: &str) -> bool {
    word.starts_with(char::is_uppercase) && word.ends_with('s') && !NOT_VERBS.contains(&word)
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

/// Returns true if a line names a crate: at the start of a path, or after `use`.
fn names_crate(line: &str, name: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let starts_path =
        line.match_indices(&format!("{name}::")).any(|(at, _)| !line[..at].ends_with(is_inside));
    starts_path || has_word(line, &format!("use {name}"))
}

/// Returns true if all that a line names of a crate begins with a capital.
fn names_only_constants(line: &str, name: &str) -> bool {
    let start = format!("{name}::");
    let mut named = line.split(&start).skip(1);
    !has_word(line, "use") && named.all(|named| named.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn assert_none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

/// Arrows that the drawing would allow, and that lead where a room has no business.
const FORBIDDEN: [(&str, &str); 6] = [
    ("capture", "flow"),
    ("encode", "flow"),
    ("encode", "recording"),
    ("engine", "flow"),
    ("engine", "recording"),
    ("session", "flow"),
];

#[test]
fn rooms_leave_alone_what_is_not_their_business() {
    let mut faults = Vec::new();
    let levels = levels();
    for source in sources() {
        for (number, line) in statements(&source) {
            for used in rooms_named(&line, &levels) {
                if FORBIDDEN.contains(&(&source.room, used)) {
                    faults.push(format!("{}:{number}: {used}", source.path));
                }
            }
        }
    }
    assert_none("arrows", &faults);
}

/// Names that only some rooms may use: how translated code and the kernel keep a thread's registers.
const OWNED: [(&str, &[&str]); 4] = [
    ("translator().locate", &["engine"]),
    ("user_regs_struct", &["tracee"]),
    ("slots::", &["engine", "translate"]),
    ("TRACE_POINTER", &["engine", "translate"]),
];

#[test]
fn names_stay_in_the_rooms_that_own_them() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in code(&source) {
            for (name, rooms) in OWNED {
                if line.contains(name) && !rooms.contains(&source.room.as_str()) {
                    faults.push(format!("{}:{number}: {name}", source.path));
                }
            }
        }
    }
    assert_none("names of other rooms", &faults);
}

/// Rooms that talk to users, and the doctor's part of another one.
const VIEWS: [&str; 5] = ["cli/", "dap/", "gdb/", "mcp/", "capture/host/"];
/// Names of forms of files, which are facts.
const FORMS: [&str; 1] = ["LLDB trace bundle"];

/// Returns true if a text mentions what users do in a debugger or on the command line.
fn names_a_remedy(text: &str) -> bool {
    let is_option = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
    let is_before_option = |start: &str| start.is_empty() || start.ends_with([' ', '`', '(']);
    let mut dashes = text.match_indices("--");
    let has_option =
        dashes.any(|(at, _)| is_before_option(&text[..at]) && is_option(&text[at + 2..]));
    let words = ["gdb", "LLDB", "monitor", "detach-on-fork", "ulimit"];
    has_option || words.iter().any(|word| has_word(text, word)) || text.contains("`contraflow ")
}

#[test]
fn remedies_are_added_by_views() {
    assert!(names_a_remedy("use --full") && names_a_remedy("--full") && names_a_remedy("in gdb"));
    assert!(!names_a_remedy("a--b") && !names_a_remedy("-- ") && !names_a_remedy("gdbserver"));
    let mut faults = Vec::new();
    let is_view = |path: &str| VIEWS.iter().any(|view| path.starts_with(view));
    let is_test = |path: &str| path.contains("/tests") || path.ends_with("_tests.rs");
    for source in sources().iter().filter(|s| !is_view(&s.path) && !is_test(&s.path)) {
        let texts = messages(source).into_iter().filter(|(_, text)| !FORMS.contains(text));
        let named = texts.filter(|(_, text)| names_a_remedy(text));
        faults.extend(named.map(|(number, text)| format!("{}:{number}: {text}", source.path)));
    }
    assert_none("remedies in lower rooms", &faults);
}

#[test]
fn the_drawing_shows_every_room() {
    let levels = levels();
    let mut drawn: Vec<_> = levels.keys().cloned().collect();
    let src = fs::read_dir(root().join("src")).unwrap().map(Result::unwrap);
    let mut there: Vec<_> = src
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    drawn.sort();
    there.sort();
    assert_eq!(drawn, there);
}

#[test]
fn rooms_use_only_lower_rooms() {
    let levels = levels();
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| levels.contains_key(&source.room)) {
        for (number, line) in statements(source) {
            for used in rooms_named(&line, &levels) {
                if used != source.room && levels[used] >= levels[&source.room] {
                    faults.push(format!("{}:{number}: {} uses {used}", source.path, source.room));
                }
            }
        }
    }
    assert_none("arrows that go up or sideways", &faults);
}

#[test]
fn gdb_reaches_no_deeper_than_the_session_and_capture_is_for_the_top() {
    let levels = levels();
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in statements(&source) {
            for used in rooms_named(&line, &levels) {
                let fine = match (source.room.as_str(), used) {
                    ("gdb", used) => matches!(used, "gdb" | "session" | "common"),
                    ("dap", used) => {
                        matches!(used, "dap" | "gdb" | "ask" | "session" | "common")
                    }
                    (room, "capture") => matches!(room, "capture" | "session" | "cli"),
                    _ => true,
                };
                if !fine {
                    faults.push(format!("{}:{number}: uses {used}", source.path));
                }
            }
        }
    }
    assert_none("reaches too deep", &faults);
}

#[test]
fn dependencies_stay_behind_their_fences() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in code(&source) {
            for (name, rooms) in FENCES {
                let room = source.room.as_str();
                let is_fine = rooms.contains(&room)
                    || CONSTANTS_ONLY == (name, room) && names_only_constants(line, name);
                if names_crate(line, name) && !is_fine {
                    faults.push(format!("{}:{number}: names {name}", source.path));
                }
            }
        }
    }
    assert_none("dependencies outside their rooms", &faults);
}

#[test]
fn unsafe_code_stays_in_its_places() {
    let mut faults = Vec::new();
    for source in sources() {
        let allowed = UNSAFE.iter().any(|place| source.path.starts_with(place));
        for (number, line) in code(&source) {
            if !allowed && has_word(line, "unsafe") {
                faults.push(format!("{}:{number}", source.path));
            }
        }
    }
    assert_none("unsafe code", &faults);
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    let mut faults = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//!") {
            faults.push(format!("{}: does not open with //!", source.path));
        }
        let lines = source.text.lines().count();
        if lines > LINES_LIMIT {
            faults.push(format!("{}: {lines} lines, perhaps two rooms", source.path));
        }
    }
    assert_none("files", &faults);
}

#[test]
fn no_room_has_more_than_a_quarter_of_the_house() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources() {
        *lines.entry(source.room.clone()).or_default() += source.text.lines().count();
    }
    let quarter = lines.values().sum::<usize>() / 4;
    let faults: Vec<_> = lines.iter().filter(|(_, lines)| **lines > quarter).collect();
    assert!(faults.is_empty(), "more than {quarter} lines: {faults:?}");
}

#[test]
fn the_architecture_is_read_at_one_sitting() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    assert!(text.lines().count() <= 200, "{} lines", text.lines().count());
    let is_prose = |block: &&str| !block.starts_with(['|', '-', '`', '#']);
    let long = text.split("\n\n").filter(is_prose).find(|block| block.lines().count() > 6);
    assert_eq!(long, None);
    let glossary = text.split("## Glossary").nth(1).expect("a glossary");
    let words = glossary.lines().filter(|line| line.starts_with("| ")).count() - 1;
    assert!(words <= 25, "{words} words");
}

#[test]
fn nothing_is_left_unbuilt() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in code(&source) {
            if line.contains("todo!(") || line.contains("unimplemented!(") {
                faults.push(format!("{}:{number}", source.path));
            }
        }
    }
    assert_none("left unbuilt", &faults);
}

#[test]
fn docs_of_functions_start_with_a_verb() {
    let mut faults = Vec::new();
    for source in plain_sources() {
        for (number, doc) in docs_of_functions(&source) {
            if !doc.split(' ').next().is_some_and(is_verb) {
                faults.push(format!("{}:{number}: {doc}", source.path));
            }
        }
    }
    assert_none("docs of functions without a verb in the third person", &faults);
}

#[test]
fn banned_phrases() {
    let mut faults = Vec::new();
    for source in plain_sources() {
        for (number, comment) in comments(&source) {
            for phrase in BANNED_PHRASES.into_iter().filter(|phrase| has_word(&comment, phrase)) {
                faults.push(format!("{}:{number}: {phrase}", source.path));
            }
        }
    }
    assert_none("phrases to say in plain English", &faults);
}

#[test]
fn banned_phrases_in_messages() {
    let mut faults = Vec::new();
    for source in plain_sources().iter().filter(|source| !source.path.contains("tests")) {
        for (number, text) in messages(source) {
            for phrase in BANNED_PHRASES.into_iter().filter(|phrase| has_word(text, phrase)) {
                faults.push(format!("{}:{number}: {phrase}", source.path));
            }
        }
    }
    assert_none("phrases to say in plain English", &faults);
}

#[test]
fn names_are_in_plain_words() {
    let mut faults = Vec::new();
    for source in plain_sources() {
        for (number, line) in code(&source) {
            let mut words = line.split(|c: char| !c.is_ascii_alphabetic());
            if words.any(|word| DIALECT.contains(&word)) {
                faults.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none("names with a plainer word", &faults);
}
