// Requests that no client should send: they are refused, and the session goes on.
'use strict';
const assert = require('assert');
const { sleep } = require('./session');

const MISSING = 99999999;
const EARLIER = /of an earlier stop: ask again/;
/** The reason is in the words of Python, which are not fixed. */
const FAILS = /\w/;

/** Returns requests, and why they are refused. */
function wrong(session) {
    const threadId = session.thread;
    const source = { path: session.scene.source };
    return [
        ['noSuchRequest', {}, /there is no request noSuchRequest/],
        ['contraflow/nothing', {}, /there is no request contraflow\/nothing/],
        ['', {}, /there is no request/],
        // Missing arguments.
        ['setBreakpoints', {}, /a source without a path/],
        ['setBreakpoints', { source: {}, breakpoints: [{ line: 1 }] }, /a source without a path/],
        ['stackTrace', {}, /thread 0 does not exist/],
        ['scopes', {}, EARLIER],
        ['variables', {}, EARLIER],
        ['evaluate', {}, /Argument required/],
        ['goto', {}, /no such target/],
        ['gotoTargets', {}, /give a source and a line/],
        ['restartFrame', {}, EARLIER],
        ['readMemory', {}, /is not an address/],
        ['disassemble', {}, /is not an address/],
        ['contraflow/hits', {}, /give `source` and `line`/],
        ['contraflow/seek', {}, /not a position/],
        ['contraflow/mark', {}, /give one name/],
        ['contraflow/function', {}, EARLIER],
        ['contraflow/writers', {}, /give `memoryReference`/],
        // Arguments of other types.
        ['setBreakpoints', { source: { path: 'x' }, breakpoints: 7 }, FAILS],
        ['setBreakpoints', { source, breakpoints: ['first'] }, FAILS],
        ['setFunctionBreakpoints', { breakpoints: 7 }, FAILS],
        ['setInstructionBreakpoints', { breakpoints: [{ instructionReference: 'here' }] }, /here is not an address/],
        ['setDataBreakpoints', { breakpoints: 'all' }, FAILS],
        ['setExceptionBreakpoints', { filters: 7 }, FAILS],
        ['stackTrace', { threadId: 'first' }, /thread first does not exist/],
        ['stackTrace', { threadId: MISSING }, /thread 99999999 does not exist/],
        ['stackTrace', { threadId, startFrame: 'first' }, FAILS],
        ['scopes', { frameId: MISSING }, EARLIER],
        ['scopes', { frameId: {} }, FAILS],
        ['variables', { variablesReference: -1 }, EARLIER],
        ['evaluate', { expression: 5 }, FAILS],
        ['completions', { text: 5, column: 1 }, FAILS],
        ['readMemory', { memoryReference: 5, count: 1 }, FAILS],
        ['readMemory', { memoryReference: '0x10', count: -1 }, FAILS],
        ['readMemory', { memoryReference: '0x10', count: 'many' }, FAILS],
        ['disassemble', { memoryReference: 'here', instructionCount: 1 }, /here is not an address/],
        ['disassemble', { memoryReference: '0x10', instructionCount: 'many' }, FAILS],
        ['modules', { startModule: 'first' }, FAILS],
        ['dataBreakpointInfo', { name: 'x', variablesReference: MISSING }, EARLIER],
        ['next', { threadId: 'first' }, /invalid type: string/],
        ['next', { threadId: MISSING }, /thread 99999999 does not exist/],
        ['continue', { threadId: 1.5 }, /invalid type: floating point/],
        ['stepIn', { threadId, granularity: 5 }, /invalid type: integer/],
        ['goto', { threadId, targetId: MISSING }, /no such target/],
        ['restartFrame', { frameId: MISSING }, EARLIER],
        ['gotoTargets', { source: 'x', line: 1 }, /give a source and a line/],
        ['contraflow/hits', { function: 5 }, /invalid type: integer/],
        ['contraflow/hits', { function: session.names.add, from: 'here' }, /"here" is no position/],
        ['contraflow/seek', { to: 'nowhere' }, /not a position.*nowhere/],
        ['contraflow/writers', { memoryReference: 'x', bytes: 1 }, FAILS],
        ['launch', { recording: session.scene.recording }, /something is debugged already/],
        ['attach', { pid: 1 }, /something is debugged already/],
        ['initialize', { supportsInvalidatedEvent: 'perhaps' }, /invalid type: string/],
    ];
}

async function refusals(session) {
    await session.goBackTo('total grows');
    const before = [await session.place(), await session.position()];
    for (const [command, args, reason] of wrong(session)) {
        await session.refuse(command, args, reason);
        assert.deepStrictEqual([await session.place(), await session.position()], before, command);
    }
    // Arguments that are no object are as good as none, where none are needed.
    for (const command of ['threads', 'modules', 'contraflow/when', 'contraflow/marks']) {
        await session.client.customRequest(command, 'text');
        await session.client.customRequest(command, { unknown: { key: 1 } });
    }
    assert.deepStrictEqual([await session.place(), await session.position()], before);
    await session.toTheEnd();
}

/** Bytes that are no message: the next request is answered. */
async function damage(session) {
    const before = await session.position();
    const framed = (body) => `Content-Length: ${body.length}\r\n\r\n${body}`;
    const lengths = ['Content-Length: many\r\n\r\n{}', 'Content-Length: -5\r\n\r\n'];
    const bodies = ['{"seq": 1,', '[1, 2]', '{"seq": 1, "type": "request"}'].map(framed);
    for (const bytes of [...lengths, ...bodies]) {
        session.client.outputStream.write(bytes);
        assert.strictEqual(await session.position(), before, bytes);
    }
}

/** A long request, and one that waits for it, are cancelled. */
async function cancel(session) {
    // The client has no method that returns the number of a request.
    const number = () => session.client.sequence;
    const begun = Date.now();
    const first = number();
    const long = session.refuse('evaluate', { expression: 'python import time; time.sleep(50)', context: 'repl' }, FAILS);
    const second = number();
    const waiting = session.refuse('threads', {}, /^cancelled$/);
    assert.deepStrictEqual(second, first + 1);
    // gdb must have begun with it: an earlier Ctrl-C would be for nothing.
    await sleep(500);
    await session.ask('cancel', { requestId: second });
    await session.ask('cancel', { requestId: first });
    await Promise.all([long, waiting]);
    assert(Date.now() - begun < 30000, `${Date.now() - begun} ms`);
    // A request that is answered already, and none.
    await session.ask('cancel', { requestId: first });
    await session.ask('cancel', {});
    assert.strictEqual(await session.console('p 20 + 22').then((text) => text.split(' = ')[1]), '42');
}

module.exports = async (session) => {
    for (const test of [refusals, damage, cancel]) await test(session);
};
