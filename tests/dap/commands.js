// The requests that the adapter has, by its source, its capabilities and the schema of the protocol; a
// request that no test makes is found here.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');

const ROOT = path.join(__dirname, '../../src/dap');
/** Requests that the adapter makes of the client. */
const REVERSE = ['runInTerminal', 'startDebugging'];

/** Returns a function of a source file. */
function body(file, name) {
    const text = fs.readFileSync(path.join(ROOT, file), 'utf8');
    const found = new RegExp(`^( *)(?:pub\\(super\\) )?fn ${name}\\b[^]*?\\n\\1}`, 'm').exec(text);
    assert(found, `${file} has no function ${name}: adapt commands.js`);
    return found[0];
}

/** Returns the words in quotes before `=>`, or in `matches!`, of a function. */
function arms(file, name) {
    const text = body(file, name);
    const alternatives = /((?:"[\w/]+"\s*\|\s*)*"[\w/]+")\s*(?:if [^\n]*)?(?:=>|\)\s*$)/gm;
    return [...text.matchAll(alternatives)].flatMap(([, each]) => each.match(/[\w/]+/g));
}

/** Returns the names of all requests that the adapter dispatches. */
function dispatched() {
    const known = /const KNOWN: \[&str; (\d+)\] = \[([^]*?)\];/.exec(fs.readFileSync(path.join(ROOT, 'adapter.rs'), 'utf8'));
    const listed = known[2].match(/[\w/]+/g);
    assert.strictEqual(listed.length, Number(known[1]));
    const ours = arms('ours.rs', 'answer_ours').map((name) => `contraflow/${name}`);
    const all = [
        ...listed, ...ours, ...arms('adapter.rs', 'answer'), ...arms('moves.rs', 'is_move'),
        ...arms('moves.rs', 'move_of'), ...arms('moves.rs', 'start_move'), ...arms('questions.rs', 'question'),
    ];
    const commands = [...new Set(all)].sort();
    // The functions were found and read.
    for (const name of ['initialize', 'cancel', 'goto', 'reverseContinue', 'contraflow/seek', 'contraflow/positionOf', 'contraflow/gaps']) {
        assert(commands.includes(name), `${name} is not found: adapt commands.js`);
    }
    return commands;
}

/** Returns the names of the requests of clients in the schema of the protocol. */
function ofProtocol() {
    const text = fs.readFileSync(path.join(__dirname, 'debugAdapterProtocol.json'), 'utf8');
    const requests = Object.entries(JSON.parse(text).definitions).filter(([name]) => /.Request$/.test(name));
    const command = ([, definition]) => definition.allOf[1].properties.command.enum[0];
    return requests.map(command).filter((name) => !REVERSE.includes(name));
}

/** The capabilities that stand for requests with other names. */
const OF_CAPABILITY = {
    supportsConfigurationDoneRequest: 'configurationDone',
    supportsFunctionBreakpoints: 'setFunctionBreakpoints',
    supportsInstructionBreakpoints: 'setInstructionBreakpoints',
    supportsDataBreakpoints: 'setDataBreakpoints',
    supportsStepBack: 'stepBack',
    supportsSetVariable: 'setVariable',
    supportsSetExpression: 'setExpression',
    supportsRestartFrame: 'restartFrame',
};

/** Fails unless the capabilities name the requests that the adapter has, and no others. */
function checkCapabilities(capabilities) {
    const has = dispatched();
    const names = ofProtocol();
    for (const [capability, command] of Object.entries(OF_CAPABILITY)) {
        assert.strictEqual(capabilities[capability], true, capability);
        assert(has.includes(command), command);
    }
    for (const command of names) {
        const capability = `supports${command[0].toUpperCase()}${command.slice(1)}Request`;
        if (capability in capabilities) assert(has.includes(command), capability);
    }
    for (const [key, value] of Object.entries(capabilities)) {
        const named = /^supports(\w+)Request$/.exec(key);
        if (!named || !value) continue;
        const command = named[1][0].toLowerCase() + named[1].slice(1);
        assert(has.includes(command), `${key} is true, and there is no ${command}`);
    }
}

/** Requests that a mode always refuses, for a reason that its tests check. */
const REFUSED = {
    recording: ['attach', 'setVariable', 'setExpression', 'source'],
    live: ['contraflow/counts', 'contraflow/positionOf', 'source'],
};

/** Fails unless each request was answered in each mode, or refused where that is its answer. */
function checkCoverage(scene) {
    for (const [mode, refused] of Object.entries(REFUSED)) {
        const [answered, failed] = [scene.answered[mode], scene.refused[mode]];
        const isTested = (command) => answered.has(command) || refused.includes(command) || scene.skipped.has(command);
        const missing = dispatched().filter((command) => !isTested(command));
        assert.deepStrictEqual(missing, [], `${mode}: requests that no test makes`);
        assert.deepStrictEqual(refused.filter((command) => !failed.has(command)), [], `${mode}: not refused`);
        assert.deepStrictEqual(refused.filter((command) => answered.has(command)), [], `${mode}: answered`);
    }
}

module.exports = { checkCapabilities, checkCoverage, dispatched, ofProtocol };
