// The pages of the views: one script and one style, and nothing from elsewhere.
'use strict';

const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';

function nonce() {
    return Array.from({ length: 32 }, () => LETTERS[Math.floor(Math.random() * LETTERS.length)]).join('');
}

/** Returns a page with a body, a style, and a function that runs in it. */
function page(body, style, script) {
    const secret = nonce();
    return `<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'nonce-${secret}'; script-src 'nonce-${secret}';">
<style nonce="${secret}">
html, body { height: 100%; margin: 0; padding: 0; overflow: hidden; }
body { display: flex; flex-direction: column; font: var(--vscode-font-size, 13px) var(--vscode-font-family, sans-serif); color: var(--vscode-foreground); }
input, button { font: inherit; color: var(--vscode-input-foreground); background: var(--vscode-input-background); border: 1px solid var(--vscode-input-border, var(--vscode-panel-border, #8884)); padding: 1px 6px; }
button { color: var(--vscode-button-secondaryForeground, inherit); background: var(--vscode-button-secondaryBackground, transparent); cursor: pointer; }
.bar { display: flex; gap: 6px; align-items: center; padding: 3px 8px; }
.bar .text { flex: 1; overflow: hidden; white-space: nowrap; text-overflow: ellipsis; opacity: 0.85; }
.none { display: none; }
${style}
</style>
</head>
<body>
${body}
<script nonce="${secret}">
(${script})();
</script>
</body>
</html>`;
}

module.exports = { page };
