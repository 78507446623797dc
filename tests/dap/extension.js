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
        if (tracker) tracker.onWillReceiveMessage({ seq, command, arguments: args || {} });
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
let lenses;
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
    languages: {
        registerInlineValuesProvider: (_, provider) => { inline = provider; return nothing; },
        registerCodeLensProvider: (_, provider) => { lenses = provider; return nothing; },
    },
    CodeLens: class { constructor(range, command) { Object.assign(this, { range, command }); } },
    Range: class { constructor(...all) { this.all = all; } },
    InlineValueVariableLookup: class { constructor(range, name) { Object.assign(this, { range, name }); } },
    commands: {
        registerCommand: (id, run) => { registered.commands[id] = run; return nothing; },
        executeCommand: async () => {},
    },
    TreeItemCollapsibleState: { None: 0, Collapsed: 1, Expanded: 2 },
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

/** Opens a view with a page, and returns what it is posted. */
function opened(id) {
    const posted = [];
    const view = {
        webview: { postMessage: (message) => posted.push(message), onDidReceiveMessage: (handle) => { view.send = handle; } },
        onDidDispose: () => {},
    };
    registered.views[id].resolveWebviewView(view);
    const { html } = view.webview;
    assert(/acquireVsCodeApi/.test(html) && !/https?:/.test(html));
    // The script must be one: a syntax error would leave the page empty.
    new Function(/<script[^>]*>([^]*)<\/script>/.exec(html)[1]);
    view.send({ ready: true });
    return { posted, send: (message) => view.send(message), find: (key) => posted.filter((message) => message[key] !== undefined) };
}

async function until(read) {
    for (let round = 0; round < 3000; round++) {
        const found = await read();
        if (found) return found;
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error(`not in time: ${read}`);
}

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

        const list = opened('contraflow.hits');
        input.push('a; total');
        await run('hits');
        const found = list.find('hits').flatMap((message) => message.hits);
        assert.strictEqual(list.posted[list.posted.length - 1].state, `5 hits of ${path.basename(source)}:${line}`);
        const rows = found.map((hit) => hit.values.join(' ')).sort();
        assert.deepStrictEqual(rows, ['0 0', '1 1', '2 3', '3 6', '4 10']);
        list.send({ position: found.find((hit) => hit.values[0] === '2').position });
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
        const map = opened('contraflow.recording');
        await until(() => map.find('known').length > 0);
        assert(map.find('known')[0].known.threads.length === 1 && map.find('hits')[0].hits.length === 5);
        map.send({ draw: { from: 0, to: 1, width: 800 } });
        const { drawing } = await until(() => map.find('drawing')[0]);
        const [thread] = drawing.threads;
        const add = thread.slices.filter((slice) => drawing.names[slice[3]] === 'main')[0];
        map.send({ call: { thread: thread.id, instruction: add[4] } });
        await session.event('stopped');
        const place = await session.customRequest('stackTrace', { threadId: thread.id, levels: 1 });
        assert.strictEqual(place.stackFrames[0].name, 'main');
        map.send({ share: 0.5 });
        await session.event('stopped');
        const half = await session.customRequest('contraflow/when');
        assert(Math.abs(half.share - 0.5) < 0.01, JSON.stringify(half));

        await run('seek', 'end');
        await session.event('stopped');
        const frames = await session.customRequest('stackTrace', { threadId: half.thread, levels: 1 });
        fake.debug.activeStackItem = { threadId: half.thread, frameId: frames.stackFrames[0].id };
        await run('whoWrote', { variable: { name: 'total', evaluateName: 'total', type: 'int' } });
        const previous = registered.trees['contraflow.values'];
        const [root] = previous.getChildren();
        const writes = previous.getChildren(root).map((each) => `${each.label} ${each.description}`);
        assert(/^15 add:\d+, was 10$/.test(writes[0]) && /^10 add:\d+, was 6$/.test(writes[1]), writes.join('\n'));

        // How often functions ran.
        const open = { ...document, uri: { fsPath: source }, lineCount: text.length, isDirty: false };
        const titles = (await lenses.provideCodeLenses(open)).map((lens) => [text[lens.range.all[0]], lens.command.title]);
        assert.strictEqual(titles.find(([above]) => above.startsWith('static int add'))[1], 'ran 5 times');
        assert.deepStrictEqual(said.filter((text) => /contraflow:/.test(text)), []);
    } finally {
        await session.customRequest('disconnect');
    }
}

main().then(() => process.exit(0), (error) => {
    console.error(error, said);
    process.exit(1);
});
