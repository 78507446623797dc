//! `contraflow export parquet`: the tables, read by the crate itself and by `DuckDB`, against the command
//! line on the same recording.

use super::{compile, record, record_as, rows};
use crate::support::{Scene, contraflow, recordings_in, text};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn export(recordings: &[&Path], dataset: &Path, options: &[&str]) -> Output {
    let mut command = contraflow();
    command.args(["export", "parquet", "-o"]).arg(dataset).args(options).args(recordings);
    command.output().expect("contraflow runs")
}

fn exported(recordings: &[&Path], dataset: &Path, options: &[&str]) {
    let output = export(recordings, dataset, options);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

/// The rows of a table, with the values of its partitions.
fn table(dataset: &Path, name: &str) -> Vec<BTreeMap<String, Value>> {
    let mut all = Vec::new();
    for path in files(&dataset.join(name)) {
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let version = metadata.iter().find(|pair| pair.key == "contraflow.schema_version");
        assert_eq!(version.and_then(|pair| pair.value.as_deref()), Some("1"));
        let partitions = path.strip_prefix(dataset).unwrap().iter();
        let partitions = partitions.filter_map(|part| part.to_str()?.split_once('='));
        let partitions: Vec<_> =
            partitions.map(|(key, value)| (key.to_owned(), json!(value))).collect();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let cells = row.get_column_iter().map(|(name, field)| (name.clone(), value(field)));
            all.push(cells.chain(partitions.iter().cloned()).collect());
        }
    }
    all
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(flag) => json!(flag),
        Field::Int(number) => json!(number),
        Field::Long(number) | Field::TimestampMicros(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Str(text) => json!(text),
        other => panic!("{other:?}"),
    }
}

/// The cells of a call that the table and the command line have, in one form.
fn of_table(row: &BTreeMap<String, Value>) -> Value {
    let arguments = row["arguments"].as_str().map(|text| serde_json::from_str(text).unwrap());
    let arguments: Option<Value> = arguments;
    json!([
        row["position"],
        row["depth"],
        row["function"],
        row["how"],
        row["returned_position"],
        row["instructions"],
        arguments,
        row["thread"]
    ])
}

fn of_command_line(row: &Value) -> Value {
    json!([
        row["position"],
        row["depth"],
        row["function"],
        row["how"],
        row["returned_at"],
        row["instructions"],
        row["arguments"],
        row["thread"].to_string()
    ])
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_string);
    rows
}

