// Moves in both directions, and the ends of the history.
'use strict';
const assert = require('assert');

const START = 'At the start of the recording';

/** Each call of `add` backwards, then forwards again. */
async function walk(session) {
    const { add } = session.names;
    await session.breakAt('total grows');
    const places = [];
    for (const a of [4, 3, 2, 1, 0]) {
        const stop = await session.go('reverseContinue');
        assert.strictEqual(stop.reason, 'breakpoint');
        assert.match(stop.text, /^in the past: position /);
        assert.deepStrictEqual(await session.place(), [add, 'total grows']);
        assert.deepStrictEqual([await session.value('a'), await session.value('sum')], [`${a}`, `${a + 1}`]);
        places.push(await session.position());
    }
    assert.strictEqual(new Set(places).size, 5);
    assert.strictEqual((await session.go('reverseContinue')).description, START);
    for (const place of places.reverse()) {
        const thread = { threadId: session.thread };
        const stopped = session.client.waitForEvent('stopped');
        const [stop, body] = await Promise.all([stopped, session.ask('continue', thread)]);
        assert.strictEqual(body.allThreadsContinued, true);
        assert.strictEqual(stop.body.reason, 'breakpoint');
        assert.strictEqual(await session.position(), place);
    }
    const end = session.isLive ? 'At the present of the program' : 'At the end of the recording: exited with status 0';
    assert.strictEqual((await session.go('continue')).description, end);
}

/** Steps and their counterparts, by line and by instruction. */
async function steps(session) {
    const { add, main, total } = session.names;
    await session.goBackTo('begin of add');
    const start = await session.position();
    for (const [forth, back] of [['next', 'stepBack'], ['stepIn', 'contraflow/stepBackInto']]) {
        assert.strictEqual((await session.go(forth)).reason, 'step');
        assert.deepStrictEqual(await session.place(), [add, 'total grows']);
        assert.strictEqual((await session.go(back)).reason, 'step');
        assert.deepStrictEqual(await session.place(), [add, 'begin of add']);
        assert.strictEqual(await session.position(), start);
    }
    for (const [forth, back] of [['next', 'stepBack'], ['stepIn', 'stepBack']]) {
        const args = { threadId: session.thread, granularity: 'instruction' };
        const pc = (await session.frames())[0].instructionPointerReference;
        await session.go(forth, args);
        assert.notStrictEqual((await session.frames())[0].instructionPointerReference, pc);
        await session.go(back, args);
        assert.strictEqual(await session.position(), start);
    }
    // Out of the function, in both directions.
    await session.go('contraflow/stepBackOut');
    assert.deepStrictEqual(await session.place(), [main, 'calls add']);
    const call = await session.position();
    await session.go('stepIn');
    assert.deepStrictEqual(await session.place(), [add, 'begin of add']);
    const out = await session.go('stepOut');
    assert.match(out.text, /^the function returned 5; in the past/);
    assert.strictEqual((await session.place())[0], main);
    await session.go('contraflow/seek', { to: call });
    // Over the call, in both directions.
    assert.strictEqual(await session.value(total), '10');
    await session.go('next');
    assert.deepStrictEqual([(await session.place())[0], await session.value(total)], [main, '15']);
    await session.go('stepBack');
    assert.deepStrictEqual([await session.place(), await session.value(total)], [[main, 'calls add'], '10']);
    await session.toTheEnd();
}

/** Places to go to, a frame again, and the beginning. */
async function jumps(session) {
    const { add } = session.names;
    const line = session.scene.line('total grows');
    const asked = { source: { path: session.scene.source }, line };
    const { targets } = await session.ask('gotoTargets', asked);
    assert.deepStrictEqual(targets.map((target) => target.line), [line, line]);
    const go = (at) => session.go('goto', { threadId: session.thread, targetId: targets[at].id });
    assert.strictEqual((await go(0)).reason, 'goto');
    assert.deepStrictEqual([await session.place(), await session.value('a')], [[add, 'total grows'], '4']);
    await go(0);
    assert.strictEqual(await session.value('a'), '3');
    await go(1);
    assert.strictEqual(await session.value('a'), '4');
    const last = { threadId: session.thread, targetId: targets[1].id };
    await session.refuse('goto', last, /does not run after/);
    // The beginning of the function, where its variable has no value yet.
    const [frame] = await session.frames();
    assert.strictEqual((await session.go('restartFrame', { frameId: frame.id })).reason, 'goto');
    const [again] = await session.frames();
    assert.deepStrictEqual([again.name, again.line], [add, session.scene.line('add')]);
    const when = await session.ask('contraflow/when');
    assert.strictEqual(when.isPast, true);
    await session.go('restart', {});
    const start = await session.ask('contraflow/when');
    assert(start.share < 0.01, `${start.share}`);
    await session.refuse('goto', { threadId: session.thread, targetId: targets[0].id }, /does not run before/);
    await session.toTheEnd();
}

/** The other thread, and the names of both. */
async function threads(session) {
    const { work, main, answer } = session.names;
    const first = session.thread;
    session.take('thread');
    await session.breakAt('in the thread');
    await session.go('reverseContinue');
    assert.notStrictEqual(session.thread, first);
    assert.deepStrictEqual([await session.place(), await session.value(answer)], [[work, 'in the thread'], '0']);
    const listed = (await session.ask('threads')).threads;
    assert.deepStrictEqual(listed.map((thread) => thread.id), [first, session.thread]);
    assert(listed.every((thread) => thread.name.endsWith(`(${thread.id})`)), JSON.stringify(listed));
    const started = session.take('thread');
    assert.deepStrictEqual(started, [{ reason: 'started', threadId: session.thread }]);
    assert((await session.frames(first)).some((frame) => frame.name === main));
    // A step is of the thread that stopped, though another one was looked at.
    const other = session.thread;
    await session.go('next');
    assert.strictEqual(session.thread, other);
    assert.strictEqual(await session.value(answer), '42');
    await session.breakAt();
    await session.toTheEnd();
}

/** A pause of a program that is stopped already does nothing. */
async function pause(session) {
    const before = await session.position();
    await session.ask('pause', { threadId: session.thread });
    assert.strictEqual(await session.position(), before);
}

module.exports = async (session) => {
    for (const test of [walk, steps, jumps, threads, pause]) await test(session);
};
