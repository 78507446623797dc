// Loads the extension for VS Code with a stand-in for VS Code's own module, whose debug session is a
// real adapter: node extension.js CONTRAFLOW RECORDING SOURCE LINE
'use strict';
const assert = require('assert');
const fs = require('fs');
const Module = require('module');
const path = require('path');
const { spawn } = require('child_process');

const [contraflow, recording, source, line] = process.argv.slice(2);
const folder = path.join(__dirname, '../../examples/editors/vscode');
const contributed = require(path.join(folder, 'package.json')).contributes;

/** A client of an adapter with the interface of a debug session. */
class Session {
    constructor() {
        this.type = 'contraflow';
        this.child = spawn(contraflow, ['dap'], { stdio: ['pipe', 'pipe', 'inherit'] });
        this.waiting = new Map();
        this.events = [];
        this.listeners = [];
        this.seq = 0;
        let bytes = Buffer.alloc(0);
        this.child.stdout.on('data', (more) => {
            bytes = Buffer.concat([bytes, more]);
            for (;;) {
                const head = bytes.indexOf('\r\n\r\n');
                if (head < 0) return;
                const length = Number(/Content-Length: (\d+)/.exec(bytes.toString('utf8', 0, head))[1]);
                if (bytes.length < head + 4 + length) return;
                this.receive(JSON.parse(bytes.toString('utf8', head + 4, head + 4 + length)));
                bytes = bytes.subarray(head + 4 + length);
            }
        });
    }

    receive(message) {
        this.listeners.forEach((listener) => listener(message));
        if (message.type === 'event') {
            this.events.push(message);
            return;
        }
        const [resolve, reject] = this.waiting.get(message.request_seq);
        message.success ? resolve(message.body || {}) : reject(new Error(message.message));
    }

    customRequest(command, args) {
        const seq = ++this.seq;
        const text = JSON.stringify({ seq, type: 'request', command, arguments: args || {} });
        this.child.stdin.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
        return new Promise((resolve, reject) => this.waiting.set(seq, [resolve, reject]));
    }

    async event(name) {
        for (;;) {
            const at = this.events.findIndex((event) => event.event === name);
            if (at >= 0) return this.events.splice(at, 1)[0].body;
            await new Promise((resolve) => setTimeout(resolve, 10));
        }
    }
}

const registered = { commands: {}, trees: {}, views: {} };
const status = { show: () => {}, hide: () => {}, dispose: () => {} };
const said = [];
const input = [];
let factory;
let inline;
let tracker;
const say = (text) => { said.push(text); };
const nothing = { dispose: () => {} };
const fake = {
    workspace: { getConfiguration: () => ({ get: (key) => (key === 'path' ? contraflow : 50) }), workspaceFolders: [] },
    window: {
        createStatusBarItem: () => status,
        registerTreeDataProvider: (id, tree) => { registered.trees[id] = tree; return nothing; },
        registerWebviewViewProvider: (id, view) => { registered.views[id] = view; return nothing; },
        showInputBox: async () => input.shift(),
        showErrorMessage: say,
        showInformationMessage: say,
        withProgress: (_, work) => work(),
        activeTextEditor: {
            selection: { active: { line: Number(line) - 1 } },
            document: { uri: { fsPath: source }, getText: () => '' },
        },
    },
    debug: {
        registerDebugConfigurationProvider: () => nothing,
        registerDebugAdapterDescriptorFactory: (_, made) => { factory = made; return nothing; },
        registerDebugAdapterTrackerFactory: (_, made) => { tracker = made.createDebugAdapterTracker(); return nothing; },
    },
    languages: { registerInlineValuesProvider: (_, provider) => { inline = provider; return nothing; } },
    Range: class { constructor(...all) { this.all = all; } },
    InlineValueVariableLookup: class { constructor(range, name) { Object.assign(this, { range, name }); } },
    commands: {
        registerCommand: (id, run) => { registered.commands[id] = run; return nothing; },
        executeCommand: async () => {},
    },
    EventEmitter: class { constructor() { this.event = () => nothing; } fire() {} },
    TreeItem: class { constructor(label) { this.label = label; } },
    ThemeColor: class { constructor(id) { this.id = id; } },
    DebugAdapterExecutable: class { constructor(command, args) { Object.assign(this, { command, args }); } },
    StatusBarAlignment: { Left: 1 },
    ProgressLocation: { Notification: 15 },
    DebugConfigurationProviderTriggerKind: { Dynamic: 2 },
};
const load = Module._load;
Module._load = (name, ...rest) => (name === 'vscode' ? fake : load(name, ...rest));

