// The drawing of the view "Recording". This function runs in the view's page.
'use strict';

function chart() {
    const host = acquireVsCodeApi();
    const [canvas, scroll, tip, text, search] = ['map', 'scroll', 'tip', 'text', 'search'].map((id) => document.getElementById(id));
    const [TOP, STRIP, ROW, LEFT, GAP] = [34, 5, 16, 120, 6];
    const STROKE = 3;
    let known = null;
    let drawing = null;
    let hits = [];
    let [from, to] = [0, 1];
    let fault = '';
    let lanes = [];
    let asked = '';
    let timer = 0;
    let held = null;

    const colour = (name, otherwise) => getComputedStyle(document.body).getPropertyValue(name).trim() || otherwise;
    const width = () => Math.max(LEFT + 10, canvas.clientWidth);
    const x = (share) => LEFT + (share - from) / (to - from) * (width() - LEFT);
    const shareAt = (at) => Math.min(1, Math.max(0, from + (at - LEFT) / (width() - LEFT) * (to - from)));
    const isDark = () => !/vscode-(high-contrast-)?light/.test(document.body.className);
    const least = () => Math.min(1, 40 / Math.max(40, parseFloat(known && known.here.end) || 40));

    function paint(name) {
        let sum = 0;
        for (let at = 0; at < name.length; at++) {
            sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
        }
        return `hsl(${20 + sum % 300}, ${isDark() ? '45%, 38%' : '60%, 78%'})`;
    }

    /** Places the threads below each other. */
    function layOut() {
        let y = TOP;
        const threads = drawing ? drawing.threads : known ? known.threads : [];
        lanes = threads.map((thread) => {
            const slices = (thread.slices || []).filter((slice) => slice[2] >= from && slice[1] <= to);
            const rows = slices.reduce((most, slice) => Math.max(most, slice[0] + 1), 0);
            const lane = { thread, slices, y, rows };
            y += STRIP + 2 + Math.max(1, rows) * ROW + GAP;
            return lane;
        });
        return y;
    }

    function draw() {
        const height = Math.max(layOut(), scroll.clientHeight - 4);
        const scale = window.devicePixelRatio || 1;
        canvas.style.height = height + 'px';
        canvas.width = width() * scale;
        canvas.height = height * scale;
        const pen = canvas.getContext('2d');
        pen.scale(scale, scale);
        pen.font = '11px ' + (colour('--vscode-font-family', 'sans-serif'));
        pen.textBaseline = 'middle';
        pen.clearRect(0, 0, width(), height);
        if (!known) {
            return;
        }
        lanes.forEach((lane) => drawLane(pen, lane));
        drawAxis(pen, height);
        say();
    }

    function drawLane(pen, { thread, slices, y, rows }) {
        const foreground = colour('--vscode-foreground', '#888');
        const wanted = search.value.trim().toLowerCase();
        pen.fillStyle = foreground;
        pen.fillText(fitted(pen, `${thread.name || 'thread'} ${thread.id}`, LEFT - 14), 6, y + STRIP + 2 + ROW / 2);
        pen.save();
        pen.beginPath();
        pen.rect(LEFT, 0, width() - LEFT, canvas.height);
        pen.clip();
        // Where it is not known when a thread lived, it is drawn over all of the history.
        const { from = 0, to = 1 } = thread;
        const [begin, end] = [x(from), x(to)];
        pen.globalAlpha = 0.25;
        pen.fillRect(begin, y + STRIP / 2, Math.max(1, end - begin), 1);
        pen.globalAlpha = 1;
        pen.fillStyle = colour('--vscode-charts-blue', '#48f');
        for (const [first, last] of thread.busy || [[from, to]]) {
            pen.fillRect(x(first), y, Math.max(1, x(last) - x(first)), STRIP);
        }
        for (const [level, first, last, name, , isSignal] of slices) {
            const label = drawing.names[name];
            const left = Math.max(LEFT, x(first));
            const size = Math.max(1, Math.min(width(), x(last)) - left - 0.5);
            const top = y + STRIP + 2 + level * ROW;
            const isWanted = wanted === '' || label.toLowerCase().includes(wanted);
            pen.globalAlpha = isWanted ? 1 : 0.25;
            pen.fillStyle = isSignal ? colour('--vscode-charts-yellow', '#cc4') : paint(label);
            pen.fillRect(left, top, size, ROW - 1);
            if (isWanted && wanted !== '') {
                pen.strokeStyle = colour('--vscode-focusBorder', '#fff');
                pen.strokeRect(left + 0.5, top + 0.5, Math.max(1, size - 1), ROW - 2);
            }
            if (size > 24) {
                pen.fillStyle = isDark() && !isSignal ? '#f4f4f4' : '#111';
                pen.fillText(fitted(pen, label, size - 6), left + 3, top + ROW / 2);
            }
        }
        pen.globalAlpha = 1;
        if (thread.isDeeper) {
            pen.fillStyle = foreground;
            pen.fillText('deeper calls are not shown', LEFT + 4, y + STRIP + 2 + rows * ROW + 2);
        }
        pen.restore();
    }

    function fitted(pen, label, size) {
        if (pen.measureText(label).width <= size) {
            return label;
        }
        const one = pen.measureText('m').width;
        return label.slice(0, Math.max(1, Math.floor(size / one * 1.2) - 1)) + '…';
    }

    /** Draws what is at one position: hits, gaps, signals, marks, and where the user is. */
    function drawAxis(pen, height) {
        const visible = (share) => share >= from && share <= to;
        const bar = (share, y, thickness, size, paints) => {
            pen.fillStyle = paints;
            pen.fillRect(x(share) - thickness / 2, y, thickness, size);
        };
        pen.save();
        pen.beginPath();
        pen.rect(LEFT - 2, 0, width() - LEFT + 2, height);
        pen.clip();
        const [purple, orange] = [colour('--vscode-charts-purple', '#a4f'), colour('--vscode-charts-orange', '#f80')];
        for (const share of hits) {
            if (visible(share)) bar(share, TOP - 10, 1.5, 7, purple);
        }
        for (const gap of known.gaps.filter((each) => visible(each.share))) {
            bar(gap.share, TOP - 12, STROKE, height - TOP + 12, orange);
        }
        const yellow = colour('--vscode-charts-yellow', '#cc4');
        for (const signal of ((drawing && drawing.signals) || []).filter((each) => visible(each.share))) {
            bar(signal.share, TOP - 12, 1, height - TOP + 12, yellow);
            label(pen, signal.name, signal.share, 15, yellow);
        }
        const green = colour('--vscode-charts-green', '#4a4');
        for (const mark of known.marks.filter((each) => visible(each.share))) {
            bar(mark.share, 2, 2, height, green);
            label(pen, mark.name, mark.share, 7, green);
        }
        if (known.here.share !== null && visible(known.here.share)) {
            bar(known.here.share, 0, 2, height, colour('--vscode-charts-red', '#f44'));
        }
        pen.restore();
    }

    /** Writes beside a line, on the side that has room. */
    function label(pen, name, share, y, paints) {
        pen.fillStyle = paints;
        const size = pen.measureText(name).width;
        pen.fillText(name, x(share) + 4 + size > width() ? x(share) - 4 - size : x(share) + 4, y);
    }

    function say() {
        const { here } = known;
        const zoom = to - from < 1 ? ` · shown: ${(100 * from).toFixed(3)}% to ${(100 * to).toFixed(3)}%` : '';
        const calls = drawing || !fault ? '' : ` · ${fault}`;
        text.textContent = `position ${here.position} of ${here.end}${here.isPast ? ', in the past' : ''}, ${here.ending}${zoom}${calls}`;
        text.title = 'Wheel, or W and S: zoom. Drag, or A and D: move. Click: go there.';
    }

    /** Asks for the calls of what is shown, once the user has stopped moving. */
    function ask() {
        const wanted = JSON.stringify([from, to, width()]);
        if (!known || wanted === asked) {
            return;
        }
        clearTimeout(timer);
        timer = setTimeout(() => {
            asked = wanted;
            host.postMessage({ draw: { from, to, width: width() - LEFT } });
        }, drawing ? 60 : 0);
    }

    function show(first, size) {
        const shown = Math.min(1, Math.max(least(), size));
        from = Math.min(1 - shown, Math.max(0, first));
        to = from + shown;
        draw();
        ask();
    }

    function zoom(factor, at) {
        const middle = shareAt(at === undefined ? (LEFT + width()) / 2 : Math.max(LEFT, at));
        const size = Math.min(1, Math.max(least(), (to - from) * factor));
        show(middle - (middle - from) / (to - from) * size, size);
    }

    /** Returns the lane and the slice at a point. */
    function at(event) {
        const lane = lanes.find((each) => event.offsetY >= each.y && event.offsetY < each.y + STRIP + 2 + Math.max(1, each.rows) * ROW);
        const level = lane && Math.floor((event.offsetY - lane.y - STRIP - 2) / ROW);
        const share = shareAt(event.offsetX);
        const slice = lane && lane.slices.find((each) => each[0] === level && each[1] <= share && share <= Math.max(each[2], each[1] + (to - from) / width()));
        return { lane, slice };
    }

    function click(event) {
        if (!known || event.offsetX < LEFT) {
            return;
        }
        const close = [...known.marks, ...known.gaps].find((each) => Math.abs(x(each.share) - event.offsetX) < 4);
        const { lane, slice } = at(event);
        if (close && event.offsetY < TOP) {
            host.postMessage({ position: close.position });
        } else if (slice && slice[1] >= from && !event.shiftKey) {
            host.postMessage({ call: { thread: lane.thread.id, instruction: slice[4] } });
        } else {
            host.postMessage({ share: shareAt(event.offsetX) });
        }
    }

    canvas.addEventListener('mousedown', (event) => {
        held = { x: event.offsetX, from, moved: false };
    });
    window.addEventListener('mouseup', (event) => {
        if (held && !held.moved && event.target === canvas) {
            click(event);
        }
        held = null;
    });
    canvas.addEventListener('mousemove', (event) => {
        if (held && (held.moved || Math.abs(event.offsetX - held.x) > 4)) {
            held.moved = true;
            show(held.from - (event.offsetX - held.x) / (width() - LEFT) * (to - from), to - from);
        }
        const { lane, slice } = known && event.offsetX >= LEFT ? at(event) : {};
        tip.className = slice ? '' : 'none';
        if (slice) {
            const share = (100 * (slice[2] - slice[1])).toPrecision(3);
            tip.textContent = `${drawing.names[slice[3]]}${slice[5] ? ', a signal handler' : ''}\nthread ${lane.thread.id}, ${share}% of the recording\n`
                + (slice[1] >= from ? 'Click: go to its beginning' : 'Click: go to this place');
            tip.style.left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 4) + 'px';
            tip.style.top = Math.max(0, Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 4)) + 'px';
        }
    });
    canvas.addEventListener('mouseleave', () => {
        tip.className = 'none';
    });
    canvas.addEventListener('wheel', (event) => {
        if (!known || event.shiftKey) {
            return;
        }
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
            show(from + event.deltaX / width() * (to - from), to - from);
        } else {
            zoom(event.deltaY < 0 ? 0.8 : 1.25, event.offsetX);
        }
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => {
        const size = to - from;
        const moves = { w: () => zoom(0.6), s: () => zoom(1 / 0.6), a: () => show(from - size / 5, size), d: () => show(from + size / 5, size), 0: () => show(0, 1) };
        if (known && moves[event.key]) {
            moves[event.key]();
        }
    });
    document.getElementById('all').addEventListener('click', () => show(0, 1));
    search.addEventListener('input', draw);
    search.addEventListener('keydown', (event) => {
        const wanted = search.value.trim();
        if (event.key === 'Enter' && drawing && wanted !== '') {
            const close = (name) => name.toLowerCase().includes(wanted.toLowerCase());
            host.postMessage({ callsOf: drawing.names.find((name) => name === wanted) || drawing.names.find(close) || wanted });
        }
    });
    new ResizeObserver(() => {
        draw();
        ask();
    }).observe(scroll);
    window.addEventListener('message', ({ data }) => {
        if (data.clear) {
            [known, drawing, hits, from, to, fault, asked] = [null, null, [], 0, 1, '', ''];
            text.textContent = 'No recording is open.';
        }
        known = data.known || known;
        drawing = data.drawing && data.drawing.names ? data.drawing : drawing;
        hits = data.hits || hits;
        fault = data.fault || '';
        if (data.fault) {
            asked = '';
        }
        draw();
        if (data.known) {
            ask();
        }
    });
    host.postMessage({ ready: true });
}

module.exports = { chart };
