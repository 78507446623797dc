// Breakpoints of all kinds, in both directions.
'use strict';
const assert = require('assert');

/** Conditions, counts of hits, and messages instead of stops. */
async function lines(session) {
    const { scene, names } = session;
    const [grows, pushed] = [scene.line('total grows'), scene.line('end of push')];
    const shown = await session.setBreakpoints([
        { line: grows, condition: 'a == 3' },
        { line: pushed, logMessage: 'pushed {value} {nothing}' },
        { line: 1000000 },
        { line: pushed, hitCondition: 'so many' },
        { line: grows, condition: 'a ==' },
    ]);
    assert.deepStrictEqual(shown.map((point) => point.verified), [true, true, false, false, false]);
    assert.strictEqual(shown[0].line, grows);
    assert.match(shown[3].message, /a hit condition is a number/);
    await session.go('restart', {});
    session.take('output');
    const stop = await session.go('continue');
    assert.deepStrictEqual([stop.reason, stop.hitBreakpointIds], ['breakpoint', [shown[0].id]]);
    assert.strictEqual(await session.value('a'), '3');
    const logged = session.take('output').filter((output) => output.category === 'console');
    const texts = [1, 2, 3].map((value) => new RegExp(`^pushed ${value} <No symbol .nothing. in current context\\.?>\n$`));
    assert.strictEqual(logged.length, 3, JSON.stringify(logged));
    logged.forEach((output, at) => assert.match(output.output, texts[at]));
    assert(logged.every((output) => output.line === pushed && output.source.path === scene.source));
    // Every second hit. A breakpoint that stays keeps its number.
    const [before] = await session.setBreakpoints([{ line: grows }]);
    const [kept] = await session.setBreakpoints([{ line: grows }, { line: pushed, hitCondition: '%2' }]);
    assert.strictEqual(kept.id, before.id);
    await session.setBreakpoints([{ line: pushed, hitCondition: '%2' }]);
    await session.go('restart', {});
    for (const value of ['2', '4']) {
        await session.go('continue');
        assert.deepStrictEqual([(await session.place())[0], await session.value('value')], [names.push, value]);
    }
    await session.breakAt();
    await session.toTheEnd();
}

async function functions(session) {
    const { push } = session.names;
    const breakpoints = [{ name: push, condition: 'value == 3' }, { name: 'no_such_function' }];
    const shown = (await session.ask('setFunctionBreakpoints', { breakpoints })).breakpoints;
    assert.deepStrictEqual(shown.map((point) => point.verified), [true, false]);
    const stop = await session.go('reverseContinue');
    assert.deepStrictEqual([stop.reason, stop.hitBreakpointIds], ['function breakpoint', [shown[0].id]]);
    assert.deepStrictEqual([(await session.place())[0], await session.value('value')], [push, '3']);
    await session.ask('setFunctionBreakpoints', { breakpoints: [] });
    assert.notStrictEqual((await session.go('reverseContinue')).reason, 'function breakpoint');
    await session.toTheEnd();
}

async function instructions(session) {
    const { add } = session.names;
    await session.goBackTo('total grows');
    const [{ instructionPointerReference: here }] = await session.frames();
    const asked = { memoryReference: here, instructionOffset: 1, instructionCount: 1 };
    const [next] = (await session.ask('disassemble', asked)).instructions;
    const breakpoints = [{ instructionReference: next.address, condition: 'a < 2' }, { instructionReference: here, offset: -1000000000 }];
    const shown = (await session.ask('setInstructionBreakpoints', { breakpoints })).breakpoints;
    assert.deepStrictEqual([shown[0].verified, shown[0].instructionReference], [true, next.address]);
    assert.strictEqual((await session.go('reverseContinue')).reason, 'instruction breakpoint');
    const [frame] = await session.frames();
    assert.deepStrictEqual([frame.name, frame.instructionPointerReference], [add, next.address]);
    assert.strictEqual(await session.value('a'), '1');
    await session.ask('setInstructionBreakpoints', { breakpoints: [] });
    await session.toTheEnd();
}

/** Sets the one data breakpoint, or none without an ID. */
async function watch(session, dataId, accessType) {
    const breakpoints = dataId ? [{ dataId, accessType }] : [];
    return (await session.ask('setDataBreakpoints', { breakpoints })).breakpoints[0];
}

