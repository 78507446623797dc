//! `contraflow hits`.

use super::{answer, ask, compile, line_of, record, rows, source};
use crate::support::{Scene, contraflow, have, text};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Goes to each hit of a breakpoint, and writes the position and the values there, by tabs.
const SCRIPT: &str = r#"
import gdb
for option in ["pagination off", "width 0", "style enabled off", "print repeats unlimited",
               "print null-stop on", "print frame-arguments none", "print symbol off"]:
    gdb.execute("set " + option)
gdb.execute("cf-seek start", to_string=True)
hits = gdb.Breakpoint("AT")
with open("OUT", "w") as out:
    while True:
        before = hits.hit_count
        try:
            gdb.execute("continue", to_string=True)
        except gdb.error:
            break
        if hits.hit_count == before:
            break
        row = [gdb.execute("cf-when", to_string=True).split()[1]]
        for text in EXPRESSIONS:
            try:
                row.append(gdb.execute("output " + text, to_string=True))
            except gdb.error:
                row.append("<unavailable>")
        out.write("\t".join(row) + "\n")
"#;

const EXPRESSIONS: [&str; 25] = [
    "a->id",
    "a->name",
    "total",
    "byte",
    "ratio",
    "title",
    "table",
    "i",
    "sum",
    "name",
    "a->at.b",
    "a->grid[1]",
    "i * 2 + 1",
    "(char)(a->id + 65)",
    "a->color",
    "a->weight",
    "a->u",
    "a->tag",
    "-a->id",
    "a->out % 7",
    "head->next->id",
    "*a",
    "*a->next",
    "a->at",
    "a->on && !a->in",
];

/// Returns the rows of gdb: position and values.
fn by_gdb(scene: &Scene, dir: &Path, at: &str, expressions: &[&str]) -> Vec<Vec<String>> {
    let (script, out) = (scene.path("hits.py"), scene.path("hits.out"));
    let listed = format!("{expressions:?}");
    let content = SCRIPT.replace("AT", at).replace("OUT", out.to_str().unwrap());
    fs::write(&script, content.replace("EXPRESSIONS", &listed)).unwrap();
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch", "-x"]).arg(&script);
    let output = replay.output().expect("contraflow runs");
    let rows = fs::read_to_string(&out).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    rows.lines().map(|row| row.split('\t').map(without_types).collect()).collect()
}

/// Removes the types that gdb prints before pointers.
fn without_types(text: &str) -> String {
    let mut text = text.trim().to_owned();
    for of in [
        "(struct node *) ",
        "(const char *) ",
        "(void (*)(int)) ",
        "(int *) ",
        "(int **) ",
        "(int (*)[3]) ",
        "(void *) ",
    ] {
        text = text.replace(of, "");
    }
    text
}

/// Our rows: position and values.
fn ours(dir: &Path, at: &str, expressions: &[&str]) -> Vec<Vec<String>> {
    let print = expressions.join(", ");
    let found = rows("hits", dir, &["--at", at, "--print", &print]);
    let lines = answer("hits", dir, &["--at", at, "--print", &print]);
    assert_eq!(lines.lines().count(), found.len());
    let of_line = |(line, row): (&str, &serde_json::Value)| {
        let mut cells = vec![row["position"].as_str().unwrap().to_owned()];
        let mut rest = line;
        for (number, text) in expressions.iter().enumerate() {
            rest = rest.split_once(&format!("{text} = ")).expect(line).1;
            let next = expressions.get(number + 1).map(|next| format!(", {next} = "));
            let end = next.and_then(|next| rest.find(&next)).unwrap_or(rest.len());
            cells.push(rest[..end].to_owned());
        }
        cells
    };
    lines.lines().zip(&found).map(of_line).collect()
}

#[test]
fn values_at_each_hit_are_those_of_gdb() {
    if !have("gdb") {
        return;
    }
    for level in ["-O0", "-O2"] {
        let scene = Scene::new();
        let Some(program) = compile(&scene, "gcc", "values.c", &[level]) else { return };
        let (dir, _) = record(&scene, &[], &program);
        let at = line_of("values.c", "/* the line */");
        let expected = by_gdb(&scene, &dir, &at, &EXPRESSIONS);
        assert_eq!(expected.len(), 12, "{level}");
        let found = ours(&dir, &at, &EXPRESSIONS);
        assert_eq!(found.len(), expected.len(), "{level}");
        let mut known = 0;
        for (ours, gdb) in found.iter().zip(&expected) {
            assert_eq!(ours[0], gdb[0], "positions, {level}");
            for ((text, ours), gdb) in EXPRESSIONS.iter().zip(&ours[1..]).zip(&gdb[1..]) {
                // gdb finds values of a caller's registers that are not kept.
                if ours != "<optimized out>" {
                    assert_eq!(ours, gdb, "{text}, {level}");
                    known += 1;
                }
            }
        }
        assert!(known > 12 * 20, "{level}: {known}");
    }
}

