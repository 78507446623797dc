// The view "Recording": the history from left to right, with the calls of each thread, signals, gaps,
// marks, hits and the current position. A click goes there.
'use strict';
const { chart } = require('./chart');
const { page } = require('./page');

const BODY = `<div class="bar">
<span class="text" id="text">No recording is open.</span>
<input id="search" placeholder="Search functions" title="Shows the functions with this name; Enter lists all calls of one">
<button id="all" title="Show the whole recording (0)">All</button>
</div>
<div id="scroll"><canvas id="map" tabindex="0"></canvas></div>
<div id="tip" class="none"></div>`;

const STYLE = `#scroll { flex: 1; overflow-y: auto; overflow-x: hidden; }
canvas { width: 100%; display: block; cursor: pointer; outline: none; }
#search { width: 150px; }
#tip { position: fixed; pointer-events: none; max-width: 60%; padding: 2px 6px; z-index: 9; white-space: pre; overflow: hidden;
  color: var(--vscode-editorHoverWidget-foreground, inherit); background: var(--vscode-editorHoverWidget-background, #333);
  border: 1px solid var(--vscode-editorHoverWidget-border, #888); }`;

class Recording {
    /** `asks` has `go(position)`, `timeline(arguments)`, `positionOf(call)` and `callsOf(name)`. */
    constructor(asks) {
        this.asks = asks;
        this.known = undefined;
        this.hits = [];
        this.isAsking = false;
        this.wanted = undefined;
    }

    resolveWebviewView(view) {
        this.view = view;
        view.webview.options = { enableScripts: true };
        view.webview.html = page(BODY, STYLE, chart);
        view.webview.onDidReceiveMessage((message) => this.receive(message));
        view.onDidDispose(() => {
            this.view = undefined;
        });
    }

    async receive(message) {
        if (message.ready) {
            this.post({ known: this.known, hits: this.hits });
        } else if (message.draw) {
            this.wanted = message.draw;
            await this.draw();
        } else if (typeof message.share === 'number') {
            this.asks.go(`${(100 * message.share).toFixed(9)}%`);
        } else if (typeof message.position === 'string') {
            this.asks.go(message.position);
        } else if (message.call) {
            const place = await this.asks.positionOf(message.call);
            if (place) {
                this.asks.go(place.position);
            }
        } else if (message.callsOf) {
            this.asks.callsOf(message.callsOf);
        }
    }

    /** Asks for the calls of the part that is shown: one question at a time, the latest next. */
    async draw() {
        if (this.isAsking) {
            return;
        }
        this.isAsking = true;
        try {
            while (this.wanted) {
                const wanted = this.wanted;
                this.wanted = undefined;
                const drawing = await this.asks.timeline(wanted);
                this.post({ drawing });
            }
        } catch (error) {
            // It runs, or has ended: the next stop asks again.
            this.post({ fault: error.message });
        } finally {
            this.isAsking = false;
        }
    }

    /** Shows what is known without the calls: the position, marks, gaps, threads. */
    show(known) {
        this.known = known;
        this.post({ known });
    }

    showHits(shares) {
        this.hits = shares;
        this.post({ hits: shares });
    }

    clear() {
        this.known = undefined;
        this.hits = [];
        this.wanted = undefined;
        this.post({ clear: true });
    }

    post(message) {
        if (this.view) {
            this.view.webview.postMessage(message);
        }
    }
}

module.exports = { Recording };
