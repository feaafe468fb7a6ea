// What the page does: which volume, what it is told, what it says when nobody tells it anything.

import { Chart } from './charts.js';
import { HeatMap } from './map.js';
import { Refused, events, get, hasToken, post, useToken } from './net.js';
import * as panels from './panels.js';
import { bytes, count, rate, time } from './words.js';

const $ = (id) => document.getElementById(id);
const POINTS = 1800;
const RETRY_MS = [500, 1000, 2000, 4000, 5000];

const page = {
  volume: null,
  volumes: [],
  control: false,
  frame: null,
  points: [],
  moves: null,
  stop: null,
  heard: 0,
  policyText: '',
};

// ---- light and dark ----

function theme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
  redraw();
}
function isDark() {
  const choice = document.documentElement.dataset.theme;
  return choice ? choice === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}
$('theme').addEventListener('click', () => {
  const next = isDark() ? 'light' : 'dark';
  try {
    localStorage.setItem('isotherm-theme', next);
  } catch {
    // Without storage the choice holds until the page is left.
  }
  theme(next);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw());

// ---- parts ----

const RATE = {
  requests: [[{ name: 'reads', colour: 'read', at: 1 }, { name: 'writes', colour: 'write', at: 2 }], (n) => `${count(n)}/s`],
  bytes: [[{ name: 'read', colour: 'read', at: 3 }, { name: 'written', colour: 'write', at: 4 }], rate],
};
const LATENCY = [{ name: 'reads', colour: 'read', at: 5 }, { name: 'writes', colour: 'write', at: 6 }];
let unit = 'requests';
const rateChart = new Chart($('rate'), $('rate-table'), $('rate-table-button'), 'Throughput', ...RATE.requests);
const latencyChart = new Chart($('latency'), $('latency-table'), $('latency-table-button'), 'Mean latency', LATENCY, time);
for (const u of ['requests', 'bytes'])
  $(`by-${u}`).addEventListener('click', () => {
    unit = u;
    for (const b of ['requests', 'bytes']) $(`by-${b}`).setAttribute('aria-pressed', String(b === u));
    rateChart.show(page.points, ...RATE[unit]);
  });

const map = new HeatMap(
  {
    map: $('map'), strip: $('strip'), legend: $('legend'), summary: $('map-summary'), why: $('why'), tier: $('by-tier'), heat: $('by-heat'),
    zoomIn: $('zoom-in'), zoomOut: $('zoom-out'), goLeft: $('go-left'), goRight: $('go-right'), zoomAll: $('zoom-all'),
  },
  (from, to, bins) => get('map', { volume: page.volume, from, to, bins }),
  (offset) => get('why', { volume: page.volume, offset }),
);

function redraw() {
  rateChart.draw();
  latencyChart.draw();
  map.draw();
}

function live(state, text) {
  $('live').dataset.state = state;
  if ($('live-text').textContent !== text) $('live-text').textContent = text;
  $('figures').classList.toggle('stale', state !== 'live');
}

/// A screen reader hears it when something changed, not whenever the time in it goes on.
function sentence(state, text) {
  $('state').dataset.state = state;
  if ($('sentence').textContent !== text) $('sentence').textContent = text;
  const news = text.replace(/^(Serving [a-z-]+) for .*/, '$1.');
  if ($('said').textContent !== news) $('said').textContent = news;
}

/// What is wrong, and what to do about it.
function causes(all) {
  const text = all.map((c) => `${c.what}: ${c.detail}. To do: ${c.todo}.`);
  if ($('causes').textContent === text.join('')) return;
  $('causes').replaceChildren(...text.map((t) => Object.assign(document.createElement('li'), { textContent: t })));
}

// ---- what is told ----

function show(f) {
  const first = page.frame === null;
  page.frame = f;
  page.heard = Date.now();
  live('live', 'Live');
  $('name').textContent = f.name;
  // A server of another version does not say how it is.
  const health = f.health ?? (f.failed ? 'failed' : f.degraded ? 'degraded' : 'well');
  const mark = { failed: 'FAILED: ', failing: 'FAILING: ', degraded: 'Degraded: ' };
  document.title = `${mark[health] ?? ''}${f.name} – Isotherm`;
  sentence(health, f.sentence);
  causes(f.causes ?? []);
  const device = f.device?.link ? `, ${f.device.link}` : '';
  const paced = f.paced ? ' Times are those of modelled devices.' : '';
  const about = `${bytes(f.volume_bytes)} in extents of ${bytes(f.extent_bytes)}, policy ${f.policy}${device}.${paced}`;
  if ($('about').textContent !== about) $('about').textContent = about;
  $('figures').hidden = false;
  panels.tiles(f);
  panels.tiers(f);
  panels.members(f);
  panels.refused(f);
  panels.classes(f);
  panels.moves(f, page.moves);
  rateChart.show(page.points, ...RATE[unit]);
  latencyChart.show(page.points);
  map.volume(f.extents, f.extent_bytes, f.tiers.length, first);
  map.refresh();
  if (first || f.policy !== page.policyText) {
    page.policyText = f.policy;
    policy();
  }
}

function gone(why) {
  live('lost', 'No figures');
  const since = page.heard ? ` What stands below is of ${new Date(page.heard).toLocaleTimeString()}.` : '';
  sentence('failed', `No figures: ${why}.${since}`);
  causes([]);
  document.title = `Lost: ${page.frame?.name ?? 'volume'} – Isotherm`;
}

function hear(event, data) {
  if (event === 'history') page.points = data;
  else if (event === 'gone') gone(data.why);
  else if (event === 'frame') {
    if (data.point && page.points.at(-1)?.[0] !== data.point[0]) page.points.push(data.point);
    if (page.points.length > POINTS) page.points.shift();
    show(data);
  }
}

async function policy(said) {
  try {
    const p = await get('policy', { volume: page.volume });
    panels.policy(p, page.control ? change : null, said);
  } catch {
    // The next frame of another policy asks again.
  }
}

async function change(what, body) {
  if (!hasToken()) return askToken('Changes take the token.');
  try {
    await post(what, { volume: page.volume, ...body });
    await policy({ text: 'Done, and kept for the next start.' });
  } catch (e) {
    if (e.status === 401) return askToken(e.message);
    await policy({ text: e.message, bad: true });
  }
}

function askToken(why) {
  useToken(null);
  $('ask-token').hidden = false;
  $('token-said').textContent = why;
  $('token').focus();
}
$('token-form').addEventListener('submit', (e) => {
  e.preventDefault();
  useToken($('token').value.trim());
  $('token').value = '';
  $('token-said').textContent = '';
  $('ask-token').hidden = true;
  if (page.volumes.length === 0) start();
});

// ---- the connection ----

async function follow(volume) {
  page.stop?.abort();
  const stop = new AbortController();
  Object.assign(page, { stop, volume, frame: null, points: [], moves: null, policyText: '' });
  $('volume').value = volume;
  live('wait', 'Connecting');
  for (let tries = 0; !stop.signal.aborted; tries++) {
    try {
      await events(volume, stop.signal, (event, data) => {
        if (stop.signal.aborted) return;
        tries = 0;
        hear(event, data);
      });
      if (!stop.signal.aborted) gone('the server ended the connection');
    } catch (e) {
      if (stop.signal.aborted) return;
      if (e.status === 401) return askToken(e.message);
      gone(e instanceof Refused ? e.message : String(e));
    }
    if (stop.signal.aborted) return;
    await new Promise((r) => setTimeout(r, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
    list();
  }
}

/// Moves are asked for while the page is looked at.
setInterval(async () => {
  if (document.hidden || !page.frame || Date.now() - page.heard > 5000) return;
  const volume = page.volume;
  try {
    const m = await get('moves', { volume });
    if (volume === page.volume) page.moves = m;
  } catch {
    // Said by the state of the page.
  }
}, 2000);

/// A connection that lives without figures: the volume does not answer.
setInterval(() => {
  if (!page.frame || $('live').dataset.state !== 'live') return;
  const silent = (Date.now() - page.heard) / 1000;
  if (silent > 6) gone(`the volume has not answered for ${Math.round(silent)} s`);
}, 1000);

async function list() {
  let all;
  try {
    all = await get('volumes');
  } catch (e) {
    if (e.status === 401) askToken(e.message);
    else if (page.volumes.length === 0) gone(e.message);
    return false;
  }
  page.control = all.control;
  page.volumes = all.volumes;
  $('version').textContent = `Isotherm ${all.version}`;
  $('mode').textContent = !all.control ? 'Read-only' : hasToken() ? 'Changes are allowed' : 'Changes are allowed with the token';
  $('pick').hidden = all.volumes.length < 2;
  const select = $('volume');
  if (document.activeElement !== select)
    select.replaceChildren(
      ...all.volumes.map((v) => {
        const o = document.createElement('option');
        Object.assign(o, { value: v.id, textContent: `${v.name} (${v.state})`, disabled: !v.served, selected: v.id === page.volume });
        return o;
      }),
    );
  return true;
}
$('volume').addEventListener('change', () => {
  location.hash = encodeURIComponent($('volume').value);
});
addEventListener('hashchange', () => {
  const id = decodeURIComponent(location.hash.slice(1));
  // Other links lead to a place on the page.
  if (id && id !== page.volume && !document.getElementById(id)) follow(id);
});

async function start() {
  for (let tries = 0; ; tries++) {
    const known = await list();
    if (!known && !$('ask-token').hidden) return;
    const wanted = decodeURIComponent(location.hash.slice(1));
    const one = page.volumes.find((v) => v.id === wanted && v.served) ?? page.volumes.find((v) => v.served);
    if (one) {
      $('volume').value = one.id;
      follow(one.id);
      break;
    }
    if (known) sentence('wait', 'No volume is served on this machine. “isotherm serve” serves one, “isotherm list” shows what there is.');
    await new Promise((r) => setTimeout(r, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
  }
  setInterval(() => {
    if (!document.hidden) list();
  }, 10000);
}

try {
  theme(localStorage.getItem('isotherm-theme'));
} catch {
  theme(null);
}
start();
