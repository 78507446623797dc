//! Programs of the system, translated: they print and return what they do by themselves, and the
//! trace has no gaps. Those that do the same each time and are short enough to be stepped take the
//! same path.

use crate::comparison::{
    first_difference, native_in, record_in, same_output, timeless_path, without_gaps,
};
use crate::support::{Scene, have};
use std::fmt::Write;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// What is compared besides output and status.
#[derive(Clone, Copy, PartialEq)]
enum Compare {
    /// The path, instruction by instruction.
    Path,
    /// Whether there are gaps: the program is long, or it reads the time, its process's number or
    /// its mappings, or starts others.
    Gaps,
}

use Compare::{Gaps, Path as Same};

/// In a directory with `text` (a thousand numbered lines), `other` (the same with a change),
/// `hello.c`, `hello.s`, `hello.o` and `Hello.java`.
const CHEAP: [(Compare, &str); 6] = [
    (Same, "expr 6 * 7"),
    (Same, "date -u -d 2001-02-03T04:05:06Z +%s"),
    (Gaps, "xz -T1 -1 -c text"),
    (Gaps, "grep -c 1.*9 text"),
    (Gaps, "bash -c for\u{a0}i\u{a0}in\u{a0}1\u{a0}2\u{a0}3;do\u{a0}echo\u{a0}$i|wc\u{a0}-c;done"),
    (Gaps, "python3 -c print(sum(i*i\u{a0}for\u{a0}i\u{a0}in\u{a0}range(10000)))"),
];

const ALL: [(Compare, &str); 76] = [
    (Same, "sed -n 10,20p text"),
    (Same, "cut -d: -f2 text"),
    (Same, "ls -l text"),
    (Same, "ls /nowhere"),
    (Same, "cat text"),
    (Same, "head -n 3 text"),
    (Same, "tail -n 3 text"),
    (Same, "gzip -c hello.c"),
    (Same, "gzip -9 -c hello.o"),
    (Same, "sed s/1/one/g hello.c"),
    (Gaps, "awk {n+=$2}END{print\u{a0}n} FS=: text"),
    (Gaps, "sort -r hello.c"),
    (Gaps, "sort -t: -k2n text"),
    (Gaps, "grep -n 77 text"),
    (Gaps, "grep -E ^l.*(11|22)$ text"),
    (Gaps, "perl -e $x.=$_**2\u{a0}for\u{a0}1..500;print\u{a0}length\u{a0}$x"),
    (Gaps, "perl -ne print\u{a0}if\u{a0}/7.*7/ text"),
    (
        Gaps,
        "python3 -c import\u{a0}json,hashlib;print(hashlib.md5(json.dumps(list(range(999))).encode()).hexdigest())",
    ),
    (
        Gaps,
        "python3 -c import\u{a0}threading;l=[];t=[threading.Thread(target=l.append,args=(1,))for\u{a0}i\u{a0}in\u{a0}range(8)];[x.start()for\u{a0}x\u{a0}in\u{a0}t];[x.join()for\u{a0}x\u{a0}in\u{a0}t];print(len(l))",
    ),
    (Gaps, "python3 -c 1/0"),
    (
        Gaps,
        "sqlite3 :memory: create\u{a0}table\u{a0}t(a);insert\u{a0}into\u{a0}t\u{a0}values(1),(2),(3);select\u{a0}sum(a*a)\u{a0}from\u{a0}t;",
    ),
    (Gaps, "bash -c x=0;while((x<300));do((x++));done;echo\u{a0}$x"),
    (Gaps, "bash -c trap\u{a0}'echo\u{a0}caught'\u{a0}USR1;kill\u{a0}-USR1\u{a0}$$;exit\u{a0}3"),
    (Gaps, "bash -c kill\u{a0}-SEGV\u{a0}$$"),
    (
        Gaps,
        "dash -c i=0;while\u{a0}[\u{a0}$i\u{a0}-lt\u{a0}200\u{a0}];do\u{a0}i=$((i+1));done;echo\u{a0}$i",
    ),
    (Gaps, "dash -c cat\u{a0}text|sort|tail\u{a0}-1|tr\u{a0}a-z\u{a0}A-Z"),
    (Gaps, "gcc -O2 -c hello.c -o out.o"),
    (Gaps, "gcc -O2 hello.c -o out"),
    (Gaps, "g++ -x c++ -std=c++17 -fsyntax-only hello.c"),
    (Gaps, "as hello.s -o out.o"),
    (Gaps, "ld -r hello.o -o out.o"),
    (Gaps, "objdump -d hello.o"),
    (Same, "nm hello.o"),
    (Same, "size hello.o"),
    (Same, "strings -n 8 hello.o"),
    (Gaps, "readelf -aW hello.o"),
    (Gaps, "git --version"),
    (Gaps, "git diff --no-index text other"),
    (Gaps, "git hash-object text"),
    (Gaps, "tar --owner=0 --mtime=@0 -cf - text hello.c"),
    (Gaps, "diff hello.c hello.s"),
    (Gaps, "diff text other"),
    (Gaps, "openssl dgst -sha256 text"),
    (Gaps, "openssl enc -aes-256-cbc -K 00 -iv 00 -in text -a"),
    (Same, "bc -e 2^200"),
    (Same, "find hello.c hello.s text -name hello*"),
    (Same, "stat -c %s text"),
    (Same, "tr a-z A-Z"),
    (Same, "wc text"),
    (Same, "sha256sum hello.c"),
    (Same, "md5sum hello.c"),
    (Same, "base64 hello.c"),
    (Same, "od -x hello.c"),
    (Same, "seq 1 3 100"),
    (Same, "printf %d:%s\\n 42 text"),
    (Same, "env -i A=1 env"),
    (Same, "sleep 0"),
    (Same, "false"),
    (Same, "basename /usr/share/doc"),
    (Same, "dirname /usr/share/doc"),
    (Same, "fold -w 7 text"),
    (Same, "paste text other"),
    (Same, "comm text other"),
    (Same, "uniq -c text"),
    (Same, "tac text"),
    (Same, "cksum text"),
    (Same, "sum text"),
    (Same, "expand text"),
    (Same, "factor 1234567890123"),
    (Same, "numfmt --to=iec 123456789"),
    (Gaps, "xz -T2 -3 -c text"),
    (Gaps, "timeout 0.2 sleep 10"),
    (Gaps, "make -f /nowhere"),
    (Gaps, "gdb -nx -batch -ex print\u{a0}6*7"),
    (Gaps, "node -e let\u{a0}s=0;for(let\u{a0}i=0;i<1e6;i++)s+=i%7;console.log(s)"),
    // A compiler of 20 threads and much code that is made as it runs, and then the program.
    (Gaps, "java Hello.java"),
];

