// Tests, by the official test client, of much at once: a million elements and hits, a hundred thousand frames,
// 64 threads, bursts of requests, and an adapter that is killed: node vast.js CONTRAFLOW PROGRAM DIRECTORY
//
// PROGRAM is programs/vast.cpp, compiled; DIRECTORY a place for the recording.
'use strict';
const assert = require('assert');
const { execFileSync } = require('child_process');
const { Scene, Session, find, sleep } = require('./session');

const [contraflow, program, directory] = process.argv.slice(2);
const NUMBERS = 1000000;
const FRAMES = 100001;

/** Shows frames at the two ends of the stack, and elements at the end of a container of the last one. */
async function stack(session) {
    const page = (startFrame) => session.ask('stackTrace', { threadId: session.thread, startFrame, levels: 20 });
    const first = await page(0);
    assert.strictEqual(first.stackFrames.length, 20);
    assert(first.stackFrames.every((frame) => frame.name === 'deep'));
    const last = await page(FRAMES - 5);
    assert.strictEqual(last.totalFrames, FRAMES);
    assert.deepStrictEqual(last.stackFrames.map((frame) => frame.name), ['deep', 'deep', 'deep', 'deep', 'main']);
    const { scopes } = await session.ask('scopes', { frameId: last.stackFrames[4].id });
    const { variables } = await session.ask('variables', { variablesReference: scopes[0].variablesReference });
    const numbers = find(variables, 'numbers');
    if (!numbers.indexedVariables) {
        console.error('SKIPPED: gdb has no printers of the C++ library');
        return;
    }
    assert.strictEqual(numbers.indexedVariables, NUMBERS);
    const { variablesReference } = numbers;
    const elements = await session.ask('variables', { variablesReference, filter: 'indexed', start: NUMBERS - 50, count: 100 });
    const values = elements.variables.map((each) => [each.name, each.value]);
    const expected = Array.from({ length: 50 }, (_, at) => [`[${NUMBERS - 50 + at}]`, `${NUMBERS - 50 + at}`]);
    assert.deepStrictEqual(values, expected);
}

/** Lists all threads, and shows a frame of each. */
async function threads(session) {
    const listed = (await session.ask('threads')).threads;
    assert.strictEqual(listed.length, 64);
    for (const { id } of listed) {
        const frames = await session.frames(id);
        assert(frames.length > 0, `${id}`);
    }
}

/** Sends many steps before one is answered, back and forth. */
async function bursts(session) {
    const before = await session.position();
    const threadId = session.thread;
    for (const command of ['stepBack', 'stepIn']) {
        const stops = [];
        const listen = (stop) => stops.push(stop);
        session.client.on('stopped', listen);
        const asked = Array.from({ length: 20 }, () => session.ask(command, { threadId, granularity: 'instruction' }));
        await Promise.all(asked);
        for (const end = Date.now() + 60000; stops.length < 20 && Date.now() < end;) await sleep(20);
        assert.strictEqual(stops.length, 20, command);
        session.client.removeListener('stopped', listen);
        assert.strictEqual(await session.position() === before, command === 'stepIn', command);
    }
}

/** Shows the newest of a million hits while the others are searched, and then a part of them. */
async function hits(session) {
    const line = session.scene.line('counted');
    const where = { source: { path: session.scene.source }, line };
    const requestId = session.client.sequence;
    const all = session.send('contraflow/hits', { ...where, limit: NUMBERS, token: 1 }).then(() => null, (error) => error);
    const first = await session.event('contraflow/hitsFound');
    assert(first.hits.length > 0);
    await session.ask('cancel', { requestId });
    assert.match((await all).message, /cancelled/);
    const some = await session.ask('contraflow/hits', { ...where, limit: 1000, values: ['i'] });
    const values = some.hits.map((each) => each.values[0]);
    assert.deepStrictEqual(values, Array.from({ length: 1000 }, (_, at) => `${NUMBERS - 1 - at}`));
    assert.strictEqual(some.hasMore, true);
}

async function main() {
    const names = { source: 'vast.cpp' };
    const scene = new Scene(contraflow, 'cpp', names, program, directory);
    const record = ['record', '-q', '-o', scene.recording, '--', program];
    execFileSync(contraflow, record, { env: scene.environment, stdio: 'ignore' });
    const [session] = await Session.launched(scene, 'recording', { recording: scene.recording });
    session.client.defaultTimeout = 120000;
    await session.goBackTo('deepest');
    for (const test of [threads, stack, bursts, hits]) await test(session);
    // In the midst of a move.
    const move = session.send('reverseContinue', { threadId: session.thread }).catch(() => null);
    await Promise.all([session.kill(), Promise.race([move, sleep(1000)])]);
}

main().then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
});
