// contraflow in VS Code: the adapter, buttons, the status bar and the views. No dependencies.
'use strict';
const vscode = require('vscode');
const { execFile } = require('child_process');
const { Counts } = require('./lens');
const { Hits } = require('./hits');
const { PreviousValues, Marks } = require('./trees');
const { Recording } = require('./recording');

const TYPE = 'contraflow';
const LANGUAGES = ['c', 'cpp', 'rust', 'go', 'zig', 'd'];
/** The writers of a value that are searched at once. */
const WRITERS = 10;
/** Requests of VS Code's that wait for a search to end. */
const MOVES = ['continue', 'next', 'stepIn', 'stepOut', 'stepBack', 'reverseContinue', 'restart', 'restartFrame', 'goto'];

function program() {
    return vscode.workspace.getConfiguration(TYPE).get('path') || TYPE;
}

function session() {
    const active = vscode.debug.activeDebugSession;
    return active && active.type === TYPE ? active : undefined;
}

/** Sends a request of contraflow's, and shows the reason if it fails. */
async function request(name, args) {
    const active = session();
    if (!active) {
        vscode.window.showInformationMessage('No contraflow session is active: debug a recording first.');
        return undefined;
    }
    try {
        return await active.customRequest(name === 'evaluate' ? name : `contraflow/${name}`, args);
    } catch (error) {
        vscode.window.showErrorMessage(`contraflow: ${error.message}`);
        return undefined;
    }
}

function run(args) {
    return new Promise((resolve, reject) => {
        execFile(program(), args, { timeout: 60000 }, (error, stdout, stderr) => {
            if (error && error.code === 'ENOENT') {
                reject(new Error(`${program()} was not found: install contraflow, or set contraflow.path`));
            } else {
                resolve({ failed: Boolean(error), text: stdout, errors: stderr });
            }
        });
    });
}

/** Lets the user choose among the recordings of this machine. */
async function pickRecording() {
    const { failed, text, errors } = await run(['list']);
    if (failed) {
        throw new Error(errors.trim());
    }
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    if (lines.length === 0) {
        throw new Error('there are no recordings yet: `contraflow record PROGRAM` makes one');
    }
    const items = lines.map((line) => {
        const [label, ...rest] = line.trim().split(/\s{2,}|\t/);
        return { label: label.split(/\s/)[0], description: line.trim().slice(label.split(/\s/)[0].length).trim() || rest.join(' ') };
    });
    const picked = await vscode.window.showQuickPick(items, { placeHolder: 'The recording to debug', matchOnDescription: true });
    return picked && picked.label;
}

const configurations = {
    provideDebugConfigurations() {
        return [{ type: TYPE, request: 'launch', name: 'Latest recording', recording: 'latest' }];
    },
    async resolveDebugConfiguration(_folder, configuration) {
        try {
            await run(['--version']);
        } catch (error) {
            vscode.window.showErrorMessage(`contraflow: ${error.message}`);
            return undefined;
        }
        if (configuration.request === 'attach') {
            return { ...configuration, pid: Number(configuration.pid) };
        }
        if (configuration.type && (configuration.recording || configuration.program || configuration.perfData || configuration.bundle)) {
            return configuration;
        }
        // F5 without a configuration.
        try {
            const recording = await pickRecording();
            return recording && { type: TYPE, request: 'launch', name: recording, ...configuration, recording };
        } catch (error) {
            vscode.window.showErrorMessage(`contraflow: ${error.message}`);
            return undefined;
        }
    },
};

/** The status bar's item: the position, and a colour while it is in the past. */
class Status {
    constructor() {
        this.item = vscode.window.createStatusBarItem(vscode.StatusBarAlignment.Left, 50);
        this.item.command = 'contraflow.seek';
        this.item.tooltip = 'The position in the history: click to go to another one';
    }

    show(when) {
        if (!when || when.position === null) {
            this.item.hide();
            return;
        }
        const share = `${(100 * when.share).toFixed(2)}%`;
        const time = when.timeNs === null ? '' : ` · ${(when.timeNs / 1e9).toFixed(6)} s`;
        const where = when.isPast ? ' · past' : when.isLive ? ' · present' : ' · end';
        this.item.text = `$(history) ${when.position} / ${when.end} · ${share}${time} · thread ${when.thread}${where}`;
        this.item.backgroundColor = when.isPast ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined;
        this.item.show();
    }
}