#[test]
fn tables_are_the_rows_of_the_command_line() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let dataset = scene.path("dataset");
    let hits = ["--at", "name_of", "--print", "i, i * 0.5"];
    exported(&[&dir], &dataset, &[&["--args", "--returns"][..], &hits].concat());

    let wanted = rows("calls", &dir, &["--args", "--returns", "--duration"]);
    let calls = table(&dataset, "calls");
    assert_eq!(
        sorted(calls.iter().map(of_table).collect()),
        sorted(wanted.iter().map(of_command_line).collect())
    );
    // Results as text, and as numbers where they are numbers.
    let of = |name: &'static str| calls.iter().filter(move |row| row["function"] == name);
    assert_eq!(of("mean").count(), 12);
    for row in of("mean") {
        assert!(row["result_real"].is_f64());
        assert_eq!(
            json!(row["result"].as_str().unwrap().parse::<f64>().unwrap()),
            row["result_real"]
        );
        assert_eq!(row["result_integer"], Value::Null);
    }
    let main = of("main").next().unwrap();
    assert_eq!(main["result_integer"], 0);
    assert!(of("seven").all(|row| row["result"] == Value::Null && row["instructions"] == 7));
    // `at` is the order of the run.
    let mut in_order: Vec<_> =
        calls.iter().map(|row| (row["at"].as_i64(), row["position"].clone())).collect();
    in_order.sort_by_key(|(at, _)| *at);
    let position = |row: &Value| {
        let (moment, rest) =
            row.as_str().unwrap().split_once('.').unwrap_or((row.as_str().unwrap(), "0"));
        (moment.parse::<u64>().unwrap(), rest.parse::<u64>().unwrap())
    };
    assert!(in_order.is_sorted_by_key(|(_, text)| position(text)));

    let wanted = rows("hits", &dir, &hits);
    let hits = table(&dataset, "hits");
    assert_eq!(hits.len(), 2 * wanted.len());
    for (row, pair) in wanted.iter().zip(hits.chunks(2)) {
        assert_eq!(
            (&pair[0]["position"], &pair[0]["value_integer"]),
            (&row["position"], &row["i"])
        );
        assert_eq!(pair[1]["value_real"], row["i * 0.5"]);
        assert_eq!((&pair[0]["caller"], &pair[0]["depth"]), (&row["caller"], &row["depth"]));
    }

    // System calls: those of the log, with the places of the path.
    let log = contraflow().args(["dump", "log", "--json"]).arg(&dir).output().unwrap();
    let log = text(&log.stdout);
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let made = log
        .iter()
        .filter(|entry| ["call", "enters"].contains(&entry["kind"].as_str().unwrap_or("")));
    let system_calls = table(&dataset, "system_calls");
    assert!(system_calls.len() > 20);
    assert_eq!(system_calls.len(), made.count(), "{}", log[0]);
    assert!(system_calls.iter().all(|row| row["number"].is_i64() && row["name"].is_string()));
    let write = system_calls.iter().find(|row| row["name"] == "write").expect("it prints");
    let there = contraflow()
        .args(["hits", "--json", "--limit", "1", "--at", "write", "--from"])
        .arg(write["position"].as_str().unwrap())
        .arg(&dir)
        .output()
        .unwrap();
    assert!(there.status.success());
    assert!(write["result"].as_i64().unwrap() > 0 && write["errno"] == Value::Null);
    let access = system_calls.iter().find(|row| row["name"] == "access").expect("ld.so asks");
    assert_eq!((&access["result"], &access["errno"]), (&json!(-2), &json!(2)));

    // Lines: those that lcov counts.
    let lcov = super::answer("coverage", &dir, &[]);
    let executed = |line: &&str| line.starts_with("DA:") && !line.ends_with(",0");
    let lines = table(&dataset, "lines");
    assert_eq!(lines.len(), lcov.lines().filter(executed).count());
    for row in &lines {
        assert!(lcov.contains(&format!("\nDA:{},{}\n", row["line"], row["count"])), "{row:?}");
    }
    let [run] = &table(&dataset, "runs")[..] else { panic!("one run") };
    assert_eq!(
        (&run["failed"], &run["exact"], &run["exit_status"]),
        (&json!(false), &json!(true), &json!(0))
    );
    let [thread] = &table(&dataset, "threads")[..] else { panic!("one thread") };
    assert_eq!(thread["instructions"], run["instructions"]);
    assert_eq!(table(&dataset, "signals").len(), 0);
    assert_eq!(files(&dataset.join("signals")).len(), 1);

    // A run is there once.
    let again = export(&[&dir], &dataset, &[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("already"), "{}", text(&again.stderr));
    exported(&[&dir], &dataset, &["--force", "--own", "--function", "mean"]);
    let calls = table(&dataset, "calls");
    assert_eq!(calls.len(), 12);
    // Values that nobody asked for are unknown.
    assert!(
        calls.iter().all(|row| row["result"] == Value::Null && row["arguments"] == Value::Null)
    );
    assert_eq!(table(&dataset, "runs").len(), 1);
}

#[test]
fn an_export_that_failed_or_was_killed_can_be_repeated() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let dataset = scene.path("dataset");
    exported(&[&dir], &dataset, &["--own"]);
    // A wrong question removes nothing.
    for options in [["--function", "nothing"], ["--at", "nothing"]] {
        let output = export(&[&dir], &dataset, &[&["--force"][..], &options].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert_eq!(table(&dataset, "runs").len(), 1);
    }

    // One whose export was killed is not there.
    let runs = dataset.join("runs");
    let of_run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    fs::rename(of_run.join("part-0.parquet"), of_run.join("_part-0.parquet")).unwrap();
    exported(&[&dir], &dataset, &["--own"]);
    assert_eq!(table(&dataset, "runs").len(), 1);
}