fn prepare(scene: &Scene) {
    let lines = |changed: u32| {
        (1..=1000).fold(String::new(), |mut text, i| {
            let note = if i == changed { " changed" } else { "" };
            writeln!(text, "line:{}:{:x}{note}", i * 7919 % 1000, i * 104_729).unwrap();
            text
        })
    };
    std::fs::write(scene.path("text"), lines(0)).unwrap();
    std::fs::write(scene.path("other"), lines(500)).unwrap();
    let source = "int printf(const char *, ...);\nstatic int twice(int x) { return 2 * x; }\n\
                  int main() { return printf(\"hello %d\\n\", twice(21)) < 0; }\n";
    std::fs::write(scene.path("hello.c"), source).unwrap();
    let source = "class Hello { public static void main(String[] words) {\n\
                  System.out.println(\"hello \" + 6 * 7); } }\n";
    std::fs::write(scene.path("Hello.java"), source).unwrap();
    for flag in ["-S", "-c"] {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", flag, "hello.c"]).current_dir(scene.path(""));
        assert!(gcc.status().expect("gcc runs").success());
    }
}

/// The file of a program that is no script.
fn binary(name: &str) -> Option<String> {
    have(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let files = std::env::split_paths(&path).map(|dir| dir.join(name));
    let is_elf = |file: &PathBuf| {
        let mut magic = [0; 4];
        let read = std::fs::File::open(file).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    };
    files.into_iter().find(is_elf).map(|file| file.to_str().unwrap().into())
}

/// A command's words; a no-break space is a space in one of them.
fn words(command: &str) -> Vec<String> {
    command.split(' ').map(|word| word.replace('\u{a0}', " ")).collect()
}

/// Gives the number of instructions.
fn check(scene: &Scene, compare: Compare, words: &[&str]) -> Result<usize, String> {
    let in_scene = |command: &mut Command| {
        command.current_dir(scene.path("")).env("LC_ALL", "C").env("PYTHONHASHSEED", "0");
    };
    let native = native_in(words, in_scene);
    let (soft, translated) = record_in(scene, "soft", &[], words, in_scene);
    same_output(&translated, &native)?;
    if compare == Gaps {
        return without_gaps(&soft);
    }
    let (step, _) = record_in(scene, "step", &[], words, in_scene);
    first_difference(&timeless_path(&soft)?, &timeless_path(&step)?)
}

fn run(commands: &[(Compare, &str)]) {
    if !have("gcc") {
        return;
    }
    let mut failures = Vec::new();
    for &(compare, command) in commands {
        let scene = Scene::new();
        prepare(&scene);
        let mut words = words(command);
        let Some(program) = binary(&words[0]) else { continue };
        words[0] = program;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let begun = Instant::now();
        match check(&scene, compare, &words) {
            Ok(length) => {
                let path = if compare == Same { "the same path" } else { "no gaps" };
                let seconds = begun.elapsed().as_secs_f64();
                println!("{length:>10} instructions, {path}, {seconds:5.1} s: {command}");
            }
            Err(error) => {
                println!("FAILED: {command}");
                failures.push(format!("{command}: {error}"));
            }
        }
    }
    let (failed, all) = (failures.len(), commands.len());
    assert!(failures.is_empty(), "{failed} of {all}:\n{}", failures.join("\n\n"));
}

#[test]
fn a_few_run_as_by_themselves() {
    run(&CHEAP);
}

#[test]
#[ignore = "takes minutes: make check-long"]
fn many_run_as_by_themselves() {
    run(&ALL);
}
