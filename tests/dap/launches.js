// The beginning and the end of a session: requests before a launch, programs that crash, programs that
// never end, and a process that already runs.
'use strict';
const assert = require('assert');
const fs = require('fs');
const { spawn } = require('child_process');
const { Session, isThere, sleep } = require('./session');
const { checkCapabilities, dispatched, ofProtocol } = require('./commands');

const PRINTED = 'numbers up to 5, depth 60\n';
/** Requests that need nothing to debug. */
const ALWAYS = ['initialize', 'launch', 'attach', 'configurationDone', 'disconnect', 'terminate', 'cancel', 'threads'];

/** Nothing is debugged before a launch, and a launch may fail. */
async function before(scene) {
    const session = await Session.start(scene, 'recording');
    checkCapabilities(await session.ask('initialize', { adapterID: 'contraflow' }));
    const commands = dispatched();
    for (const command of commands.filter((each) => !ALWAYS.includes(each))) {
        await session.refuse(command, { threadId: 1 }, /^nothing is debugged: launch something first$/);
    }
    // What the protocol has and the adapter does not.
    for (const command of ofProtocol().filter((each) => !commands.includes(each))) {
        await session.refuse(command, {}, new RegExp(`^there is no request ${command}$`));
    }
    assert.deepStrictEqual((await session.ask('threads')).threads, []);
    await session.refuse('configurationDone', {}, /nothing is debugged/);
    await session.ask('cancel', { requestId: 1 });
    const { program, recording, directory } = scene;
    await session.refuse('launch', { recording: `${directory}/nowhere` }, /no such recording/);
    await session.refuse('launch', { program: `${directory}/nothing` }, /no such program/);
    await session.refuse('launch', { program, recording }, /either `recording` or `program`/);
    await session.refuse('launch', { program, mode: 'new' }, /give `record` or `serve`/);
    await session.refuse('launch', { program, args: 'text' }, /arguments of launch/);
    await session.refuse('attach', {}, /attach needs `pid`/);
    await session.refuse('attach', { pid: 'first' }, /arguments of attach/);
    await session.leave();
}

/** A recording from its start on. */
async function entry(scene) {
    const [session, stop] = await Session.launched(scene, 'recording', { recording: scene.recording, stopOnEntry: true });
    assert.deepStrictEqual([stop.reason, stop.description], ['entry', 'At the start of the recording']);
    await terminate(session);
    await session.leave();
}

/** Ends what is debugged, but not the session. */
async function terminate(session) {
    await session.ask('terminate');
    await session.event('terminated');
    assert.deepStrictEqual((await session.ask('threads')).threads, []);
    await session.refuse('continue', { threadId: session.thread }, /nothing is debugged/);
}

/** Checks that a program stopped where it writes to address 0, and goes back from there. */
async function checkCrash(session) {
    const { main, total } = session.names;
    assert.deepStrictEqual(await session.place(), [main, 'crash']);
    const info = await session.ask('exceptionInfo', { threadId: session.thread });
    assert.strictEqual(info.exceptionId, 'SIGSEGV');
    assert.match(info.description, /; address 0x0$/);
    assert.strictEqual(info.details.typeName, 'SIGSEGV');
    assert.strictEqual(await session.value(total), '15');
    // Rust's handler gets the first signal; the second one kills the program. Both are at this place.
    await session.ask('setExceptionBreakpoints', { filters: [] });
    await session.goBackTo('total grows');
    await session.ask('setExceptionBreakpoints', { filters: ['signal'] });
    assert.strictEqual(await session.value(total), '10');
    const again = await session.go('continue');
    assert.strictEqual(again.reason, 'exception');
    assert.deepStrictEqual(await session.place(), [main, 'crash']);
}

/** A program is recorded by the launch. */
async function recorded(scene) {
    const { program, directory } = scene;
    const launch = { program, args: ['crash'], mode: 'record', cwd: directory, env: { OF_THE_TEST: 'yes', HOME: null } };
    const [session, stop] = await Session.launched(scene, 'recording', launch);
    const printed = session.take('output').filter((output) => output.category === 'stdout');
    assert(printed.map((output) => output.output).join('').includes(PRINTED), JSON.stringify(printed));
    assert.deepStrictEqual([stop.reason, stop.description], ['exception', 'At the end of the recording: killed by SIGSEGV']);
    await checkCrash(session);
    if (scene.language !== 'rust') {
        assert.match(await session.console('p (char *) getenv("OF_THE_TEST")'), /"yes"$/);
        assert.match(await session.console('p (char *) getenv("HOME")'), /= 0x0$/);
    }
    await session.leave();
}

/** A live program stops at its crash, and is killed. */
async function crashed(scene) {
    const launch = { program: scene.program, args: ['crash'], mode: 'serve' };
    const [session, stop] = await Session.launched(scene, 'live', launch);
    assert.strictEqual(stop.reason, 'exception');
    assert.match(stop.description, /^SIGSEGV: Segmentation fault/);
    await checkCrash(session);
    await terminate(session);
    assert(!isThere(stop.threadId), 'the program goes on');
    await session.leave();
}

