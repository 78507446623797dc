// Memory, code, and the files that they are from.
'use strict';
const assert = require('assert');
const path = require('path');
const { find } = require('./session');

async function memory(session) {
    const { total } = session.names;
    await session.goBackTo('total grows');
    const [frame] = await session.frames();
    const { memoryReference } = await session.ask('evaluate', { expression: total, frameId: frame.id });
    const read = (args) => session.ask('readMemory', args);
    const four = await read({ memoryReference, count: 4 });
    assert.deepStrictEqual([four.address, four.data], [memoryReference, Buffer.from([10, 0, 0, 0]).toString('base64')]);
    const one = await read({ memoryReference, offset: 1, count: 1 });
    assert.strictEqual(BigInt(one.address), BigInt(memoryReference) + 1n);
    assert.strictEqual(one.data, 'AA==');
    const unknown = await read({ memoryReference: '0x10', count: 7 });
    assert.deepStrictEqual([unknown.unreadableBytes, unknown.data], [7, undefined]);
    // The memory has the bytes that the disassembly shows.
    const [insn] = await disassemble(session, frame.instructionPointerReference, 0, 1);
    const bytes = Buffer.from(insn.instructionBytes.replaceAll(' ', ''), 'hex');
    const code = await read({ memoryReference: insn.address, count: bytes.length });
    assert.strictEqual(code.data, bytes.toString('base64'));
    assert.strictEqual(insn.line, session.scene.line('total grows'));
    assert.strictEqual(insn.location.path, session.scene.source);
    await session.refuse('readMemory', { memoryReference: 'here', count: 1 }, /here is not an address/);
    await session.toTheEnd();
}

async function disassemble(session, memoryReference, instructionOffset, instructionCount) {
    const asked = { memoryReference, instructionOffset, instructionCount, resolveSymbols: true };
    return (await session.ask('disassemble', asked)).instructions;
}

/** Exactly as many instructions as were asked for, around that of the frame. */
async function instructions(session) {
    await session.goBackTo('total grows');
    const [frame] = await session.frames();
    const pc = frame.instructionPointerReference;
    for (const [offset, count] of [[-200, 400], [-3, 5], [4, 6], [0, 1], [7, 0], [-2000, 2001]]) {
        const shown = await disassemble(session, pc, offset, count);
        assert.strictEqual(shown.length, count, `${offset} ${count}`);
        if (offset <= 0) assert.strictEqual(shown[-offset].address, pc);
    }
    // One after the other without a gap; gdb agrees.
    const shown = await disassemble(session, pc, -2, 5);
    for (const [at, insn] of shown.entries()) {
        const next = BigInt(insn.address) + BigInt(insn.instructionBytes.split(' ').length);
        if (at + 1 < shown.length) assert.strictEqual(BigInt(shown[at + 1].address), next);
    }
    const byGdb = (await session.console(`disassemble ${pc},+1`)).replaceAll(/\s/g, '');
    assert(byGdb.includes(shown[2].instruction.replaceAll(/\s/g, '')), `${shown[2].instruction}: ${byGdb}`);
    const nowhere = await disassemble(session, '0x20', -4, 9);
    assert.strictEqual(nowhere.length, 9);
    assert(nowhere.every((insn) => insn.presentationHint === 'invalid'));
    const many = { memoryReference: pc, instructionCount: 100000000 };
    await session.refuse('disassemble', many, /at most 100000 instructions/);
    await session.toTheEnd();
}

async function files(session) {
    const { source, program } = session.scene;
    const { sources } = await session.ask('loadedSources');
    assert(sources.some((each) => each.path === source && each.name === path.basename(source)));
    const { modules, totalModules } = await session.ask('modules', { startModule: 0, moduleCount: 0 });
    assert.strictEqual(modules.length, totalModules);
    assert(find(modules, path.basename(program)).path.endsWith(path.basename(program)));
    assert(modules.some((each) => /^libc\.so/.test(each.name)), JSON.stringify(modules));
    const page = await session.ask('modules', { startModule: 1, moduleCount: 1 });
    assert.deepStrictEqual(page, { modules: [modules[1]], totalModules });
    // Files that exist are the client's to read.
    await session.refuse('source', { source: { path: source }, sourceReference: 1 }, /is not on this machine/);
}

module.exports = async (session) => {
    for (const test of [memory, instructions, files]) await test(session);
};
