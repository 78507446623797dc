// Walks a crash back to its cause in VS Code: node drive.js CHROMIUM URL SOURCE DIRECTORY
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { chromium } = require('playwright-core');

const [browserPath, url, source, shots] = process.argv.slice(2);
const lines = fs.readFileSync(source, 'utf8').split('\n');
const lineOf = (text) => lines.findIndex((line) => line.includes(text)) + 1;
const begin = Date.now();
let page;

function log(text) {
    console.log(`${((Date.now() - begin) / 1000).toFixed(1)} s  ${text}`);
}

const pause = (ms) => page.waitForTimeout(ms);
const shot = (name) => page.screenshot({ path: path.join(shots, `${name}.png`) });

/** Waits until `read` returns something that `accepts`, and returns that. */
async function until(what, read, accepts = Boolean, seconds = 20) {
    const end = Date.now() + 1000 * seconds;
    let last;
    while (Date.now() < end) {
        last = await read().catch((error) => String(error));
        if (accepts(last)) {
            log(what);
            return last;
        }
        await pause(100);
    }
    throw new Error(`${what}: ${JSON.stringify(last)}`);
}

/** Runs a command by its name. The editor may take the focus in between: then it is tried again. */
async function command(name) {
    const input = page.locator('.quick-input-widget input.input').first();
    for (let round = 0; ; round++) {
        try {
            await page.keyboard.press('F1');
            await input.fill(`>${name}`, { timeout: 3000 });
            await pause(700);
            await input.press('Enter', { timeout: 3000 });
            await pause(300);
            return;
        } catch (error) {
            if (round === 3) throw error;
            await page.keyboard.press('Escape');
        }
    }
}

async function goToLine(line) {
    await page.keyboard.press('Control+g');
    await page.waitForSelector('.quick-input-widget input');
    await page.keyboard.type(`${line}`);
    await page.keyboard.press('Enter');
    await pause(300);
}

/** Returns the status bar's text about the position. */
const status = async () => (await page.locator('.statusbar-item:has-text("thread")').first().textContent()).trim();
const textOf = async (selector) => (await page.locator(selector).allTextContents()).join('\n');

/** Returns the frame of a view whose page has an element. */
async function frameWith(selector) {
    for (const frame of page.frames()) {
        const found = await frame.$(selector).catch(() => null);
        if (found && await found.isVisible().catch(() => false)) {
            return frame;
        }
    }
    return undefined;
}