/// Operands that are references, or arrays, which decay to pointers.
const OPERANDS: [&str; 33] = [
    "p[1]",
    "*p",
    "p + 1",
    "&p",
    "a[1]",
    "*a",
    "&a[2]",
    "&a",
    "a + 1",
    "*(a + 2)",
    "-r",
    "&r",
    "r + 1",
    "*&r",
    "-h.inner",
    "&h.inner",
    "h.row + 1",
    "&h.row[1]",
    "table + 1",
    "*(table + 1)",
    "1 + table",
    "2 + second",
    "second - table",
    "(int)(table == &table[0])",
    "(int)(table < second)",
    "(int)!table",
    "(int)(table && 0)",
    "(long)table",
    "(void *)table",
    "grid + 1",
    "*(*(grid + 1) + 2)",
    "grid[1] + 1",
    "*grid[1]",
];

#[test]
fn references_and_arrays_are_operands_as_in_gdb() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let Some(program) = compile(&scene, "g++", "operands.cpp", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let at = line_of("operands.cpp", "// the line");
    let expected = by_gdb(&scene, &dir, &at, &OPERANDS);
    assert_eq!(expected.len(), 1);
    let found = ours(&dir, &at, &OPERANDS);
    for ((text, ours), gdb) in OPERANDS.iter().zip(&found[0][1..]).zip(&expected[0][1..]) {
        assert_eq!(ours, gdb, "{text}");
    }
    // A reference is no pointer.
    let refused = ask("hits", &dir, &["--at", &at, "--print", "*r"]);
    assert!(text(&refused.stderr).contains("* needs a pointer"), "{}", text(&refused.stderr));
}

#[test]
fn long_strings_and_flags_with_two_names_are_shown_as_in_gdb() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "texts.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let at = line_of("texts.c", "// the line");
    let expressions = ["two", "three", "p", "q", "exact", "longer", "full"];
    let without_symbols = |text: &String| text.replace("(char *) ", "");
    let expected = by_gdb(&scene, &dir, &at, &expressions);
    let expected: Vec<_> = expected[0].iter().map(without_symbols).collect();
    assert_eq!(ours(&dir, &at, &expressions)[0], expected);
    // What the JSON has of a longer string is whole characters.
    let row = &rows("hits", &dir, &["--at", &at, "--print", "w, wide"])[0];
    let whole = json!(format!("a{}", "\u{e9}".repeat(99)));
    assert_eq!((&row["w"]["string"], &row["wide"]), (&whole, &whole));
}

#[test]
fn functions_stop_where_their_arguments_are() {
    if !have("gdb") {
        return;
    }
    for level in ["-O0", "-O2"] {
        let scene = Scene::new();
        let Some(program) = compile(&scene, "gcc", "values.c", &[level]) else { return };
        let (dir, _) = record(&scene, &[], &program);
        let expected = by_gdb(&scene, &dir, "mean", &["sum", "count", "total"]);
        assert_eq!(ours(&dir, "mean", &["sum", "count", "total"]), expected, "{level}");
        let stacks = rows("hits", &dir, &["--at", "mean", "--print", "bt 3"]);
        for row in &stacks {
            let stack = row["bt 3"].as_array().unwrap();
            let functions: Vec<_> =
                stack.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
            assert_eq!(functions[..2], ["mean", "work"], "{level}");
            assert_eq!(row["caller"].as_str().unwrap().split(' ').next(), Some("work"), "{row}");
        }
        assert_eq!(stacks.len(), 12);
    }
}

#[test]
fn values_of_cpp_are_those_that_the_program_prints() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "g++", "shapes.cpp", &["-O0"]) else { return };
    let (dir, output) = record(&scene, &[], &program);
    let at = line_of("shapes.cpp", "// the line");
    let print = "w, this->h, kind, made, geo::scale";
    let found = rows("hits", &dir, &["--at", &at, "--print", print]);
    let lines: Vec<String> = found
        .iter()
        .map(|row| {
            let cells = print.split(", ").map(|text| row[text].to_string());
            cells.collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(lines, text(&output.stdout).lines().collect::<Vec<_>>());
    let qualified = rows("hits", &dir, &["--at", &at, "--print", "geo::same, other::same"]);
    assert_eq!((&qualified[0]["geo::same"], &qualified[0]["other::same"]), (&json!(1), &json!(2)));
    // Without its namespace, it could be either.
    let ambiguous = ask("hits", &dir, &["--at", &at, "--print", "same"]);
    assert_eq!(ambiguous.status.code(), Some(2), "{}", text(&ambiguous.stdout));
    let looked = rows("hits", &dir, &["--at", "look", "--print", "r.w, p.first, p.second, on"]);
    let third = &looked[3];
    assert_eq!(third["r.w"], 3);
    assert_eq!(third["p.first"], 3);
    assert_eq!(third["p.second"], -2);
    assert_eq!(third["on"], true);
}

#[test]
fn values_that_cannot_be_shown_are_missing_and_not_others() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "g++", "operands.cpp", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let at = line_of("operands.cpp", "// the line");
    let print = "wide.left, wide.wide, wide.one, wide.quarter, wide.shared, wide.ones, wide.huge, \
                 wide.wider, wide.quad";
    let found = rows("hits", &dir, &["--at", &at, "--print", print]);
    let values: Vec<_> = print.split(", ").map(|text| found[0][text].clone()).collect();
    // The place of a virtual base, 128 bits, a number beyond a double, and a format unlike x87's.
    assert_eq!(json!(values), json!([12, 13, 1, 0.25, null, null, null, 1.25, null]));
    let unknown = ask("hits", &dir, &["--at", &at, "--print", "h.nothing"]);
    assert!(text(&unknown.stderr).contains("no member"), "{}", text(&unknown.stderr));
}

