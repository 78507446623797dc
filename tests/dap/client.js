// Tests of the adapter's requests by the official test client, on a recording and live, for one of the
// programs in programs/: node client.js CONTRAFLOW LANGUAGE PROGRAM DIRECTORY
//
// LANGUAGE is c, cpp or rust, PROGRAM the compiled program, DIRECTORY a place for recordings.
'use strict';
const { execFileSync } = require('child_process');
const languages = require('./languages');
const launches = require('./launches');
const { checkCoverage } = require('./commands');
const { Scene, Session } = require('./session');

/** Tests of a session at the end of the recording, or at the last line of a live program. */
const THEMES = ['moves', 'breakpoints', 'values', 'code', 'ours', 'malformed'].map((name) => require(`./${name}`));

const [contraflow, language, program, directory] = process.argv.slice(2);

async function main() {
    const scene = new Scene(contraflow, language, languages[language], program, directory);
    const record = ['record', '-q', '-o', scene.recording, '--', program];
    execFileSync(contraflow, record, { env: scene.environment, stdio: 'ignore' });
    const modes = [['recording', { recording: scene.recording }, []], ['live', { program, mode: 'serve' }, ['the end']]];
    for (const [mode, launch, lines] of modes) {
        const [session] = await Session.launched(scene, mode, launch, ...lines);
        await session.breakAt();
        for (const test of THEMES) await test(session);
        await session.leave();
    }
    for (const test of launches) await test(scene);
    checkCoverage(scene);
}

main().then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
});