#[test]
fn threads_signals_and_paths_are_in_the_dataset() {
    let scene = Scene::new();
    let dataset = scene.path("dataset");
    let threads = scene.compile("threads.c", &["-O0"]);
    let (threads, _) = record_as(&scene, "of-threads", &[], &threads, &[]);
    let handler = scene.compile("handler.c", &["-O0"]);
    let (handler, _) = record_as(&scene, "of-handler", &[], &handler, &[]);
    let (path, _) = record_as(&scene, "path", &["--path", "--full"], &scene.path("threads"), &[]);
    exported(&[&threads, &handler, &path], &dataset, &["--own", "--returns"]);
    let runs = table(&dataset, "runs");
    let named = |name: &str| {
        let run = runs.iter().find(|row| row["recording"] == name);
        run.unwrap_or_else(|| panic!("{name}"))["run"].clone()
    };
    let of = |name: &str, run: &str| -> Vec<BTreeMap<String, Value>> {
        let run = named(run);
        table(&dataset, name).into_iter().filter(|row| row["run"] == run).collect()
    };
    // Each thread has its part of the calls, in both kinds of recordings.
    for (run, dir) in [("of-threads", &threads), ("path", &path)] {
        let wanted = rows("calls", dir, &["--own", "--duration"]);
        let calls = of("calls", run);
        assert_eq!(calls.len(), wanted.len());
        let mut tids: Vec<_> = calls.iter().map(|row| row["thread"].to_string()).collect();
        tids.sort();
        tids.dedup();
        assert!(tids.len() > 1);
        assert_eq!(of("threads", run).len(), tids.len());
    }
    assert!(of("calls", "of-threads").iter().any(|row| row["result"].is_string()));
    // A path has no values, and no numbers of calls: they are null.
    assert!(of("calls", "path").iter().all(|row| row["result"] == Value::Null));
    let calls = of("system_calls", "path");
    assert!(!calls.is_empty() && calls.iter().all(|row| row["number"] == Value::Null));
    let signals = of("signals", "of-handler");
    assert!(!signals.is_empty());
    assert!(
        signals.iter().all(|row| row["name"].as_str().is_some_and(|name| name.starts_with("SIG")))
    );
    assert!(signals.iter().any(|row| row["handled"] == true));
}

/// A call that executes a program does not return to the one that makes it.
#[test]
fn each_execution_of_a_program_is_a_system_call() {
    let scene = Scene::new();
    let dataset = scene.path("dataset");
    let (dir, _) =
        record_as(&scene, "of-env", &[], Path::new("/usr/bin/env"), &["env", "/bin/true"]);
    exported(&[&dir], &dataset, &["--own"]);
    let calls = table(&dataset, "system_calls");
    let executed: Vec<_> = calls.iter().filter(|row| row["name"] == "execve").collect();
    let succeeded = executed.iter().filter(|row| row["result"] == 0).count();
    // `env` looks for `env` in each directory of PATH.
    assert_eq!(succeeded, 2, "{executed:?}");
}

#[test]
fn recordings_that_cannot_be_read_are_left_out_with_a_sentence() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (good, _) = record(&scene, &[], &program);
    let (bad, _) = record_as(&scene, "bad", &[], &program, &[]);
    let log = bad.join("log.bin");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 3]).unwrap();
    let dataset = scene.path("dataset");
    let output = export(&[Path::new("/nowhere"), &bad, &good], &dataset, &["--own"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("/nowhere") && said.contains("bad"), "{said}");
    let runs = table(&dataset, "runs");
    assert_eq!((runs.len(), &runs[0]["recording"]), (1, &json!("recording")));
    // A link is the same run.
    let link = scene.path("latest");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    exported(&[&good, &link], &scene.path("linked"), &["--own"]);
    assert_eq!(table(&scene.path("linked"), "runs").len(), 1);
    // Nothing is left of the others.
    assert!(files(&dataset).iter().all(|path| path.to_str().unwrap().contains("run=recording-")));
    assert!(
        !files(&dataset).iter().any(|path| path.file_name().unwrap().as_encoded_bytes()[0] == b'_')
    );
    let wrong = export(&[&good], &scene.path("other"), &["--function", "nothing"]);
    assert_eq!((wrong.status.code(), text(&wrong.stderr).lines().count()), (Some(2), 1));
    assert!(table(&scene.path("other"), "runs").is_empty());
}

#[test]
fn runs_that_fail_are_kept_and_others_are_not() {
    let scene = Scene::new();
    let store = scene.path("store");
    let record = |options: &[&str], script: &str| {
        let mut recorder = contraflow();
        recorder.env("CONTRAFLOW_HOME", &store).args(["record", "-q", "--keep-if-fails"]);
        let output = recorder.args(options).args(["--", "sh", "-c", script]).output().unwrap();
        (output.status.code(), recordings_in(&store).len())
    };
    assert_eq!(record(&[], "exit 0"), (Some(0), 0));
    assert_eq!(record(&[], "exit 3"), (Some(3), 1));
    assert_eq!(record(&[], "kill -SEGV $$"), (Some(139), 2));
    // Of several processes, those that fail, if the first one does.
    assert_eq!(record(&["--follow-forks"], "(exit 0); (exit 5); (exit 0); exit 1"), (Some(1), 4));
    assert_eq!(record(&["--follow-forks"], "(exit 5); exit 0"), (Some(0), 4));
    let named = scene.path("named");
    let option = ["-o", named.to_str().unwrap()];
    assert_eq!(record(&option, "exit 0"), (Some(0), 4));
    assert!(!named.exists());
    assert_eq!(record(&option, "exit 1").0, Some(1));
    assert!(named.join("manifest.json").exists());
}