async function main() {
    require(path.join(folder, 'extension.js')).activate({ subscriptions: [] });
    const ids = contributed.commands.map((command) => command.command).sort();
    assert.deepStrictEqual(Object.keys(registered.commands).sort(), ids);
    for (const entry of Object.values(contributed.menus).flat()) {
        assert(ids.includes(entry.command), `${entry.command} is in a menu only`);
    }
    const views = Object.values(contributed.views).flat().map((view) => view.id).sort();
    assert.deepStrictEqual([...Object.keys(registered.trees), ...Object.keys(registered.views)].sort(), views);
    assert.deepStrictEqual({ ...factory.createDebugAdapterDescriptor() }, { command: contraflow, args: ['dap'] });

    const run = (name, ...args) => registered.commands[`contraflow.${name}`](...args);
    await run('hits');
    assert(/No contraflow session/.test(said.pop() || '') || input.length === 0);
    const session = new Session();
    session.listeners.push((message) => tracker.onDidSendMessage(message));
    fake.debug.activeDebugSession = session;
    try {
        await session.customRequest('initialize');
        await session.customRequest('launch', { recording });
        await session.customRequest('configurationDone');
        await session.event('stopped');
        await session.event('contraflow/when');
        assert(/ · end$/.test(status.text) && status.backgroundColor === undefined, status.text);

        input.push('a; total');
        await run('hits');
        const hits = registered.trees['contraflow.hits'];
        const [title, ...list] = hits.getChildren();
        assert.strictEqual(title.label, `5 hits of ${path.basename(source)}:${line}`);
        assert.strictEqual(list[0].description, 'a = 4, total = 10');
        const item = hits.getTreeItem(list[2]);
        await run('seek', ...item.command.arguments);
        await session.event('stopped');
        const when = await session.event('contraflow/when');
        assert(/ · past$/.test(status.text) && status.backgroundColor.id === 'statusBarItem.warningBackground');

        // Values beside the lines of this function, and of no other.
        const text = fs.readFileSync(source, 'utf8').split('\n');
        const document = { lineAt: (at) => ({ text: text[at] }) };
        const range = (at) => ({ start: { line: 0 }, end: { line: at } });
        const stack = await session.customRequest('stackTrace', { threadId: when.thread, levels: 1 });
        const stop = { stoppedLocation: range(Number(line) - 1), frameId: stack.stackFrames[0].id };
        const values = await inline.provideInlineValues(document, range(text.length), stop);
        const first = text.findIndex((each) => each.startsWith('static int add'));
        const names = values.map((value) => value.name);
        assert(values.every((value) => value.range.all[0] >= first && value.range.all[0] < Number(line)));
        assert(['a', 'b', 'sum', 'total'].every((name) => names.includes(name)) && !names.includes('grows'), names);

        input.push('here');
        await run('mark');
        const marks = registered.trees['contraflow.marks'];
        assert.deepStrictEqual(marks.getChildren().map((mark) => mark.name), ['here']);
        await run('unmark', marks.getChildren()[0]);
        assert.deepStrictEqual(marks.getChildren(), []);

        await run('stepBackOut');
        await session.event('stopped');
        const posted = [];
        const view = {
            webview: { postMessage: (message) => posted.push(message), onDidReceiveMessage: (handle) => { view.send = handle; } },
            onDidDispose: () => {},
        };
        registered.views['contraflow.recording'].resolveWebviewView(view);
        assert(/acquireVsCodeApi/.test(view.webview.html) && !/https?:/.test(view.webview.html));
        view.send({ ready: true });
        assert(posted[0].threads.length === 1 && posted[0].hits.length === 5);
        view.send({ share: 0.5 });
        await session.event('stopped');
        const half = await session.customRequest('contraflow/when');
        assert(Math.abs(half.share - 0.5) < 0.01, JSON.stringify(half));

        await run('seek', 'end');
        await session.event('stopped');
        const variable = { name: 'total', evaluateName: 'total', type: 'int' };
        const total = await session.customRequest('evaluate', { expression: 'total', context: 'watch' });
        await run('whoWrote', { variable: { ...variable, memoryReference: total.memoryReference } });
        assert(/^add:\d+  0a 00 00 00 → 0f 00 00 00$/.test(hits.getChildren()[1].description), hits.getChildren()[1].description);
        assert.deepStrictEqual(said.filter((text) => /contraflow:/.test(text)), []);
    } finally {
        await session.customRequest('disconnect');
    }
}

main().then(() => process.exit(0), (error) => {
    console.error(error, said);
    process.exit(1);
});
