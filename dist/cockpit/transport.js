// The way to the server in Cockpit, in place of crates/web/assets/direct/transport.js: Cockpit's session is the sign-on, and its
// administrative access is the right to act. `isotherm web` runs as a child of the bridge for as long as the page is open, read-only; every
// change is a command, given as a list of words that no shell reads.

await new Promise((done, failed) => {
  document.head.append(Object.assign(document.createElement('script'), { src: '../base1/cockpit.js', onload: done, onerror: failed }));
});
const { cockpit } = window;
const AS_ROOT = { superuser: 'require' };
const PATIENCE_MS = 15000;

export const trusted = true;

const REASONS = {
  'access-denied': 'this takes administrative access: turn it on at the top of Cockpit',
  'not-found': 'the program is not installed',
};
const words = (e, output) => (REASONS[e.problem] ?? (output || e.message || e.problem || 'no reason is known')).trim();

function spawn(argv, err) {
  return new Promise((done) => {
    cockpit.spawn(argv, { ...AS_ROOT, err }).then(
      (text) => done({ ok: true, text }),
      (e, output) => done({ ok: false, text: words(e, err === 'out' ? output : '') }),
    );
  });
}

/// Runs a command. `text` is all that it said.
export const run = (argv) => spawn(argv, 'out');

/// Runs a command that answers in JSON.
export async function ask(argv) {
  const { ok, text } = await spawn(argv, 'message');
  if (!ok) throw new Error(text);
  return JSON.parse(text);
}

/// Calls `changed` when the user gets administrative access or gives it up.
export function onAccess(changed) {
  const admin = cockpit.permission({ admin: true });
  let was = admin.allowed;
  admin.addEventListener('changed', () => {
    if (was !== null && admin.allowed !== was) changed();
    was = admin.allowed;
  });
}

let server = null;

/// The server of the figures. One that ended is started again.
function figures() {
  server ??= new Promise((up, down) => {
    const socket = `/run/isotherm-cockpit-${crypto.getRandomValues(new Uint32Array(2)).join('-')}.sock`;
    // It adds to the options that it is given.
    const http = cockpit.http(socket, { ...AS_ROOT });
    let ended = false;
    const end = (why) => {
      ended = true;
      server = null;
      down(new Error(why));
    };
    const child = cockpit.spawn(['isotherm', 'web', '--listen', `unix:${socket}`], { ...AS_ROOT, err: 'message' });
    child.then(() => end('isotherm web ended'), (e) => end(words(e)));
    const begun = Date.now();
    const knock = () =>
      http.get('/icon.svg').then(
        () => up(http),
        () => {
          if (ended) return;
          if (Date.now() - begun < PATIENCE_MS) setTimeout(knock, 100);
          else child.close('timeout');
        },
      );
    knock();
  });
  return server;
}

/// The command's answer as the web view's server would give it.
async function change(path, { volume, values, policy }) {
  const settings = path.endsWith('/switch') ? [`policy=${policy}`] : Object.entries(values).map(([key, value]) => `${key}=${value}`);
  const { ok, text } = await spawn(['isotherm', 'set', '--json', '--', volume, ...settings], 'message');
  return new Response(text, { status: ok ? 200 : 422 });
}

/// As `fetch`.
export async function send(path, { method = 'GET', body, signal } = {}) {
  if (method === 'POST') return change(path, JSON.parse(body));
  let http;
  try {
    http = await figures();
  } catch (e) {
    return new Response(e.message, { status: 503 });
  }
  if (path.startsWith('/api/volumes')) {
    const text = await http.get(path);
    return new Response(JSON.stringify({ ...JSON.parse(text), control: true }));
  }
  return new Promise((answered, failed) => {
    let out;
    const stream = new ReadableStream({ start: (c) => (out = c), cancel: () => request.close('cancelled') });
    const text = new TextEncoder();
    let open = true;
    const end = (how) => {
      if (open) how();
      open = false;
    };
    const request = http.request({ method, path, body: '' });
    request.response((status) => answered(new Response(stream, { status })));
    request.stream((part) => open && out.enqueue(text.encode(part)));
    request.then(
      () => end(() => out.close()),
      (e, why) => {
        end(() => {
          if (!e.status) return out.error(e);
          // An answer that says no is an answer. Its text is not streamed.
          out.enqueue(text.encode(why ?? ''));
          out.close();
        });
        failed(e);
      },
    );
    signal?.addEventListener('abort', () => {
      end(() => out.error(new DOMException('given up', 'AbortError')));
      request.close('cancelled');
    });
  });
}

import('./actions.js');