/** Stops where a global variable is written and read. */
async function data(session) {
    const { add, total } = session.names;
    await session.go('restart', {});
    const info = await session.ask('dataBreakpointInfo', { name: total });
    assert.deepStrictEqual(info.accessTypes, ['read', 'write', 'readWrite']);
    const point = await watch(session, info.dataId, 'write');
    assert.strictEqual(point.verified, true, JSON.stringify(point));
    const writes = [[0, 1], [1, 3], [3, 6], [6, 10], [10, 15]];
    for (const [earlier, later] of writes) {
        const stop = await session.go('continue');
        assert.strictEqual(stop.reason, 'data breakpoint');
        assert(stop.text.startsWith(`${total}: ${earlier} → ${later}; in the past`), stop.text);
        assert.strictEqual(await session.value(total), `${later}`);
    }
    assert.match((await session.go('continue')).description, /^At the (end|present) of the /);
    for (const [earlier, later] of writes.reverse()) {
        const stop = await session.go('reverseContinue');
        assert.deepStrictEqual([stop.reason, stop.hitBreakpointIds], ['data breakpoint', [point.id]]);
        assert(stop.text.startsWith(`${total}: ${earlier} → ${later}; in the past`), stop.text);
        assert.deepStrictEqual([await session.place(), await session.value(total)], [[add, 'total grows'], `${earlier}`]);
    }
    // The first access of all is a read.
    await session.go('restart', {});
    assert.strictEqual((await watch(session, info.dataId, 'readWrite')).verified, true);
    const read = await session.go('continue');
    assert.strictEqual(read.reason, 'data breakpoint');
    assert.deepStrictEqual([await session.place(), await session.value('a')], [[add, 'total grows'], '0']);
    await session.go('restart', {});
    // What cannot be watched.
    const breakpoints = [{ dataId: info.dataId, accessType: 'new' }, { dataId: 'no such' }];
    const wrong = (await session.ask('setDataBreakpoints', { breakpoints })).breakpoints;
    assert.deepStrictEqual(wrong.map((each) => each.verified), [false, false]);
    assert.strictEqual((await session.ask('dataBreakpointInfo', { name: '1 + 1' })).dataId, null);
    await watch(session);
    await session.toTheEnd();
}

/** Shows the values of a write, though the breakpoint was set at another place of the history. */
async function afterSeek(session) {
    const { total } = session.names;
    await session.go('restart', {});
    const info = await session.ask('dataBreakpointInfo', { name: total });
    await watch(session, info.dataId, 'write');
    await session.go('contraflow/seek', { to: 'end' });
    const { text } = await session.go('reverseContinue');
    assert.strictEqual(await session.value(total), '10');
    assert(text.startsWith(`${total}: 10 → 15; in the past`), text);
}

/** Stops where a variable of a scope is written. */
async function local(session) {
    await session.goBackTo('total grows');
    const [frame] = await session.frames();
    const { scopes } = await session.ask('scopes', { frameId: frame.id });
    const locals = scopes.find((scope) => scope.name === 'Locals').variablesReference;
    const sum = await session.ask('dataBreakpointInfo', { name: 'sum', variablesReference: locals });
    assert.match(sum.description, /^sum \(4 bytes at 0x/);
    const point = await watch(session, sum.dataId, 'write');
    assert.strictEqual(point.verified, true, JSON.stringify(point));
    assert.strictEqual((await session.go('reverseContinue')).reason, 'data breakpoint');
    assert.deepStrictEqual(await session.place(), [session.names.add, 'begin of add']);
}

/** Stops where bytes at an address are written. */
async function bytes(session) {
    const { total } = session.names;
    await session.goBackTo('total grows');
    const [frame] = await session.frames();
    const { memoryReference } = await session.ask('evaluate', { expression: total, frameId: frame.id });
    const info = await session.ask('dataBreakpointInfo', { name: memoryReference, asAddress: true, bytes: 4 });
    assert.strictEqual(info.description, `4 bytes at ${memoryReference}`);
    const point = await watch(session, info.dataId, 'write');
    assert.strictEqual(point.verified, true, JSON.stringify(point));
    const stop = await session.go('reverseContinue');
    assert.deepStrictEqual([stop.reason, stop.hitBreakpointIds], ['data breakpoint', [point.id]]);
    assert.strictEqual(await session.value(total), '6');
}

/** Goes back through exceptions: the descriptions and IDs of the stops, and functions on the stack. */
async function stopsAt(session, filters, stops) {
    const answer = await session.ask('setExceptionBreakpoints', { filters });
    assert.deepStrictEqual(answer, {});
    for (const [description, id, name] of stops) {
        const stop = await session.go('reverseContinue');
        assert.deepStrictEqual([stop.reason, stop.description], ['exception', description]);
        const info = await session.ask('exceptionInfo', { threadId: session.thread });
        assert.deepStrictEqual([info.exceptionId, info.description, info.breakMode], [id, description, 'always']);
        const frames = await session.frames();
        assert(frames.some((frame) => frame.name.endsWith(name)), JSON.stringify(frames));
    }
    const start = await session.go('reverseContinue');
    assert.strictEqual(start.description, 'At the start of the recording');
    await session.refuse('exceptionInfo', { threadId: session.thread }, /no signal or exception/);
    if (stops.length) {
        const forth = await session.go('continue');
        assert.strictEqual(forth.description, stops.at(-1)[0]);
    }
}

/** Stops where an exception of C++ is thrown and caught, and nowhere in the other languages. */
async function exceptions(session) {
    const stops = [['C++ catch', 'catch', 'main'], ['C++ throw of std::runtime_error', 'std::runtime_error', 'refuse']];
    await stopsAt(session, ['throw', 'catch', 'signal'], session.scene.language === 'cpp' ? stops : []);
}

/** Stops where a panic begins. */
async function panic(session) {
    await stopsAt(session, ['panic'], [['Rust panic', 'panic', 'refuse']]);
}

module.exports = async (session) => {
    for (const test of [lines, functions, instructions, data]) await test(session);
    await afterSeek(session);
    for (const test of [local, bytes]) {
        await watch(session);
        await session.toTheEnd();
        await test(session);
    }
    await watch(session);
    await session.toTheEnd();
    await exceptions(session);
    await session.toTheEnd();
    if (session.scene.language === 'rust') await panic(session);
    await session.ask('setExceptionBreakpoints', { filters: [] });
    await session.toTheEnd();
};
