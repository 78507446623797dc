// The adapter's own requests: the place in the history, hits, marks, writers, the calls over time.
'use strict';
const assert = require('assert');

async function hits(session) {
    const { scene, names } = session;
    const end = await session.position();
    const line = scene.line('total grows');
    const asked = { source: { path: scene.source }, line, values: ['a', names.total, 'nothing'] };
    const all = await session.ask('contraflow/hits', asked);
    assert.deepStrictEqual([all.total, all.count, all.hasMore], [5, 5, false]);
    const values = all.hits.map((hit) => hit.values.slice(0, 2));
    assert.deepStrictEqual(values, [['4', '10'], ['3', '6'], ['2', '3'], ['1', '1'], ['0', '0']]);
    assert(all.hits.every((hit) => /No symbol .nothing./.test(hit.values[2])));
    assert.strictEqual(await session.position(), end);
    const few = await session.ask('contraflow/hits', { function: names.depth, limit: 7 });
    assert.deepStrictEqual([few.count, few.hasMore, few.total], [7, true, null]);
    const rest = await session.ask('contraflow/hits', { function: names.depth, from: few.hits[6].position });
    assert.strictEqual(rest.total, 61 - 7);
    // With a token, they are sent while they are found.
    session.take('contraflow/hitsFound');
    const sent = await session.ask('contraflow/hits', { ...asked, values: ['a'], token: 't' });
    assert.deepStrictEqual([sent.total, sent.hits], [5, []]);
    const found = session.take('contraflow/hitsFound');
    assert(found.every((event) => event.token === 't'));
    const positions = (list) => list.map((hit) => hit.position).sort();
    assert.deepStrictEqual(positions(found.flatMap((event) => event.hits)), positions(all.hits));
    await session.refuse('contraflow/hits', {}, /give `source` and `line`/);
    await session.refuse('contraflow/hits', { function: 'no_such_function' }, /no code of no_such_function/);
    return all.hits;
}

/** A hit is a place to go to, and to mark. */
async function marks(session, third) {
    const { add, total } = session.names;
    const stop = await session.go('contraflow/seek', { to: third.position });
    assert.strictEqual(stop.reason, 'goto');
    assert.deepStrictEqual([await session.place(), await session.value(total)], [[add, 'total grows'], '3']);
    const when = await session.ask('contraflow/when');
    assert.deepStrictEqual([when.position, when.share, when.thread], [third.position, third.share, third.thread]);
    assert.deepStrictEqual([when.isPast, when.isExact, when.isLive], [true, true, session.isLive]);
    await session.ask('contraflow/mark', { name: 'third' });
    await session.toTheEnd();
    const listed = (await session.ask('contraflow/marks')).marks;
    assert.deepStrictEqual(listed, [{ name: 'third', position: third.position, share: third.share }]);
    await session.go('contraflow/seek', { to: 'third' });
    assert.strictEqual(await session.position(), third.position);
    await session.ask('contraflow/unmark', { name: 'third' });
    assert.deepStrictEqual((await session.ask('contraflow/marks')).marks, []);
    await session.refuse('contraflow/seek', { to: 'third' }, /third/);
    await session.refuse('contraflow/unmark', { name: 'third' }, /third/);
    await session.toTheEnd();
}

/** The writers of a variable, by its expression and by its address. */
async function writers(session) {
    const { total } = session.names;
    const end = await session.position();
    const [frame] = await session.frames();
    const changes = (answer) => answer.writers.map((each) => [each.before, each.after]);
    const latest = await session.ask('contraflow/writers', { expression: total, frameId: frame.id, limit: 2 });
    assert.deepStrictEqual(changes(latest), [['10', '15'], ['6', '10']]);
    assert(latest.writers.every((each) => each.line === session.scene.line('total grows')));
    assert.strictEqual(await session.position(), end);
    const place = { memoryReference: latest.memoryReference, bytes: latest.bytes, limit: 10 };
    const earlier = await session.ask('contraflow/writers', { ...place, from: latest.writers[1].position });
    assert.deepStrictEqual(changes(earlier).slice(0, 3), [['3', '6'], ['1', '3'], ['0', '1']]);
    assert.match(earlier.end, /not changed before/);
    const bytes = await session.ask('contraflow/writers', { memoryReference: latest.memoryReference, bytes: 1 });
    assert.deepStrictEqual(changes(bytes), [['0a', '0f']]);
    await session.refuse('contraflow/writers', { expression: '$rax' }, /no place in memory/);
    await session.refuse('contraflow/writers', {}, /give `memoryReference`/);
}

/** The thread of here, whose life is not known, and both threads, of which the second one lived for a part. */
async function lives(session) {
    const { threads: here } = await session.ask('contraflow/timeline');
    assert.deepStrictEqual(here.map(({ id, from, to }) => [id, from, to]), [[session.thread, undefined, undefined]]);
    if (session.isLive) return;
    const { threads } = await session.ask('contraflow/timeline', { width: 1000 });
    assert.strictEqual(threads.length, 2, JSON.stringify(threads));
    assert(threads[1].from > threads[0].from && threads[1].to < 1, JSON.stringify(threads));
}

/** Returns the name of a call's function, without its arguments. */
function nameOf(timeline, slice) {
    return timeline.names[slice[3]].replace(/\(.*/, '');
}

/** Returns the names of the calls of a timeline's first thread. */
function calls(timeline) {
    return timeline.threads[0].slices.map((slice) => nameOf(timeline, slice));
}

async function timeline(session, all) {
    const { scene, names, thread } = session;
    const plain = await session.ask('contraflow/timeline');
    assert.deepStrictEqual([plain.gaps, plain.marks, plain.here.isPast], [[], [], false]);
    assert.strictEqual(plain.threads[0].id, thread);
    assert.deepStrictEqual(await session.ask('contraflow/gaps'), { gaps: [] });
    const [last, first] = [all[0].share, all[4].share];
    const chart = await session.ask('contraflow/timeline', { width: 4000, from: first, to: last });
    if (session.isLive) {
        const source = { path: scene.source };
        await session.refuse('contraflow/counts', { source }, /only a recording/);
        await session.refuse('contraflow/positionOf', { thread, instruction: 1 }, /only a recording/);
        return;
    }
    assert.strictEqual(chart.threads.length, 2);
    assert(calls(chart).includes(names.add), `${calls(chart)}`);
    assert(calls(chart).includes(names.push), `${calls(chart)}`);
    const slice = chart.threads[0].slices.find((each) => nameOf(chart, each) === names.push);
    const instruction = slice[4];
    const { position } = await session.ask('contraflow/positionOf', { thread, instruction });
    await session.go('contraflow/seek', { to: position });
    assert.strictEqual((await session.place())[0], names.push);
    await session.refuse('contraflow/positionOf', { thread, instruction: Number.MAX_SAFE_INTEGER }, /has no instruction/);
    await session.toTheEnd();
    const { functions } = await session.ask('contraflow/counts', { source: { path: scene.source } });
    const counts = new Map(functions.map((each) => [each.name.replace(/\(.*/, ''), each.count]));
    for (const [name, count] of [[names.add, 5], [names.push, 5], [names.depth, 61], [names.work, 1], [names.main, 1]]) {
        assert.strictEqual(counts.get(name), count, `${name}: ${JSON.stringify(functions)}`);
    }
    assert.deepStrictEqual(await session.ask('contraflow/counts', { source: { path: '/nothing' } }), { functions: [] });
}

module.exports = async (session) => {
    const all = await hits(session);
    await marks(session, all[2]);
    await writers(session);
    await timeline(session, all);
    await lives(session);
};
