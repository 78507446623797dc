// contraflow in VS Code: the adapter, buttons, the status bar and the views. No dependencies.
'use strict';
const vscode = require('vscode');
const { execFile } = require('child_process');
const { Hits, Marks } = require('./trees');
const { Recording } = require('./recording');

const TYPE = 'contraflow';
const LANGUAGES = ['c', 'cpp', 'rust', 'go', 'zig', 'd'];

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
        if (configuration.type && (configuration.recording || configuration.program)) {
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
    const go = (position) => request('seek', { to: String(position) });
    const hits = new Hits(vscode);
    const marks = new Marks(vscode);
    const recording = new Recording(vscode, go);

    async function refresh() {
        const active = session();
        if (!active) {
            return;
        }
        try {
            const timeline = await active.customRequest('contraflow/timeline');
            marks.show(timeline.marks);
            recording.show({ ...timeline, hits: hits.shares() });
        } catch {
            // It runs again: the next stop refreshes.
        }
    }

    async function showHits(question, title) {
        const limit = vscode.workspace.getConfiguration(TYPE).get('hits');
        const progress = { location: vscode.ProgressLocation.Notification, title: `Searching ${title}` };
        const answer = await vscode.window.withProgress(progress, () => request('hits', { ...question, limit }));
        if (answer) {
            hits.show(title, answer, question.values || []);
            await refresh();
            await vscode.commands.executeCommand('contraflow.hits.focus');
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
        async unmark(item) {
            if (item && await request('unmark', { name: item.name })) {
                await refresh();
            }
        },
        async whoWrote(context) {
            const variable = context && context.variable;
            if (!variable || !variable.memoryReference) {
                vscode.window.showInformationMessage('This value has no place in memory, or it is not known here.');
                return;
            }
            const bytes = await sizeOf(variable);
            const answer = await request('writers', { memoryReference: variable.memoryReference, bytes, limit: 20 });
            if (answer) {
                hits.showWriters(variable.name, answer);
                await refresh();
                await vscode.commands.executeCommand('contraflow.hits.focus');
            }
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

    /** Returns the size of a variable; a pointer's memory reference is the place that it points to. */
    async function sizeOf(variable) {
        if (!variable.evaluateName) {
            return 8;
        }
        const isPointer = /\*\s*(const)?$/.test(variable.type || '');
        if (isPointer) {
            const place = await request('evaluate', { expression: `&(${variable.evaluateName})`, context: 'watch', frameId: frame() });
            variable.memoryReference = place && place.result.split(' ')[0];
            return 8;
        }
        const size = await request('evaluate', { expression: `sizeof(${variable.evaluateName})`, context: 'watch', frameId: frame() });
        return Number(size && size.result) || 8;
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
            onDidSendMessage(message) {
                if (message.type !== 'event') {
                    return;
                }
                if (message.event === 'contraflow/when') {
                    status.show(message.body);
                    refresh();
                }
            },
            onWillStopSession() {
                status.show(undefined);
                hits.clear();
                marks.show([]);
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
        vscode.window.registerTreeDataProvider('contraflow.hits', hits),
        vscode.window.registerTreeDataProvider('contraflow.marks', marks),
        vscode.window.registerWebviewViewProvider('contraflow.recording', recording),
        ...Object.keys(commands).map((name) => vscode.commands.registerCommand(`contraflow.${name}`, commands[name])),
    );
}

function deactivate() {}

module.exports = { activate, deactivate };
