//! `contraflow profile` and `contraflow coverage`.

use super::{answer, compile, record, rows, source};
use crate::support::{Scene, contraflow, have, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The instructions of a recording, by `dump stats`.
fn instructions(dir: &Path) -> u64 {
    let output = contraflow().args(["dump", "stats"]).arg(dir).output().expect("contraflow runs");
    let said = text(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    let number = last.strip_prefix("instructions ").and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn all_instructions_belong_to_a_function_and_a_stack() {
    for options in [&[][..], &["--path", "--full"][..]] {
        let scene = Scene::new();
        let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
        let (dir, _) = record(&scene, options, &program);
        let all = instructions(&dir);
        let functions = rows("profile", &dir, &[]);
        let sum = |name: &str| functions.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("self"), all, "{options:?}");
        let collapsed = answer("profile", &dir, &["--collapsed"]);
        let counts = collapsed.lines().map(|line| line.rsplit(' ').next().unwrap());
        assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), all);
        let of = |name: &str| functions.iter().find(|row| row["function"] == name).unwrap();
        assert_eq!((&of("seven")["self"], &of("seven")["total"]), (&84.into(), &84.into()));
        assert_eq!(of("seven")["calls"], 12);
        assert!(collapsed.contains(";main;work;seven 84\n"), "{collapsed}");
        let calls = rows("calls", &dir, &["--function", "work", "--duration"]);
        // A call's instructions are counted from its first one to the return.
        assert_eq!(calls[0]["instructions"], of("work")["total"], "{options:?}");
        let lines = rows("profile", &dir, &["--by", "line"]);
        let of_file = lines.iter().filter(|row| row["file"] == "values.c");
        let of_work: u64 = of_file
            .filter(|row| row["function"] == "work")
            .map(|row| row["self"].as_u64().unwrap())
            .sum();
        assert_eq!(of_work, of("work")["self"].as_u64().unwrap());
    }
}

#[test]
fn executed_lines_are_those_of_gcov() {
    if !have("gcov") {
        return;
    }
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let tracefile = answer("coverage", &dir, &[]);
    let ours: BTreeMap<u32, u64> = tracefile
        .lines()
        .filter_map(|line| line.strip_prefix("DA:")?.split_once(','))
        .map(|(line, count)| (line.parse().unwrap(), count.parse().unwrap()))
        .collect();
    let gcov = by_gcov(&scene);
    assert!(gcov.len() > 25, "{gcov:?}");
    for (line, count) in &gcov {
        assert_eq!(ours.get(line), Some(count), "line {line}");
    }
    // Both ways of a branch, and one of main's.
    assert!(tracefile.contains("FNDA:12,mean\n"), "{tracefile}");
    assert!(tracefile.lines().any(|line| line.starts_with("BRDA:") && line.ends_with(",12")));
    let other = answer("coverage", &dir, &["--include", "/nowhere"]);
    assert!(other.is_empty(), "{other}");
}

/// The executions of each line by gcov.
fn by_gcov(scene: &Scene) -> BTreeMap<u32, u64> {
    let build = scene.path("gcov");
    fs::create_dir(&build).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(&build).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    run("gcc", &["--coverage", "-O0", "-o", "program", source("values.c").to_str().unwrap()]);
    run("./program", &[]);
    run("gcov", &["program-values.gcda"]);
    let listing = fs::read_to_string(build.join("values.c.gcov")).unwrap();
    let lines = listing.lines().filter_map(|line| {
        let mut cells = line.splitn(3, ':').map(str::trim);
        let (count, line) = (cells.next()?, cells.next()?.parse().ok()?);
        let count = if count.starts_with(['#', '=']) { "0" } else { count };
        Some((line, count.trim_end_matches('*').parse().ok()?))
    });
    lines.filter(|(line, _)| *line > 0).collect()
}