/// The linker moves the variables of all files to units of its own.
#[test]
fn globals_of_programs_that_were_optimized_as_they_were_linked_are_found() {
    let scene = Scene::new();
    let other = source("lto_other.cpp");
    let options = ["-O1", "-flto", other.to_str().unwrap()];
    let Some(program) = compile(&scene, "g++", "lto.cpp", &options) else { return };
    let (dir, _) = record(&scene, &[], &program);
    for (function, print, values) in [
        ("first", "space::counter, counter, Holder::member, own", json!([42, 42, 7, 1])),
        ("other", "space::counter, counter, Holder::member, own", json!([43, 43, 8, 2])),
    ] {
        let found = rows("hits", &dir, &["--at", function, "--print", print]);
        let found: Vec<_> = print.split(", ").map(|text| found[0][text].clone()).collect();
        assert_eq!(json!(found), values, "{function}");
    }
}

#[test]
fn values_of_rust_are_those_that_the_program_prints() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "rustc", "shapes.rs", &[]) else { return };
    let (dir, output) = record(&scene, &[], &program);
    let at = line_of("shapes.rs", "// the line");
    let print = "item.id, item.name, area, item.pair.0, item.ok, next, COUNT, item.shape";
    let found = rows("hits", &dir, &["--at", &at, "--print", print]);
    let names: Vec<&str> = print.split(", ").take(7).collect();
    let lines: Vec<String> = found
        .iter()
        .map(|row| {
            let cells = names.iter().map(|text| row[*text].to_string().replace(".0", ""));
            cells.collect::<Vec<_>>().join("|")
        })
        .collect();
    assert_eq!(lines, text(&output.stdout).lines().collect::<Vec<_>>());
    assert_eq!(found[0]["item.shape"], "Empty");
    assert_eq!(found[1]["item.shape"], serde_json::json!({"Circle": [1.0]}));
    assert_eq!(found[2]["item.shape"], serde_json::json!({"Rect": {"w": 2, "h": 2}}));
}

#[test]
fn rows_begin_at_a_position_and_end_at_a_limit() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let all = rows("hits", &dir, &["--at", "mean", "--print", "count"]);
    assert_eq!(all.len(), 12);
    let from = all[4]["position"].as_str().unwrap();
    let options = ["--at", "mean", "--print", "count", "--from", from, "--limit", "3"];
    assert_eq!(rows("hits", &dir, &options), all[4..7]);
    let csv = answer("hits", &dir, &[&options[..], &["--csv"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "position,thread,address,function,file,line,depth,caller,count");
    assert!(lines[1].starts_with(from) && lines[1].ends_with(",5"), "{csv}");
    assert_eq!(lines.len(), 4);
}

#[test]
fn an_instruction_that_kills_the_program_is_a_hit() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("crash.c", &["-O0"]);
    let dir = scene.path("recording");
    for options in [&[][..], &["--path"][..]] {
        let mut command = contraflow();
        command.args(["record", "-q", "-o"]).arg(&dir).arg("--force").args(options).arg("--");
        command.arg(&program).output().expect("contraflow runs");
        let address = rows("hits", &dir, &["--at", "main", "--limit", "1"]);
        assert_eq!(address.len(), 1);
        let fault = fault_of(&dir);
        let found = rows("hits", &dir, &["--at", &fault]);
        let last = found.last().expect("the faulting instruction");
        assert_eq!(last["address"], fault.as_str(), "{options:?}");
    }
    // The same at the position, in gdb.
    let nothing = ask("hits", &dir, &["--at", "0x10"]);
    assert!(text(&nothing.stderr).contains("was not executed\n"));
}

/// The address of the instruction at which a recorded program was killed.
fn fault_of(dir: &Path) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args([
        "--",
        "-nx",
        "-batch",
        "-ex",
        "printf \"pc=%#lx\\n\", $pc",
    ]);
    let said = text(&replay.output().expect("contraflow runs").stdout);
    let at = said.lines().find_map(|line| line.strip_prefix("pc="));
    at.unwrap_or_else(|| panic!("{said}")).to_owned()
}
