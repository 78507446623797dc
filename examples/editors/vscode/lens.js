// "ran 12 times" above the functions of a file, from the recording.
'use strict';

/** The most lines from a function's name to its first code. */
const HEAD = 6;

/** Returns the line with the name of a function, whose code may begin at a brace below it. */
function headOf(document, line, name) {
    const word = name.replace(/[<(].*$/, '').split('::').pop();
    for (let at = line; word !== '' && at >= 1 && at > line - HEAD; at--) {
        if (new RegExp(`(^|\\W)${word.replace(/[^\w]/g, '\\$&')}(\\W|$)`).test(document.lineAt(at - 1).text)) {
            return at;
        }
    }
    return line;
}

class Counts {
    constructor(vscode, session) {
        this.vscode = vscode;
        this.session = session;
        this.changed = new vscode.EventEmitter();
        this.onDidChangeCodeLenses = this.changed.event;
        this.files = new Map();
    }

    /** Forgets the counts: another session begins or ends. */
    clear() {
        this.files.clear();
        this.changed.fire();
    }

    /** Asks again for the counts that could not be had, as while the program ran. */
    again() {
        if (this.hasFailed) {
            this.hasFailed = false;
            this.changed.fire();
        }
    }

    async provideCodeLenses(document) {
        const active = this.session();
        if (!active || !this.vscode.workspace.getConfiguration('contraflow').get('counts')) {
            return [];
        }
        const path = document.uri.fsPath;
        if (!this.files.has(path)) {
            // The answer may come late: it is shown then. No answer: the program is live, or runs now.
            const asked = active.customRequest('contraflow/counts', { source: { path } });
            this.files.set(path, asked.then((answer) => answer.functions, () => {
                this.files.delete(path);
                this.hasFailed = true;
                return [];
            }));
        }
        const functions = await this.files.get(path);
        // Lines of a file that was changed since are wrong.
        return document.isDirty ? [] : functions.filter(({ line }) => line >= 1 && line <= document.lineCount).map((each) => this.lens(document, each));
    }

    lens(document, { line: begins, name, count }) {
        const line = headOf(document, begins, name);
        const title = count === 0 ? 'never ran' : count === 1 ? 'ran once' : `ran ${count} times`;
        const range = new this.vscode.Range(line - 1, 0, line - 1, 0);
        const command = { command: 'contraflow.callsOf', title, tooltip: `Show all calls of ${name}`, arguments: [name] };
        return new this.vscode.CodeLens(range, count === 0 ? { title, command: '' } : command);
    }
}

module.exports = { Counts };