function activate(context) {
    const status = new Status();
    const go = async (position) => {
        await stopSearch();
        return request('seek', { to: String(position) });
    };
    const hits = new Hits({ go, stop: () => stopSearch() });
    const marks = new Marks(vscode);
    const values = new PreviousValues(vscode);
    const counts = new Counts(vscode, session);
    const recording = new Recording({
        go,
        timeline: (wanted) => session().customRequest('contraflow/timeline', wanted),
        positionOf: (call) => request('positionOf', call),
        callsOf: (name) => showHits({ function: name }, name),
    });
    /** The numbers of the requests that search, by their tokens. */
    const searches = new Map();

    async function refresh(when) {
        const active = session();
        if (!active) {
            return;
        }
        try {
            hits.here(when && when.position);
            const timeline = await active.customRequest('contraflow/timeline');
            marks.show(timeline.marks);
            recording.show(timeline);
        } catch {
            // It runs again: the next stop refreshes.
        }
    }

    /** Shows hits in their view while they are found. */
    async function showHits(question, title) {
        const active = session();
        if (!active) {
            vscode.window.showInformationMessage('No contraflow session is active: debug a recording first.');
            return;
        }
        await stopSearch();
        const limit = vscode.workspace.getConfiguration(TYPE).get('hits');
        const token = hits.begin(title, question.values || []);
        await vscode.commands.executeCommand('contraflow.hits.focus');
        try {
            const answer = await active.customRequest('contraflow/hits', { ...question, limit, token });
            hits.end(token, answer.hasMore ? `${answer.count} hits of ${title}; there are more` : `${answer.total} hits of ${title}`);
        } catch (error) {
            hits.end(token, `${hits.hits.length} hits of ${title}, then: ${error.message}`);
        } finally {
            searches.delete(token);
            recording.showHits(hits.shares());
        }
    }

    /** Ends the searches that run. */
    async function stopSearch() {
        const active = session();
        for (const requestId of active ? searches.values() : []) {
            await active.customRequest('cancel', { requestId }).then(undefined, () => undefined);
        }
    }

    /** Searches for the last writers of a value, or for earlier ones. */
    async function addWriters(root, from) {
        const progress = { location: { viewId: 'contraflow.values' } };
        const answer = await vscode.window.withProgress(progress, () => request('writers', { ...root.ask, from, limit: WRITERS }));
        if (answer) {
            // Later questions are for the same place, wherever the user is then.
            root.ask = { memoryReference: answer.memoryReference, bytes: answer.bytes };
            values.add(root, answer);
        }
    }

    const commands = {
        stepBackInto: () => move('stepBackInto'),
        stepBackOut: () => move('stepBackOut'),
        async seek(position) {
            const to = position !== undefined && typeof position !== 'object' ? position : await vscode.window.showInputBox({
                prompt: 'A position, a percentage (30%), a time (1.5s), a mark, start or end',
            });
            return to === undefined || to === '' ? undefined : go(to);
        },
        async hits() {
            const editor = vscode.window.activeTextEditor;
            if (!editor) {
                vscode.window.showInformationMessage('Open a source file, and put the cursor on a line.');
                return;
            }
            const line = editor.selection.active.line + 1;
            const path = editor.document.uri.fsPath;
            const text = await vscode.window.showInputBox({
                prompt: 'Expressions to show at each hit, separated by semicolons; may be empty',
                value: editor.document.getText(editor.selection),
            });
            if (text !== undefined) {
                const values = text.split(';').map((each) => each.trim()).filter((each) => each !== '');
                await showHits({ source: { path }, line, values }, `${path.split('/').pop()}:${line}`);
            }
        },
        async mark() {
            const name = await vscode.window.showInputBox({ prompt: 'A name for this position' });
            if (name && await request('mark', { name })) {
                await refresh();
            }
        },
        callsOf: (name) => showHits({ function: name }, name),
        async earlierWriters(place) {
            await addWriters(place.more.root, place.more.from);
        },
        async unmark(item) {
            if (item && await request('unmark', { name: item.name })) {
                await refresh();
            }
        },
        async whoWrote(context) {
            const variable = context && context.variable;
            if (!variable || !(variable.evaluateName || variable.memoryReference)) {
                vscode.window.showInformationMessage('This value has no place in memory, or it is not known here.');
                return;
            }
            const { evaluateName, memoryReference } = variable;
            const label = (evaluateName || variable.name).replace(/\(\*\((\w+)\)\)\./g, '$1->');
            const root = values.begin(label, evaluateName ? { expression: evaluateName, frameId: frame() } : { memoryReference });
            await vscode.commands.executeCommand('contraflow.values.focus');
            await addWriters(root);
        },
        async open() {
            try {
                const recordingName = await pickRecording();
                if (recordingName) {
                    const folder = (vscode.workspace.workspaceFolders || [])[0];
                    const configuration = { type: TYPE, request: 'launch', name: recordingName, recording: recordingName };
                    await vscode.debug.startDebugging(folder, configuration);
                }
            } catch (error) {
                vscode.window.showErrorMessage(`contraflow: ${error.message}`);
            }
        },
        async doctor() {
            try {
                const { text, errors } = await run(['doctor']);
                const document = await vscode.workspace.openTextDocument({ content: text + errors });
                await vscode.window.showTextDocument(document, { preview: true });
            } catch (error) {
                vscode.window.showErrorMessage(`contraflow: ${error.message}`);
            }
        },
    };

    /** Moves the thread of the focused frame. */
    async function move(name) {
        const focused = vscode.debug.activeStackItem;
        await request(name, focused && focused.threadId !== undefined ? { threadId: focused.threadId } : {});
    }

    function frame() {
        const focused = vscode.debug.activeStackItem;
        return focused && focused.frameId;
    }

    // Values beside the lines before the stop; VS Code looks the names up among the variables.
    const inlineValues = {
        async provideInlineValues(document, viewport, { stoppedLocation, frameId }) {
            const active = session();
            // Lines of other functions may have variables of the same names.
            const begin = active && await active.customRequest('contraflow/function', { frameId }).catch(() => undefined);
            const last = Math.min(viewport.end.line, stoppedLocation.end.line);
            const found = [];
            if (!begin || begin.line === null) {
                return found;
            }
            for (let line = Math.max(viewport.start.line, begin.line - 1); line <= last; line++) {
                const text = document.lineAt(line).text.replace(/\/\/.*|"(?:[^"\\]|\\.)*"/g, (match) => ' '.repeat(match.length));
                for (const { 0: name, index } of text.matchAll(/\b[A-Za-z_]\w*\b(?!\s*\()/g)) {
                    const range = new vscode.Range(line, index, line, index + name.length);
                    found.push(new vscode.InlineValueVariableLookup(range, name, true));
                }
            }
            return found;
        },
    };

    const tracker = {
        createDebugAdapterTracker: () => ({
            onWillReceiveMessage(message) {
                if (message.command === 'contraflow/hits') {
                    searches.set(message.arguments.token, message.seq);
                } else if (MOVES.includes(message.command)) {
                    stopSearch();
                }
            },
            onDidSendMessage(message) {
                if (message.type !== 'event') {
                    return;
                }
                if (message.event === 'contraflow/when') {
                    status.show(message.body);
                    refresh(message.body);
                    counts.again();
                } else if (message.event === 'contraflow/hitsFound') {
                    hits.add(message.body.token, message.body.hits);
                } else if (message.event === 'initialized') {
                    counts.clear();
                }
            },
            onWillStopSession() {
                status.show(undefined);
                hits.clear();
                recording.clear();
                counts.clear();
                marks.show([]);
                values.set([]);
                searches.clear();
            },
        }),
    };

    context.subscriptions.push(
        status.item,
        vscode.debug.registerDebugConfigurationProvider(TYPE, configurations),
        vscode.debug.registerDebugConfigurationProvider(
            TYPE, configurations, vscode.DebugConfigurationProviderTriggerKind.Dynamic),
        vscode.debug.registerDebugAdapterDescriptorFactory(TYPE, {
            createDebugAdapterDescriptor: () => new vscode.DebugAdapterExecutable(program(), ['dap']),
        }),
        vscode.debug.registerDebugAdapterTrackerFactory(TYPE, tracker),
        vscode.languages.registerInlineValuesProvider(LANGUAGES.map((language) => ({ language })), inlineValues),
        vscode.languages.registerCodeLensProvider(LANGUAGES.map((language) => ({ language })), counts),
        vscode.window.registerWebviewViewProvider('contraflow.hits', hits, { webviewOptions: { retainContextWhenHidden: true } }),
        vscode.window.registerTreeDataProvider('contraflow.values', values),
        vscode.window.registerTreeDataProvider('contraflow.marks', marks),
        vscode.window.registerWebviewViewProvider('contraflow.recording', recording, { webviewOptions: { retainContextWhenHidden: true } }),
        ...Object.keys(commands).map((name) => vscode.commands.registerCommand(`contraflow.${name}`, commands[name])),
    );
}

function deactivate() {}

module.exports = { activate, deactivate };
