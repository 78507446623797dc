// The view "Hits": every execution of a line or function over the whole run, in a table that fills
// while they are found. A click goes there.
'use strict';
const { page } = require('./page');
const { table } = require('./table');

const BODY = `<div class="bar">
<span class="text" id="text">Choose "All Hits of this Line" in an editor's menu.</span>
<input id="filter" placeholder="Filter" class="none">
<button id="stop" class="none">Stop</button>
</div>
<div id="head"></div>
<div id="scroll"><div id="all"><div id="rows"></div></div></div>`;

const STYLE = `#scroll { flex: 1; overflow: auto; }
#filter { width: 110px; }
#all { position: relative; }
#rows { position: absolute; left: 0; right: 0; }
.row, #head { display: flex; white-space: pre; height: 20px; line-height: 20px; padding: 0 8px; }
#head { font-weight: bold; border-bottom: 1px solid var(--vscode-panel-border, #8884); }
.row:hover { background: var(--vscode-list-hoverBackground, #8882); }
.row.here { color: var(--vscode-list-activeSelectionForeground, inherit); background: var(--vscode-list-activeSelectionBackground, #48f8); }
.row, #head span { cursor: pointer; }
.row span, #head span { flex: 0 0 auto; overflow: hidden; text-overflow: ellipsis; padding-right: 12px; box-sizing: border-box; }`;

class Hits {
    /** `asks` has `go(position)` and `stop()`. */
    constructor(asks) {
        this.asks = asks;
        this.clear();
    }

    resolveWebviewView(view) {
        this.view = view;
        view.webview.options = { enableScripts: true };
        view.webview.html = page(BODY, STYLE, table);
        view.webview.onDidReceiveMessage((message) => {
            if (message.ready) {
                this.post({ begin: this.title, expressions: this.expressions });
                this.post({ hits: this.hits, state: this.state, isOver: this.isOver });
            } else if (message.stop) {
                this.asks.stop();
            } else if (typeof message.position === 'string') {
                this.asks.go(message.position);
            }
        });
        view.onDidDispose(() => {
            this.view = undefined;
        });
    }

    /** Begins a list, and returns its token. */
    begin(title, expressions) {
        this.clear();
        [this.title, this.expressions, this.isOver, this.state] = [title, expressions, false, `Searching ${title}`];
        this.post({ begin: title, expressions });
        this.post({ hits: [], state: this.state, isOver: false });
        return this.token;
    }

    /** Takes hits of a search; those of an earlier one are dropped. */
    add(token, hits) {
        if (token === this.token) {
            // Arguments of a call are limited in number.
            hits.forEach((hit) => this.hits.push(hit));
            this.state = `${this.hits.length} hits of ${this.title} so far`;
            this.post({ hits, state: this.state, isOver: false });
        }
    }

    end(token, state) {
        if (token === this.token) {
            [this.state, this.isOver] = [state, true];
            this.post({ hits: [], state, isOver: true });
        }
    }

    clear() {
        this.token = (this.token || 0) + 1;
        [this.title, this.expressions, this.hits, this.state, this.isOver] = ['', [], [], '', true];
        this.post({ begin: '', expressions: [] });
    }

    /** Shows which hit the user is at. */
    here(position) {
        this.post({ here: position });
    }

    /** Returns the places of the hits in the history, from 0 to 1. */
    shares() {
        return this.hits.map((hit) => hit.share).filter((share) => share !== undefined && share !== null);
    }

    post(message) {
        if (this.view) {
            this.view.webview.postMessage(message);
        }
    }
}

module.exports = { Hits };
