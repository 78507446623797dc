// The view "Recording": the history from left to right, with the life of each thread, gaps, marks, hits
// and the current position. A click goes there.
'use strict';

class Recording {
    constructor(vscode, go) {
        this.vscode = vscode;
        this.go = go;
        this.timeline = undefined;
    }

    resolveWebviewView(view) {
        this.view = view;
        view.webview.options = { enableScripts: true };
        view.webview.html = page(nonce());
        view.webview.onDidReceiveMessage((message) => {
            if (message.ready && this.timeline) {
                this.show(this.timeline);
            } else if (typeof message.share === 'number') {
                this.go(`${(100 * message.share).toFixed(7)}%`);
            } else if (typeof message.position === 'string') {
                this.go(message.position);
            }
        });
        view.onDidDispose(() => {
            this.view = undefined;
        });
    }

    show(timeline) {
        this.timeline = timeline;
        if (this.view) {
            this.view.webview.postMessage(timeline);
        }
    }
}

function nonce() {
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
    return Array.from({ length: 32 }, () => letters[Math.floor(Math.random() * letters.length)]).join('');
}

function page(secret) {
    return `<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${secret}'; script-src 'nonce-${secret}';">
<style nonce="${secret}">
body { padding: 4px 8px; font-family: var(--vscode-font-family); color: var(--vscode-foreground); }
canvas { width: 100%; display: block; cursor: crosshair; }
#text { margin: 2px 0; }
</style>
</head>
<body>
<div id="text">No recording is open.</div>
<canvas id="map"></canvas>
<script nonce="${secret}">
(${script})();
</script>
</body>
</html>`;
}

/* This function runs in the webview. */
function script() {
    const host = acquireVsCodeApi();
    const canvas = document.getElementById('map');
    const LANE = 18;
    const LEFT = 130;
    let timeline = null;
    let from = 0;
    let to = 1;

    const colour = (name, otherwise) => getComputedStyle(document.body).getPropertyValue(name) || otherwise;
    const x = (share) => LEFT + (share - from) / (to - from) * (canvas.clientWidth - LEFT);
    const shareAt = (at) => Math.min(1, Math.max(0, from + (at - LEFT) / (canvas.clientWidth - LEFT) * (to - from)));

    function draw() {
        if (!timeline) {
            return;
        }
        const lanes = timeline.threads.length;
        const height = LANE * (lanes + 1) + 4;
        const scale = window.devicePixelRatio || 1;
        canvas.style.height = height + 'px';
        canvas.width = canvas.clientWidth * scale;
        canvas.height = height * scale;
        const context = canvas.getContext('2d');
        context.scale(scale, scale);
        context.font = '11px sans-serif';
        context.textBaseline = 'middle';
        const text = colour('--vscode-foreground', '#888');
        const bar = (share, y, width, size, paint) => {
            context.fillStyle = paint;
            context.fillRect(Math.max(LEFT, x(share)) - width / 2, y, width, size);
        };
        timeline.threads.forEach((thread, lane) => {
            const y = LANE * (lane + 1) + 3;
            context.fillStyle = text;
            context.fillText((thread.name || 'thread') + ' ' + thread.id, 2, y + LANE / 2 - 2, LEFT - 6);
            context.fillStyle = colour('--vscode-charts-blue', '#48f');
            const begin = Math.max(LEFT, x(thread.from));
            const end = Math.min(canvas.clientWidth, x(thread.to));
            if (end > begin) {
                context.fillRect(begin, y, Math.max(1, end - begin), LANE - 6);
            }
        });
        const visible = (share) => share >= from && share <= to;
        for (const gap of timeline.gaps.filter((each) => visible(each.share))) {
            bar(gap.share, LANE, 3, height - LANE, colour('--vscode-charts-orange', '#f80'));
        }
        for (const share of (timeline.hits || []).filter(visible)) {
            bar(share, LANE - 6, 2, height - LANE + 6, colour('--vscode-charts-purple', '#a4f'));
        }
        for (const mark of timeline.marks.filter((each) => visible(each.share))) {
            bar(mark.share, 2, 2, height, colour('--vscode-charts-green', '#4a4'));
            context.fillText(mark.name, x(mark.share) + 3, 8);
        }
        if (timeline.here.share !== null && visible(timeline.here.share)) {
            bar(timeline.here.share, 0, 2, height, colour('--vscode-charts-red', '#f44'));
        }
        const here = timeline.here;
        document.getElementById('text').textContent = 'position ' + here.position + ' of ' + here.end
            + (here.isPast ? ', in the past' : '') + ' · ' + here.ending + ' · wheel: zoom, click: go there';
    }

    canvas.addEventListener('click', (event) => {
        if (timeline && event.offsetX >= LEFT) {
            const close = timeline.marks.find((mark) => Math.abs(x(mark.share) - event.offsetX) < 4);
            host.postMessage(close ? { position: close.position } : { share: shareAt(event.offsetX) });
        }
    });
    canvas.addEventListener('wheel', (event) => {
        event.preventDefault();
        const middle = shareAt(Math.max(LEFT, event.offsetX));
        const factor = event.deltaY < 0 ? 0.8 : 1.25;
        const width = Math.min(1, Math.max(1e-9, (to - from) * factor));
        from = Math.min(1 - width, Math.max(0, middle - (middle - from) / (to - from) * width));
        to = from + width;
        draw();
    });
    window.addEventListener('resize', draw);
    window.addEventListener('message', (event) => {
        timeline = event.data;
        draw();
    });
    host.postMessage({ ready: true });
}

module.exports = { Recording };
