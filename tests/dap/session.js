// A session of the official test client with the adapter, with the requests that tests share.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { DebugClient } = require('@vscode/debugadapter-testsupport');

/** The program of one language, its recording, and the requests that were made so far. */
class Scene {
    constructor(contraflow, language, names, program, directory) {
        Object.assign(this, { contraflow, language, names, program, directory });
        this.source = path.join(__dirname, 'programs', names.source);
        this.lines = fs.readFileSync(this.source, 'utf8').split('\n');
        this.recording = path.join(directory, 'recording');
        // Panics would search for the names of all functions.
        this.environment = { ...process.env, CONTRAFLOW_HOME: path.join(directory, 'home'), RUST_BACKTRACE: '0' };
        delete this.environment.DEBUGINFOD_URLS;
        /** The commands of each mode: those that were answered, and those that were refused. */
        this.answered = { recording: new Set(), live: new Set() };
        this.refused = { recording: new Set(), live: new Set() };
        /** The commands that this machine cannot test. */
        this.skipped = new Set();
    }

    /** Returns the number of the line with a comment. */
    line(comment) {
        const at = this.lines.findIndex((line) => line.endsWith(`// ${comment}`));
        assert.notStrictEqual(at, -1, `no line // ${comment}`);
        return at + 1;
    }
}

/** Returns the processes below one. */
function descendants(pid) {
    const parents = new Map();
    for (const name of fs.readdirSync('/proc').filter((each) => /^\d+$/.test(each))) {
        try {
            const stat = fs.readFileSync(`/proc/${name}/stat`, 'utf8');
            parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
        } catch (error) {
            // It has ended.
        }
    }
    const below = (of) => [...parents].filter(([, parent]) => parent === of).flatMap(([child]) => [child, ...below(child)]);
    return below(pid);
}

/** Returns true if a process runs. */
function isThere(pid) {
    try {
        return !/\) Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'));
    } catch (error) {
        return false;
    }
}

const sleep = (time) => new Promise((resolve) => { setTimeout(resolve, time); });

/** Waits until processes are gone, which must not take long. */
async function areGone(pids) {
    const remain = () => pids.filter((pid) => isThere(pid));
    for (const end = Date.now() + 10000; remain().length && Date.now() < end;) await sleep(20);
    assert.deepStrictEqual(remain(), [], 'processes stay');
}

class Session {
    constructor(scene, mode) {
        Object.assign(this, { scene, mode, isLive: mode === 'live', names: scene.names, thread: 0 });
        this.client = new DebugClient(scene.contraflow, 'dap', 'contraflow', { env: scene.environment });
        this.client.defaultTimeout = 30000;
        this.events = [];
        for (const name of ['output', 'exited', 'terminated', 'thread', 'contraflow/hitsFound']) {
            this.client.on(name, (event) => this.events.push(event));
        }
    }

    /** Starts an adapter. */
    static async start(scene, mode) {
        const session = new Session(scene, mode);
        await session.client.start();
        session.adapter = session.client._adapterProcess;
        session.ended = new Promise((resolve) => { session.adapter.once('exit', resolve); });
        return session;
    }

    /** Starts an adapter, and launches or attaches to something, as far as `configurationDone`. */
    static async begun(scene, mode, args, command = 'launch') {
        const session = await Session.start(scene, mode);
        await session.ask('initialize', { adapterID: 'contraflow', pathFormat: 'path' });
        const initialized = session.client.waitForEvent('initialized');
        await Promise.all([session.ask(command, args), initialized]);
        return session;
    }

    /** Starts an adapter and launches something, with breakpoints. Returns the first stop, too. */
    static async launched(scene, mode, launch, ...comments) {
        const session = await Session.begun(scene, mode, launch);
        await session.breakAt(...comments);
        return [session, await session.go('configurationDone', {})];
    }

    /** Sends a request by the client's own method, if it has one. */
    send(command, args) {
        // That of `modules` sends no arguments.
        const method = command !== 'modules' && this.client[`${command}Request`];
        return method ? method.call(this.client, args) : this.client.customRequest(command, args);
    }

