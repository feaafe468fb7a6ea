// What Cockpit's page does besides showing: the list of all volumes, and commands on them, each after a confirmation. A command runs as it
// would in a terminal, and what it says is shown as it is.

import { ask, onAccess, run } from './transport.js';
import { bytes, el } from './words.js';

/// Where volumes of the machine are described.
const VOLUMES = '/etc/isotherm';
const EVERY_MS = 5000;
/// What the name of a service can have.
const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.:\-]*$/;

const button = (id, text, onclick, more = {}) => el('button', { type: 'button', id, onclick, ...more }, text);
const said = (text) => el('pre', { class: 'said', tabindex: '0' }, text);

// ---- the dialog ----

const dialog = el('dialog', { id: 'dialog', 'aria-labelledby': 'dialog-title' });
let busy = false;

function show(title, ...parts) {
  dialog.replaceChildren(el('h2', { id: 'dialog-title' }, title), ...parts);
  if (!dialog.open) dialog.showModal();
}
dialog.addEventListener('cancel', (e) => {
  if (busy) e.preventDefault();
});
addEventListener('beforeunload', (e) => {
  if (busy) e.preventDefault();
});

/// Asks; the answer has the fields, or is null if the user does not go on. With `typed` he must type that name first.
function step(title, parts, { fields = [], go, typed = null }) {
  return new Promise((answer) => {
    const yes = go ? el('button', { id: 'go', disabled: typed !== null }, go) : null;
    const form = el('form', {}, ...parts, ...fields);
    if (typed !== null) {
      const input = el('input', { type: 'text', id: 'typed', autocomplete: 'off', spellcheck: 'false' });
      input.addEventListener('input', () => {
        yes.disabled = input.value !== typed;
      });
      form.append(el('label', {}, 'To go on, type ', el('strong', {}, typed), input));
    }
    form.append(el('p', { class: 'row' }, button('close', go ? 'Cancel' : 'Close', () => dialog.close()), yes ?? ''));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      answer(Object.fromEntries(new FormData(form)));
    });
    dialog.onclose = () => answer(null);
    show(title, form);
  });
}

/// Runs a command. Where it refuses to overwrite data, it is offered with --force, to who types the name.
async function perform(title, argv, { force = null } = {}) {
  const line = el('code', {}, argv.join(' '));
  show(title, el('p', {}, 'Keep this page open until it has ended: ', line));
  busy = true;
  const done = await run(argv);
  busy = false;
  refresh();
  const parts = [el('p', { class: done.ok ? 'quiet' : 'bad', role: 'status' }, done.ok ? 'Done.' : 'Not done.'), said(done.text)];
  if (done.ok || force === null || !done.text.includes('--force')) {
    await step(title, parts, {});
    dialog.close();
  } else if (await step(title, [...parts, el('p', { class: 'bad' }, 'What it names can be erased for ever.')], { go: 'Erase it', typed: force }))
    await perform(title, [...argv, '--force']);
}

// ---- commands ----

const field = (label, name, attributes) => el('label', {}, label, el('input', { type: 'text', name, required: true, autocomplete: 'off', spellcheck: 'false', ...attributes }));
const nameField = () => field('Name', 'name', { pattern: NAME.source.slice(1, -1), title: 'Letters, digits and - _ . :' });
const deviceField = (label, name) => field(label, name, { pattern: '/.*', list: 'devices', placeholder: '/dev/…', title: 'The path of a device, from / on' });

/// The devices of the machine, to choose from.
async function devices() {
  const list = el('datalist', { id: 'devices' });
  try {
    const all = await ask(['lsblk', '--json', '--list', '--output', 'PATH,SIZE,FSTYPE,MODEL']);
    for (const d of all.blockdevices) list.append(el('option', { value: d.path }, [d.size, d.fstype, d.model].filter(Boolean).join(' ')));
  } catch {
    // A path can be typed.
  }
  return list;
}

/// What is on devices, as lsblk knows it. A device may have `:SIZE` behind it.
async function contents(...paths) {
  const columns = 'PATH,SIZE,TYPE,FSTYPE,LABEL,MOUNTPOINT,MODEL';
  const { text } = await run(['lsblk', '--output', columns, ...paths.map((p) => p.replace(/:[^/:]*$/, ''))]);
  return said(text);
}

async function create() {
  const title = 'Create a volume';
  const keep = el('label', { class: 'check' }, el('input', { type: 'checkbox', name: 'keep' }), ' The disk may show its present contents until it is written: saves clearing it, which takes some disks hours');
  const fields = [nameField(), deviceField('Flash', 'fast'), deviceField('Disk', 'slow'), keep, await devices()];
  const v = await step(title, [], { fields, go: 'Next' });
  if (!v) return;
  const warn = el('p', {}, `All that is on both devices will be erased. A device with a format that nobody knows looks empty.`);
  if (!(await step(title, [warn, await contents(v.fast, v.slow)], { go: 'Erase and create', typed: v.name }))) return;
  const options = v.keep ? ['--keep'] : [];
  await perform(title, ['isotherm', 'create', `${VOLUMES}/${v.name}`, '--fast', v.fast, '--slow', v.slow, ...options], { force: v.name });
}