/// Compares the calls of a dataset with those of the command line, and prints a count for each function.
const DUCKDB: &str = r#"
import sys, duckdb
dataset, calls = sys.argv[1:]
db = duckdb.connect()
db.execute(f"create view calls as from read_parquet('{dataset}/calls/*/*/*.parquet', hive_partitioning=true)")
db.execute(f"create view printed as from read_csv('{calls}', all_varchar=true)")
ours = "select position, function, depth::varchar d, how, coalesce(returned_position, '') r, coalesce(instructions::varchar, '') i from calls"
theirs = "select position, function, depth d, how, coalesce(returned_at, '') r, coalesce(instructions, '') i from printed"
for one, other in ((ours, theirs), (theirs, ours)):
    print(len(db.execute(f"({one}) except all ({other})").fetchall()), end=" ")
print(db.execute("select count(*) from calls where function = 'mean' and result_real is not null").fetchone()[0], end=" ")
for table in "runs threads calls system_calls signals lines hits".split():
    db.execute(f"from read_parquet('{dataset}/{table}/**/*.parquet', hive_partitioning=true)").fetchall()
print("read")
"#;

#[test]
fn duckdb_reads_the_same_calls() {
    let Some(python) = duckdb_python() else { return };
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let (dataset, calls) = (scene.path("dataset"), scene.path("calls.csv"));
    exported(&[&dir], &dataset, &["--returns"]);
    fs::write(&calls, super::answer("calls", &dir, &["--returns", "--duration", "--csv"])).unwrap();
    let output = Command::new(python).args(["-c", DUCKDB]).arg(&dataset).arg(&calls).output();
    let output = output.expect("python runs");
    assert_eq!(text(&output.stdout).trim(), "0 0 12 read", "{}", text(&output.stderr));
}

#[test]
fn the_example_of_a_fleet_finds_its_bug() {
    let Some(python) = duckdb_python() else { return };
    let scene = Scene::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet");
    let program = scene.path("orders");
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O1", "-fno-inline", "-o"]).arg(&program).arg(example.join("orders.c"));
    assert!(gcc.status().expect("gcc runs").success());
    // Four runs that fail, and four that pass.
    let fails = |seed: &u32| {
        !Command::new(&program).arg(seed.to_string()).output().unwrap().status.success()
    };
    let (failing, passing): (Vec<u32>, Vec<u32>) = (1..200).partition(fails);
    let seeds: Vec<u32> = failing.into_iter().take(4).chain(passing.into_iter().take(4)).collect();
    assert_eq!(seeds.len(), 8);
    let recordings: Vec<PathBuf> =
        seeds.iter().map(|seed| scene.path(&format!("run-{seed}"))).collect();
    for (seed, recording) in seeds.iter().zip(&recordings) {
        let mut recorder = contraflow();
        recorder.args(["record", "-q", "-o"]).arg(recording).arg("--").arg(&program);
        recorder.arg(seed.to_string()).output().expect("contraflow runs");
    }
    let (dataset, merged) = (scene.path("dataset"), scene.path("merged"));
    let recordings: Vec<&Path> = recordings.iter().map(PathBuf::as_path).collect();
    exported(&recordings, &dataset, &["--own", "--returns"]);
    let run = |script: &str, arguments: &[&Path]| {
        let output = Command::new(&python).arg(example.join(script)).args(arguments).output();
        let output = output.expect("python runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let found = run("separate.py", &[Path::new("duckdb"), &dataset]);
    assert!(found.starts_with("discount_of\t10\t4\t0\t1.0\n"), "{found}");
    run("merge.py", &[&dataset, &merged]);
    assert_eq!(run("separate.py", &[Path::new("duckdb"), &merged]), found);
}

/// A Python with the package `duckdb`.
fn duckdb_python() -> Option<std::ffi::OsString> {
    let python = std::env::var_os("CONTRAFLOW_DUCKDB_PYTHON").unwrap_or_else(|| "python3".into());
    let has = Command::new(&python).args(["-c", "import duckdb"]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let skipped = b"SKIPPED: python3 with the package duckdb is not installed\n";
    let _ = std::io::stderr().write_all(skipped);
    None
}