    /** Returns the body of the response to a request, which must not fail. */
    async ask(command, args = {}) {
        try {
            const response = await this.send(command, args);
            assert.strictEqual(response.command, command);
            this.scene.answered[this.mode].add(command);
            return response.body;
        } catch (error) {
            throw new Error(`${this.mode}: ${command} ${JSON.stringify(args)}: ${error.message}`);
        }
    }

    /** Sends a request that must fail for a reason. */
    async refuse(command, args, reason) {
        const what = `${this.mode}: ${command} ${JSON.stringify(args)}`;
        const failed = await this.send(command, args).then(() => null, (error) => error);
        assert(failed, `${what} is answered`);
        assert.match(failed.message, reason, what);
        this.scene.refused[this.mode].add(command);
    }

    /** Makes a request that moves, and returns the stop. */
    async go(command, args = { threadId: this.thread }) {
        const stopped = this.client.waitForEvent('stopped');
        const [stop] = await Promise.all([stopped, this.ask(command, args)]);
        this.thread = stop.body.threadId;
        return stop.body;
    }

    /** Returns the events of a name so far, and forgets them. */
    take(name) {
        const taken = this.events.filter((event) => event.event === name);
        this.events = this.events.filter((event) => event.event !== name);
        return taken.map((event) => event.body);
    }

    /** Waits until an event of a name has come, and returns its body. */
    async event(name, wanted = () => true) {
        for (const end = Date.now() + 30000; Date.now() < end; await sleep(10)) {
            const at = this.events.findIndex((event) => event.event === name && wanted(event.body));
            if (at >= 0) return this.events.splice(at, 1)[0].body;
        }
        throw new Error(`${this.mode}: no event ${name}`);
    }

    /** Sets the breakpoints of the source, by the comments of their lines. */
    async breakAt(...comments) {
        return this.setBreakpoints(comments.map((comment) => ({ line: this.scene.line(comment) })));
    }

    /** Goes back to the last time that the line with a comment ran, and removes the breakpoints. */
    async goBackTo(comment) {
        await this.breakAt(comment);
        assert.strictEqual((await this.go('reverseContinue')).reason, 'breakpoint', comment);
        await this.breakAt();
    }

    async setBreakpoints(breakpoints) {
        const answer = await this.ask('setBreakpoints', { source: { path: this.scene.source }, breakpoints });
        return answer.breakpoints;
    }

    async frames(threadId = this.thread) {
        return (await this.ask('stackTrace', { threadId, startFrame: 0, levels: 20 })).stackFrames;
    }

    /** Returns the function and the comment of the innermost frame's line. */
    async place() {
        const [frame] = await this.frames();
        const line = this.scene.lines[frame.line - 1] || '';
        return [frame.name, line.split('// ')[1]];
    }

    async value(expression) {
        const [frame] = await this.frames();
        return (await this.ask('evaluate', { expression, frameId: frame.id, context: 'watch' })).result;
    }

    async console(expression) {
        return (await this.ask('evaluate', { expression, context: 'repl' })).result;
    }

    async position() {
        return (await this.ask('contraflow/when')).position;
    }

    /** Goes to the end of a recording, or to the present of a live program. */
    async toTheEnd() {
        const stop = await this.go('contraflow/seek', { to: 'end' });
        const end = this.isLive ? 'At the present of the program' : 'At the end of the recording: exited with status 0';
        assert.strictEqual(stop.description, end);
    }

    /** Ends the session. No process may stay, except `left`. */
    async leave(args = {}, left = []) {
        const below = descendants(this.adapter.pid);
        await this.ask('disconnect', args);
        this.adapter.stdin.end();
        assert.strictEqual(await this.ended, 0, 'the exit status of the adapter');
        await areGone(below.filter((pid) => !left.includes(pid)));
    }

    /** Kills the adapter. No process may stay. */
    async kill() {
        const below = descendants(this.adapter.pid);
        assert(below.length > 0);
        this.adapter.kill('SIGKILL');
        await this.ended;
        await areGone(below);
    }
}

/** Returns what has a name. */
function find(list, name) {
    const found = list.find((each) => each.name === name);
    assert(found, `no ${name} among ${list.map((each) => each.name)}`);
    return found;
}

module.exports = { Scene, Session, find, isThere, sleep };