async function adopt() {
  const title = 'Put flash in front of a disk with data';
  const fields = [nameField(), deviceField('Disk with a file system, not mounted', 'slow'), deviceField('Flash', 'fast'), await devices()];
  const v = await step(title, [], { fields, go: 'Next' });
  if (!v) return;
  const argv = ['isotherm', 'adopt', `${VOLUMES}/${v.name}`, v.slow, '--fast', v.fast];
  show(title, el('p', {}, 'Looking at the devices.'));
  // Without a terminal it says what it would do, and does nothing.
  const plan = await run(argv);
  const parts = [said(plan.text), await contents(v.slow, v.fast)];
  const can = plan.text.includes('--yes');
  if (await step(title, parts, can ? { go: 'Adopt', typed: v.name } : {})) await perform(title, [...argv, '--yes']);
  dialog.close();
}

async function add(v) {
  const title = `Add flash to ${v.name}`;
  const chosen = await step(title, [], { fields: [deviceField('Flash', 'fast'), await devices()], go: 'Next' });
  if (!chosen) return;
  const warn = el('p', {}, 'All that is on it will be erased.');
  if (await step(title, [warn, await contents(chosen.fast)], { go: 'Erase and add', typed: v.name }))
    await perform(title, ['isotherm', 'cache', v.volume, 'add', chosen.fast], { force: v.name });
}

async function stop(v) {
  const title = `Stop ${v.name}`;
  const text = 'Its users lose it; what is mounted must be unmounted first. A service that is enabled serves it again after the next boot.';
  if (await step(title, [el('p', {}, text)], { go: 'Stop', typed: v.name })) await perform(title, ['isotherm', 'stop', v.volume]);
}

const serve = (v) => perform(`Serve ${v.name}, now and after each boot`, ['systemctl', 'enable', '--now', `isotherm@${v.volume.slice(VOLUMES.length + 1)}.service`]);
const doctor = (v) => perform(`What is wrong with ${v.name} or at risk`, ['isotherm', 'doctor', v.volume]);

// ---- the list ----

const list = el('ul', { id: 'volumes', class: 'volumes' });

function row(v, at) {
  const served = ['serving', 'failed', 'unreachable'].includes(v.state);
  const name = served ? el('a', { href: `#${encodeURIComponent(v.volume)}` }, v.name) : el('strong', {}, v.name);
  const state = v.health && v.health !== 'well' ? v.health : v.state;
  const about = [v.volume_bytes === null ? null : bytes(v.volume_bytes), v.device?.link, v.volume, v.note].filter(Boolean).join(', ');
  const act = (word, text, does) => button(`${word}-${at}`, text, () => does(v), { 'aria-label': `${text}: ${v.name}` });
  const ours = v.volume.startsWith(`${VOLUMES}/`) && NAME.test(v.volume.slice(VOLUMES.length + 1));
  const buttons = [
    !served && ours ? act('serve', 'Serve', serve) : null,
    act('add', 'Add flash', add),
    act('doctor', 'Doctor', doctor),
    served ? act('stop', 'Stop', stop) : null,
  ];
  return el('li', {}, el('span', {}, name, ' ', el('span', { class: `badge ${state === 'serving' ? 'well' : state}` }, state)), el('span', { class: 'quiet' }, about), el('span', { class: 'row' }, ...buttons));
}

let shown = '';
async function refresh() {
  let rows;
  let text;
  try {
    // Another user's server states its own path: it must not be taken for an option.
    const all = (await ask(['isotherm', 'list', '--json'])).filter((v) => v.volume?.startsWith('/'));
    text = JSON.stringify(all);
    rows = () => (all.length ? all.map(row) : [el('li', { class: 'quiet' }, 'This machine has no volume yet.')]);
  } catch (e) {
    text = e.message;
    rows = () => [el('li', { class: 'bad' }, text)];
  }
  // Unchanged rows stay, so that nobody loses the button that he is on.
  if (text !== shown) list.replaceChildren(...rows());
  shown = text;
}

document.head.append(el('link', { rel: 'stylesheet', href: 'actions.css' }));
document.body.append(dialog);
document.getElementById('main').prepend(
  el('section', { class: 'card', id: 'all', 'aria-labelledby': 'h-volumes' }, el('div', { class: 'head' }, el('h2', { id: 'h-volumes' }, 'Volumes'), button('create', 'Create', create), button('adopt', 'Adopt a disk', adopt)), list),
);
onAccess(() => location.reload());
refresh();
setInterval(() => {
  if (!document.hidden && !busy) refresh();
}, EVERY_MS);