async function drive() {
    await page.goto(url, { waitUntil: 'domcontentloaded', timeout: 60000 });
    await page.waitForSelector('.monaco-workbench .part.sidebar', { timeout: 60000 });
    await pause(6000);
    await until('the source is open', async () => {
        await page.keyboard.press('Escape');
        await page.keyboard.press('Control+p');
        await page.waitForSelector('.quick-input-widget input');
        await page.keyboard.type(path.basename(source));
        await pause(1500);
        await page.keyboard.press('Enter');
        await pause(1500);
        return textOf('.view-line');
    }, (text) => text.includes('account'), 60);
    const culprit = lineOf('the bug');
    await goToLine(culprit);
    await page.keyboard.press('F9');
    await until('a breakpoint', () => page.locator('.codicon-debug-breakpoint, .codicon-debug-breakpoint-unverified').count());

    await page.keyboard.press('Control+Shift+d');
    await pause(1000);
    // The extension host needs a while; F5 before that does nothing.
    for (let round = 0; round < 8; round++) {
        await page.keyboard.press('F5');
        if (await page.waitForSelector('.codicon-debug-step-back', { timeout: 8000 }).catch(() => null)) break;
    }
    await until('the session stands at the crash', status, (text) => / · end$/.test(text), 40);
    const end = await status();
    await until('values are shown', () => textOf('.debug-pane .monaco-list-row, .pane .debug-variables .monaco-list-row'), (text) => /length/.test(text) && /longest/.test(text));
    await until('how often functions ran', () => textOf('.codelens-decoration'), (text) => /ran 4 times|ran once/.test(text), 30);
    await shot('crash');

    // Who wrote the null pointer that the crash reads?
    await page.locator('.debug-variables .monaco-list-row:has-text("a =") .monaco-tl-twistie').first().click();
    const owner = page.locator('.debug-variables .monaco-list-row:has-text("owner =")').first();
    await until('members are shown', () => owner.textContent(), (text) => /owner ?=\s?0x0/.test(text));
    await owner.click({ button: 'right' });
    await pause(600);
    await page.locator('.action-label:has-text("Who Wrote this Value?")').first().click({ delay: 100 });
    const writers = page.locator('.pane:has-text("Previous Values") .monaco-list-row:has-text(", was ")');
    await until('who wrote the value', () => writers.first().textContent(), (text) => /^0x0.*retire:\d+, was 0x/.test(text), 30);
    await command('Focus on Recording View');
    await writers.first().click();
    await until('a click goes to the write', () => textOf('.debug-call-stack .monaco-list-row'), (text) => /retire/.test(text));
    await pause(1500);
    await shot('who-wrote');

    await command('contraflow: Go to a Position');
    await page.waitForSelector('.quick-input-widget input');
    await page.keyboard.type('end');
    await page.keyboard.press('Enter');
    await until('the end again', status, (text) => / · end$/.test(text));
    await page.locator('.codicon-debug-step-back').first().click();
    await until('a step back', status, (text) => / · past$/.test(text) && text !== end);
    await page.locator('.codicon-debug-reverse-continue').first().click();
    await until('reverse to the breakpoint', () => textOf('.debug-call-stack .monaco-list-row'), (text) => /retire/.test(text));

    await command('Focus on Recording View');
    const map = await until('the recording is drawn', () => frameWith('#map'), Boolean, 20);
    await until('with calls', () => map.evaluate(() => document.getElementById('text').textContent), (text) => /position/.test(text));
    await pause(1500);
    const before = await status();
    const box = await (await map.$('#map')).boundingBox();
    await page.mouse.click(box.x + 120 + (box.width - 120) * 0.97, box.y + 45);
    await until('a click in the recording goes there', status, (text) => text !== before && / · past$/.test(text));
    await shot('recording');

    await page.locator('.tab:has-text("bank.c")').first().click();
    await goToLine(lineOf('sum += a->balance'));
    await command('contraflow: All Hits of this Line');
    await page.waitForSelector('.quick-input-widget input');
    await page.keyboard.press('Control+a');
    await page.keyboard.type('sum; a->balance');
    await page.keyboard.press('Enter');
    const hits = await until('the hits are listed', () => frameWith('.row'), Boolean, 30);
    const rows = await until('with their values', () => hits.$$eval('.row', (all) => all.map((row) => row.innerText.split('\n'))), (all) => all.length > 2 && /^-?\d+$/.test(all[0][1].trim()));
    await pause(500);
    await (await hits.$$('.row'))[1].click();
    const wanted = rows[1][0].trim();
    await until('a click on a hit goes there', status, (text) => text.includes(` ${wanted} /`) || text.startsWith(`${wanted} /`));
    await pause(1500);
    await shot('hits');
    assert(true);
}

async function main() {
    const args = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb'];
    const browser = await chromium.launch({ executablePath: browserPath, args });
    page = await (await browser.newContext({ viewport: { width: 1200, height: 800 } })).newPage();
    page.setDefaultTimeout(15000);
    let failure;
    try {
        await drive();
    } catch (error) {
        failure = error;
        await shot('failure').catch(() => {});
        console.error(error);
    }
    // A hung browser must not hold this up.
    await Promise.race([browser.close(), new Promise((resolve) => setTimeout(resolve, 3000))]);
    process.exit(failure ? 1 : 0);
}

main();
