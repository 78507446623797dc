// Walks a recording with the official test client: node client.js CONTRAFLOW RECORDING SOURCE LINE
'use strict';
const assert = require('assert');
const { DebugClient } = require('@vscode/debugadapter-testsupport');

const [contraflow, recording, source, line] = process.argv.slice(2);

async function main() {
    const client = new DebugClient(contraflow, 'dap', 'contraflow');
    client.defaultTimeout = 30000;
    await client.start();
    try {
        const [, , first] = await Promise.all([
            client.waitForEvent('initialized').then(async () => {
                const breakpoints = [{ line: Number(line) }];
                const set = await client.setBreakpointsRequest({ source: { path: source }, breakpoints });
                assert.strictEqual(set.body.breakpoints[0].verified, true);
                await client.configurationDoneRequest();
            }),
            client.launch({ recording }),
            client.waitForEvent('stopped'),
        ]);
        assert.strictEqual(first.body.reason, 'entry');
        const threadId = first.body.threadId;
        const hit = async (request) => {
            const [, stopped] = await Promise.all([request, client.waitForEvent('stopped')]);
            const stack = await client.stackTraceRequest({ threadId });
            return [stopped.body.reason, stack.body.stackFrames[0].line];
        };
        assert.deepStrictEqual(await hit(client.reverseContinueRequest({ threadId })), ['breakpoint', Number(line)]);
        assert.deepStrictEqual(await hit(client.stepBackRequest({ threadId })), ['step', Number(line) - 1]);
        assert.deepStrictEqual(await hit(client.nextRequest({ threadId })), ['breakpoint', Number(line)]);
        const stack = await client.stackTraceRequest({ threadId });
        const frameId = stack.body.stackFrames[0].id;
        const value = await client.evaluateRequest({ expression: 'a', frameId, context: 'watch' });
        assert.strictEqual(value.body.result, '4');
        const hits = await client.customRequest('contraflow/hits', { function: 'push' });
        assert.strictEqual(hits.body.total, 5);
    } finally {
        await client.stop();
    }
}

main().then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
});
