"""Prepares gdb for files from a recording; `contraflow replay` loads it before them.

Such files are not trusted: gdb loads no script beside them or in their sections, even if the user's
`auto-load safe-path` covers them. Scripts that are installed on this machine for files with the
same paths are loaded as for a core file: pretty-printers of libstdc++, `py-bt` of Python. So are
scripts beside the machine's own files, in directories that the user trusts explicitly.
"""

import fnmatch
import os
import shlex

import gdb



SAFE_PATH = "auto-load safe-path"
NOTHING = "/nonexistent"


def directories(setting):
    """Returns the directories of a path setting, with gdb's own variables expanded."""
    variables = {
        "$debugdir": gdb.parameter("debug-file-directory"),
        "$datadir": gdb.parameter("data-directory"),
    }
    expanded = []
    for entry in (setting or "").split(os.pathsep):
        first, slash, rest = entry.partition("/")
        roots = (variables.get(first) or first).split(os.pathsep)
        expanded += [root + slash + rest for root in roots if root or slash]
    return expanded


def covers(entry, path):
    """Returns true if gdb would trust a path because of an entry of its safe path: each component
    of the entry is a pattern for the path's component at the same index."""
    patterns = [part for part in entry.split("/") if part]
    parts = [part for part in path.split("/") if part]
    matching = len(patterns) <= len(parts)
    return matching and all(map(fnmatch.fnmatchcase, parts, patterns))


def installed_scripts():
    return directories(gdb.parameter("auto-load scripts-directory"))


def trust_only_what_is_installed(safe_path, untrusted):
    """Removes every entry that covers an untrusted directory from the safe path, except for the
    directories of installed scripts in it."""
    installed = installed_scripts()
    trusted = []
    for entry in directories(safe_path):
        if any(covers(entry, path) or covers(path, entry) for path in untrusted):
            trusted += [path for path in installed if covers(entry, path)]
        else:
            trusted.append(entry)
    # An empty setting would restore gdb's default.
    gdb.execute("set %s %s" % (SAFE_PATH, os.pathsep.join(trusted) or NOTHING))


class InstalledObjfile:
    """An objfile of a recording under the path of this machine's own file. Installed scripts search
    modules near the objfile, and must not find any near a recording."""

    def __init__(self, objfile, filename):
        vars(self).update(objfile=objfile, filename=filename)

    def __getattr__(self, name):
        return getattr(self.objfile, name)

    def __setattr__(self, name, value):
        setattr(self.objfile, name, value)


class InstalledScripts:
    """The scripts installed on this machine for files of a recording."""

    def __init__(self, root):
        self.paths = {}
        for parent, _, names in os.walk(root):
            for name in names:
                shown = os.path.join(parent, name)
                path = os.path.realpath("/" + os.path.relpath(shown, root))
                self.paths.setdefault(os.path.realpath(shown), set()).add(path)
        # The objfile that each script was loaded for. gdb drops a library's where it is not loaded yet.
        self.loaded = {}

    def load(self, event):
        objfile = event.new_objfile
        for path in self.paths.get(os.path.realpath(objfile.filename or ""), ()):
            for directory in installed_scripts() + [""]:
                for suffix, run in SUFFIXES.items():
                    self.load_once(directory + path + suffix, run, InstalledObjfile(objfile, path))

    def load_once(self, script, run, objfile):
        trusted = directories(gdb.parameter(SAFE_PATH))
        is_trusted = any(covers(entry, os.path.realpath(script)) for entry in trusted)
        before = self.loaded.get(script)
        is_needed = before is None or not before.is_valid()
        if is_trusted and is_needed and os.path.isfile(script):
            self.loaded[script] = objfile
            run(script, objfile)


def run_python(script, objfile):
    if not gdb.parameter("auto-load python-scripts"):
        return
    import __main__

    current_objfile = gdb.current_objfile
    gdb.current_objfile = lambda: objfile
    try:
        with open(script, encoding="utf-8") as text:
            exec(compile(text.read(), script, "exec"), vars(__main__))
    finally:
        gdb.current_objfile = current_objfile


def run_gdb(script, objfile):
    if gdb.parameter("auto-load gdb-scripts"):
        gdb.execute("source " + script)


SUFFIXES = {"-gdb.py": run_python, "-gdb.gdb": run_gdb}


class Sysroot(gdb.Command):
    """Trust no script of a recording's files, and load those installed for them.

Usage: contraflow-sysroot ROOT RECORDING"""

    def __init__(self):
        super().__init__("contraflow-sysroot", gdb.COMMAND_OBSCURE)
        # Nothing is trusted until the command is executed.
        self.safe_path = gdb.parameter(SAFE_PATH)
        gdb.execute("set %s %s" % (SAFE_PATH, NOTHING))

    def invoke(self, argument, from_tty):
        root, recording = shlex.split(argument)
        trust_only_what_is_installed(self.safe_path, [os.path.realpath(root), root, recording])
        gdb.events.new_objfile.connect(InstalledScripts(root).load)


Sysroot()
