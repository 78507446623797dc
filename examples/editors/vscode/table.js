// The table of the view "Hits". This function runs in the view's page.
'use strict';

function table() {
    const host = acquireVsCodeApi();
    const [text, filter, stop, head, scroll, all, rows] = ['text', 'filter', 'stop', 'head', 'scroll', 'all', 'rows'].map((id) => document.getElementById(id));
    const ROW = 20;
    let columns = [];
    let hits = [];
    let shown = [];
    let order = { column: 0, down: true };
    let here = '';
    let timer = 0;

    function columnsOf(expressions) {
        return [
            { name: 'Position', width: 110, of: (hit) => hit.position },
            ...expressions.map((expression, at) => ({ name: expression, width: 120, of: (hit) => (hit.values || [])[at] || '' })),
            { name: 'Thread', width: 80, of: (hit) => String(hit.thread === null ? '' : hit.thread) },
            { name: 'Place', width: 220, of: (hit) => hit.place || hit.address || '' },
            { name: 'Called at', width: 240, of: (hit) => hit.calledAt || '' },
        ];
    }

    /** Returns a position as a number: 12.10 is after 12.5. */
    function numberOf(position) {
        const [moment, instructions] = position.split('.').map(Number);
        return moment * 65536 + (instructions || 0);
    }

    function compare(a, b) {
        const [one, other] = [parseFloat(a), parseFloat(b)];
        return Number.isNaN(one) || Number.isNaN(other) ? (a < b ? -1 : a > b ? 1 : 0) : one - other;
    }

    function sort() {
        const wanted = filter.value.trim().toLowerCase();
        const { of } = columns[order.column];
        const isWanted = (hit) => wanted === '' || columns.some((column) => column.of(hit).toLowerCase().includes(wanted));
        shown = hits.filter(isWanted);
        // The newest ones are found first, the others in the order of the run.
        const sign = order.down ? -1 : 1;
        if (order.column === 0) {
            shown.sort((a, b) => sign * (a.at - b.at));
        } else {
            shown.sort((a, b) => sign * (compare(of(a), of(b)) || a.at - b.at));
        }
        draw();
    }

    /** Draws the rows that are visible. */
    function draw() {
        all.style.height = shown.length * ROW + 'px';
        const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 5);
        const last = Math.min(shown.length, first + Math.ceil(scroll.clientHeight / ROW) + 10);
        rows.style.top = first * ROW + 'px';
        rows.replaceChildren(...shown.slice(first, last).map((hit) => {
            const row = document.createElement('div');
            row.className = hit.position === here ? 'row here' : 'row';
            row.title = 'Go there';
            row.append(...columns.map((column) => cell(column, column.of(hit))));
            row.addEventListener('click', () => host.postMessage({ position: hit.position }));
            return row;
        }));
    }

    function cell(column, value) {
        const span = document.createElement('span');
        span.style.width = column.width + 'px';
        span.textContent = value;
        return span;
    }

    function drawHead() {
        head.replaceChildren(...columns.map((column, at) => {
            const sign = order.column === at ? (order.down ? ' ▾' : ' ▴') : '';
            const span = cell(column, column.name + sign);
            span.title = 'Sort';
            span.addEventListener('click', () => {
                order = { column: at, down: order.column === at ? !order.down : false };
                drawHead();
                sort();
            });
            return span;
        }));
    }

    scroll.addEventListener('scroll', draw);
    filter.addEventListener('input', sort);
    stop.addEventListener('click', () => host.postMessage({ stop: true }));
    new ResizeObserver(draw).observe(scroll);
    window.addEventListener('message', ({ data }) => {
        if (data.begin !== undefined) {
            [columns, hits, order] = [data.begin === '' ? [] : columnsOf(data.expressions), [], { column: 0, down: true }];
            filter.value = '';
            filter.className = data.begin === '' ? 'none' : '';
            stop.className = 'none';
            shown = [];
            drawHead();
            draw();
        }
        if (data.here !== undefined) {
            here = data.here;
            draw();
        }
        if (data.hits && columns.length > 0) {
            data.hits.forEach((hit) => hits.push({ ...hit, at: numberOf(hit.position) }));
            text.textContent = data.state;
            stop.className = data.isOver ? 'none' : '';
            // Sorting all for each batch would take long.
            clearTimeout(timer);
            timer = setTimeout(sort, hits.length < 2000 ? 0 : 200);
            if (hits.length === data.hits.length) {
                sort();
            }
        }
    });
    host.postMessage({ ready: true });
}

module.exports = { table };
