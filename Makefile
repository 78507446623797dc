# contraflow: build, demo, checks, benchmarks, fuzzing. Needs a Rust toolchain; everything else is
# installed (as root, on Debian and its kin) or asked for.

CARGO ?= cargo
PREFIX ?= /usr/local
# Seconds for each fuzz target, and how many run at a time.
FUZZ_SECONDS ?= 60
FUZZ_JOBS ?= 2
# Mutants a target from which `make corpus` keeps what is new, and the number that they follow from.
FUZZ_MUTANTS ?= 20000
FUZZ_SEED ?= 1

# Command and Debian package of each tool that demo and tests use.
TOOLS := gcc:gcc gdb:gdb
# lldb and libipt make more tests run; without them those say that they skip.
CHECK_TOOLS := $(TOOLS) make:make

MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# End-to-end tests that `make check` leaves to `make check-ci`, by parts of their names: those that record by
# single steps, wait for processes to end, repeat one thing at random moments, or are of one view or question.
LONG_TESTS := ask::agents ask::counts ask::dataset ask::diff ask::exports ask::origin ask::wrong attach:: \
	audit:: btrace:: circles:: control:: counting:: cut:: damage:: dap::history dap::robust \
	dap::testsupport dap::walks death:: ends:: equality:: exact::ahead:: exact::filters:: exact::forks:: \
	exact::keep:: exact::keyframes:: exact::languages:: exact::live:: exact::paths:: exact::races:: \
	exact::shared:: exact::tools:: filter:: finish:: forks:: generated:: hostile:: introspection:: \
	limits:: log:: packed:: passthrough:: perf:: privacy:: real:: recorded_and_live serve::stepped:: \
	session:: snapshots:: soft:: stacks:: storm:: trust:: walk:: wander::
# The files of tests but for the end-to-end tests.
OTHER_TESTS := $(filter-out end_to_end,$(notdir $(patsubst %/main.rs,%,$(wildcard tests/*/main.rs))) \
	$(basename $(notdir $(wildcard tests/*.rs))))
# Tests wait for debuggers and for ends of processes, so that one more than there are CPUs runs.
TEST_JOBS ?= $(shell expr $$(nproc) + 1)
# The longer tests wait more.
LONG_JOBS ?= $(shell expr $$(nproc) + 2)

.PHONY: all build cargo install demo vsix ide-test check check-ci check-long stress fmt clippy doc deny test test-long bench fuzz corpus tools check-tools clean

all: build

build: cargo
	$(CARGO) build --release

# Says what to install where there is no Rust; make would only say that a command failed.
cargo:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
		echo "cargo is not installed; install Rust $(MSRV) or newer: with rustup, or as the" \
			"packages cargo and rustc where they are new enough" >&2; exit 1; }

SHARE = $(DESTDIR)$(PREFIX)/share

# The program, its manual pages and the completions of three shells.
install: build
	install -D target/release/contraflow $(DESTDIR)$(PREFIX)/bin/contraflow
	target/release/contraflow man $(SHARE)/man/man1
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
		$(SHARE)/fish/vendor_completions.d
	target/release/contraflow completions bash > $(SHARE)/bash-completion/completions/contraflow
	target/release/contraflow completions zsh > $(SHARE)/zsh/site-functions/_contraflow
	target/release/contraflow completions fish > $(SHARE)/fish/vendor_completions.d/contraflow.fish

# Records a program that crashes far from its bug, and lets gdb walk back to it, line by line.
demo: cargo tools build
	@sh examples/crash/demo.sh target/release/contraflow

# The extension for VS Code: code --install-extension target/contraflow.vsix
vsix:
	@mkdir -p target
	python3 examples/editors/mkvsix.py examples/editors/vscode target/contraflow.vsix

# Drives a real VS Code with the extension in a headless browser, with screenshots in target/ide. Needs
# npm and chromium; what it installs is kept in ~/.cache. It says what it skips.
ide-test: build
	sh tests/ide/run.sh target/release/contraflow target/ide

# What a change must pass: formatting, lints, tests.
check: cargo check-tools fmt clippy test

# What continuous integration runs besides: the longer tests, documentation, licences of dependencies, and
# fuzzing.
check-ci: FUZZ_SECONDS = 10
check-ci: check test-long doc deny fuzz

# What takes minutes: translated programs of the system against stepped ones, more random programs,
# more signals, many short programs in a row, parts of gdb's own testsuite where dejagnu and gdb's source
# are installed (GDB_TESTSUITE, see tests/gdb_suite/run.sh), and the programs of rr's (RR_SOURCE) and of the
# Linux Test Project (LTP_BUILD).
check-long: check-tools build
	CONTRAFLOW_SEEDS=10000-10099 CONTRAFLOW_SIGNALS=5000 \
		$(CARGO) test --test end_to_end -- --include-ignored generated:: storm:: real:: ends:: exact::
	sh tests/stress.sh target/release/contraflow
	sh tests/gdb_suite/run.sh target/release/contraflow
	sh tests/rr_suite/run.sh target/release/contraflow
	sh tests/ltp_suite/run.sh target/release/contraflow

# 200 short translated programs in a row.
stress: check-tools build
	sh tests/stress.sh target/release/contraflow

fmt:
	$(CARGO) fmt --check

# The fuzz program is not among all targets, since it is no list of tests.
clippy:
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy --test fuzz -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --quiet

# Advisories need the network's advisory database and are left to those who have it.
deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install cargo-deny --locked --debug
	$(CARGO) deny --log-level error check bans licenses sources

# Examples are built by clippy; linking them here would take time.
test:
	$(CARGO) test --lib --bins $(OTHER_TESTS:%=--test %) -- --test-threads $(TEST_JOBS)
	$(CARGO) test --test end_to_end -- --test-threads $(TEST_JOBS) $(LONG_TESTS:%=--skip %)
	$(CARGO) test --doc

test-long:
	$(CARGO) test --test end_to_end -- --test-threads $(LONG_JOBS) $(LONG_TESTS)

bench: build
	sh benches/run.sh
	sh benches/capture/run.sh
	sh benches/exact/run.sh
	sh benches/ask/run.sh
	sh benches/dap/run.sh
	python3 benches/goals/run.py

# Mutated inputs for what reads hostile bytes, FUZZ_SECONDS each; and that faults are found.
fuzz:
	$(CARGO) test --quiet --test fuzz -- check
	FUZZ_JOBS=$(FUZZ_JOBS) $(CARGO) test --quiet --test fuzz -- run $(FUZZ_SECONDS)

# Keeps in fuzz/corpus/ what does something new. The same seed and number of mutants give the same.
corpus:
	FUZZ_SEED=$(FUZZ_SEED) $(CARGO) test --quiet --test fuzz -- grow $(FUZZ_MUTANTS)

tools:
	@sh .ci/tools $(TOOLS)

check-tools:
	@sh .ci/tools $(CHECK_TOOLS)

clean:
	$(CARGO) clean