/** A live program ends, which `exited` and `terminated` report. */
async function ended(scene) {
    const launch = { program: scene.program, mode: 'serve' };
    const [session, stop] = await Session.launched(scene, 'live', launch, 'the end');
    assert.deepStrictEqual([stop.reason, stop.text], ['breakpoint', undefined]);
    assert.strictEqual((await session.event('output', (output) => output.category === 'stdout')).output, PRINTED);
    await session.breakAt();
    assert.strictEqual((await session.go('continue')).description, 'The program is about to exit');
    await session.go('stepBack');
    assert.strictEqual((await session.go('continue')).description, 'At the present of the program');
    await session.ask('continue', { threadId: session.thread });
    assert.strictEqual((await session.event('exited')).exitCode, 0);
    await session.event('terminated');
    await session.leave();
}

/** Pauses a program that never ends, sets a breakpoint while it runs, and lets it go. */
async function checkSpins(session, pid) {
    const { spins, total } = session.names;
    await session.refuse('stackTrace', { threadId: pid }, /^notStopped$/);
    const listed = (await session.ask('threads')).threads;
    assert.deepStrictEqual(listed.map((thread) => thread.id), [pid]);
    const [point] = await session.breakAt('the end');
    assert.strictEqual(point.verified, true);
    await session.refuse('evaluate', { expression: spins }, /^notStopped$/);
    const pause = async () => {
        const stop = await session.go('pause', { threadId: pid });
        assert.deepStrictEqual([stop.reason, stop.threadId], ['pause', pid]);
        return BigInt(await session.value(spins));
    };
    const first = await pause();
    assert(first > 0n && await session.value(total) === '15', `${first}`);
    await session.ask('continue', { threadId: pid });
    await sleep(50);
    const second = await pause();
    assert(second > first, `${second} after ${first}`);
    await session.leave({ terminateDebuggee: false }, [pid]);
    assert(isThere(pid), 'the process goes on');
    process.kill(pid, 'SIGKILL');
}

async function spinning(scene) {
    const session = await Session.begun(scene, 'live', { program: scene.program, args: ['spin'], mode: 'serve' });
    const { threads: [{ id }] } = await session.ask('threads');
    await session.ask('configurationDone', {});
    await session.event('output', (output) => output.output === PRINTED);
    await checkSpins(session, id);
}

/** Returns true unless the kernel lets only parents and root attach, and this is not root. */
function mayAttach() {
    try {
        return fs.readFileSync('/proc/sys/kernel/yama/ptrace_scope', 'utf8').trim() === '0' || process.getuid() === 0;
    } catch (error) {
        return true;
    }
}

/** Attaches to a running process, which outlives the session. */
async function attached(scene) {
    const child = spawn(scene.program, ['spin'], { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
        await new Promise((resolve) => { child.stdout.once('data', resolve); });
        if (!mayAttach()) {
            console.error('SKIPPED: this machine does not let processes attach to others');
            scene.skipped.add('attach');
            return;
        }
        const session = await Session.begun(scene, 'live', { pid: child.pid }, 'attach');
        const stop = await session.go('configurationDone', {});
        assert.deepStrictEqual([stop.reason, stop.threadId], ['entry', child.pid]);
        const before = BigInt(await session.value(session.names.spins));
        assert(before > 0n, `${before}`);
        await session.ask('continue', { threadId: child.pid });
        await checkSpins(session, child.pid);
    } finally {
        child.kill('SIGKILL');
    }
}

/** A pause ends the recording of a program that never ends, and a long move in that recording. */
async function interrupted(scene) {
    const session = await Session.start(scene, 'recording');
    await session.ask('initialize', {});
    const initialized = session.client.waitForEvent('initialized');
    const launched = session.ask('launch', { program: scene.program, args: ['spin'] });
    await session.event('output', (output) => output.output.includes(PRINTED));
    await sleep(300);
    await session.ask('pause', { threadId: 1 });
    await Promise.all([launched, initialized]);
    const stop = await session.go('configurationDone', {});
    assert.deepStrictEqual([stop.reason, stop.description], ['exception', 'At the end of the recording: killed by SIGINT']);
    const spins = BigInt(await session.value(session.names.spins));
    assert(spins > 0n, `${spins}`);
    await session.setBreakpoints([{ line: scene.line('spins'), condition: `${session.names.spins} < 0` }]);
    await session.ask('reverseContinue', { threadId: session.thread });
    const paused = await session.go('pause');
    assert.strictEqual(paused.reason, 'pause', JSON.stringify(paused));
    await session.ask('reverseContinue', { threadId: session.thread });
    await session.leave();
}

module.exports = [before, entry, recorded, crashed, ended, spinning, attached, interrupted];
