// The parts of the page that are words and bars, made from a frame.

import { ago, bytes, count, el, percent, rate, tierColour, tierName, time, years } from './words.js';

const $ = (id) => document.getElementById(id);

function bar(share, colourName) {
  const fill = el('span');
  fill.style.width = `${Math.max(0, Math.min(1, share ?? 0)) * 100}%`;
  fill.style.background = `var(--${colourName})`;
  return el('span', { class: 'of', 'aria-hidden': 'true' }, fill);
}

export function tiles(f) {
  const tile = (name, big, ...more) => el('div', {}, el('dt', {}, name), el('dd', { class: 'big' }, big), ...more.filter(Boolean).map((m) => el('dd', { class: 'more' }, m)));
  const wear = f.wear;
  const energy = f.energy;
  $('tiles').replaceChildren(
    tile('Served from the fast tier', percent(f.served_fast), `${count(f.reads_per_s + f.writes_per_s)} requests/s`),
    tile('Reads', `${count(f.reads_per_s)}/s`, rate(f.read_bytes_per_s), `mean ${time(f.read_mean_s)}`, `p99 ${time(f.read_p99_s)}`),
    tile('Writes', `${count(f.writes_per_s)}/s`, rate(f.written_bytes_per_s), `mean ${time(f.write_mean_s)}`, `p99 ${time(f.write_p99_s)}`),
    tile('Dirty data', bytes(f.dirty_bytes), 'in the cache alone', f.dirty_bytes ? `for at most ${time(f.dirty_for_at_most_s)}; cleaning takes about ${time(f.cleaning_takes_s)}` : null, f.draining ? `${count(f.draining_left)} ${f.draining} being given up` : null, `${count(f.queue)} requests wait`),
    energy
      ? tile('Power', `${(f.power_w ?? energy.mean_w).toFixed(1)} W`, `${energy.kwh_per_day.toFixed(2)} kWh a day`, 'by the models of the devices')
      : tile('Power', '–', 'known for paced members only'),
    wear.years !== null
      ? tile('Fast tier lasts', years(wear.years), `${bytes(wear.bytes_per_day)} a day written`, `of ${bytes(wear.limit_bytes)} in its life`)
      : tile('Written to the fast tier', bytes(wear.written_bytes), wear.bytes_per_day === null ? 'a forecast takes ten minutes' : `${bytes(wear.bytes_per_day)} a day`, wear.limit_bytes === null ? 'its limit is not known (wear_tbw)' : null),
  );
}

export function tiers(f) {
  const n = f.tiers.length;
  const rows = f.tiers.flatMap((t) => {
    const asleep = t.asleep === 0 ? '' : t.asleep === t.members ? ', asleep' : `, ${t.asleep} of ${t.members} asleep`;
    return [
      el('span', {}, `${tierName(t.tier, n)[0].toUpperCase()}${tierName(t.tier, n).slice(1)}`),
      bar(t.bytes ? t.used_bytes / t.bytes : 0, tierColour(t.tier, n)),
      el('span', { class: 'n' }, `${bytes(t.used_bytes)} of ${bytes(t.bytes)}, served ${percent(t.served)}${asleep}`),
    ];
  });
  $('tiers').replaceChildren(el('div', { class: 'bars' }, ...rows));
}

const HEADS = ['Member', 'Health', 'Tier', 'Read', 'Written', 'By moves', 'Sleep'];
const HEALTH = { silent: 'does not answer', 'no-space': 'no space', drive: 'drive fails' };

function sleepWords(m) {
  if (m.standby_s === null || m.standby_s === undefined) return 'never sleeps';
  const s = m.sleep ?? {};
  const now = m.asleep ? `asleep for ${time(s.asleep_s)}` : `awake, sleeps after ${time(m.standby_s)}`;
  const last = s.last_wake;
  const by = !last ? '' : `; last woken ${ago(last.age_s)} by a ${last.by}${last.offset !== null ? ` of byte ${last.offset.toLocaleString()}` : ''}`;
  const budget = !s.start_stop_limit ? '' : `; ${count(s.start_stop_limit)} starts ${s.start_stop_assumed ? 'assumed' : 'by its sheet'}${s.start_stop_years !== null ? `, at this rate ${years(s.start_stop_years)}` : ''}`;
  return `${now}; woken ${count(s.wake_ups ?? 0)} times${by}${budget}`;
}

export function members(f) {
  const n = f.tiers.length;
  const head = HEADS.map((h, i) => el('th', { scope: 'col', class: i >= 3 && i <= 5 ? 'num' : null }, h));
  const rows = f.members.map((m) => {
    const row = el(
      'tr',
      {},
      el('td', { class: 'path' }, m.path, m.paced ? el('span', { class: 'quiet' }, ` (as slow as ${m.paced})`) : null),
      el('td', {}, el('span', { class: `badge ${m.health}` }, HEALTH[m.health] ?? m.health), m.errors > 0 ? ` ${count(m.errors)}` : ''),
      el('td', { class: 'short' }, tierName(m.tier, n)),
      el('td', { class: 'num' }, bytes(m.bytes_read)),
      el('td', { class: 'num' }, bytes(m.bytes_written)),
      el('td', { class: 'num' }, bytes(m.move_bytes_read + m.move_bytes_written)),
      el('td', {}, sleepWords(m)),
    );
    // On a phone a row is a list, and each figure says what it is.
    [...row.cells].forEach((cell, i) => {
      if (i > 0) cell.dataset.label = HEADS[i];
    });
    return row;
  });
  const table = $('members');
  table.replaceChildren(table.caption, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...rows));
}

export function refused(f) {
  const total = f.moves.reduce((n, m) => n + m.proposed, 0);
  const done = f.moves.reduce((n, m) => n + (m.done ?? 0), 0);
  const most = f.refusals[0]?.count ?? 1;
  const rows = f.refusals.flatMap((r) => [
    el('span', {}, r.why.replaceAll('_', ' ')),
    bar(r.count / most, 'quiet'),
    el('span', { class: 'n' }, count(r.count)),
    r.what ? el('span', { class: 'wide' }, r.what) : null,
  ]);
  const say = total === 0 ? 'The policy has proposed no move yet.' : `Of ${count(total)} proposed moves ${count(done)} were done${rows.length ? '; these were not begun:' : ', none refused.'}`;
  $('refused').replaceChildren(el('p', { class: 'quiet' }, say), el('div', { class: 'bars' }, ...rows.filter(Boolean)));
}

export function classes(f) {
  if (f.classes.length === 0) {
    $('classes').replaceChildren(el('p', { class: 'quiet' }, 'No requests yet.'));
    return;
  }
  const all = f.classes.reduce((n, c) => n + c.accesses, 0);
  const rows = f.classes.slice(0, 12).flatMap((c) => [
    el('span', {}, c.name ?? `class ${c.class}`),
    bar(c.fast / c.accesses, 't0'),
    el('span', { class: 'n' }, `${percent(c.fast / c.accesses)} of ${percent(c.accesses / all)}`),
  ]);
  $('classes').replaceChildren(
    el('p', { class: 'quiet' }, 'Share served fast, of the share of all accesses, since serving began.'),
    el('div', { class: 'bars' }, ...rows),
  );
}

const UP = new Set(['promotion', 'fetch', 'allocation']);
const SAY = {
  promotion: 'promoted',
  demotion: 'demoted',
  fetch: 'copied to',
  allocation: 'written to',
  'write-back': 'written home',
  eviction: 'copy given up',
};

export function moves(f, m) {
  const some = f.moves.filter((x) => x.per_s > 0).map((x) => `${x.kind} ${count(x.per_s)}/s`);
  $('moves-now').textContent = `${f.moving === 0 ? 'Nothing is under way' : `${count(f.moving)} under way`}. In the last ${time(f.seconds)}: ${some.length ? some.join(', ') : 'no moves'}.`;
  if (!m) return;
  const n = f.tiers.length;
  const rows = m.ended.map((x) => {
    const where = x.to !== null && x.to !== undefined ? ` ${x.kind === 'promotion' || x.kind === 'demotion' ? 'to the ' : 'the '}${tierName(x.to, n)}` : '';
    return el(
      'li',
      {},
      el(
        'div',
        { class: 'what' },
        el('span', { class: `badge ${UP.has(x.kind) ? 'up' : 'down'}` }, x.kind),
        el('span', {}, `${bytes(m.extent_bytes)} at ${bytes(x.offset)} ${SAY[x.kind] ?? x.kind}${where}${x.how === 'done' ? '' : `: ${x.how}`}${x.own ? ' (to make room)' : ''}`),
        el('span', { class: 'when' }, ago(x.age_s)),
      ),
      x.why ? el('div', { class: 'because' }, x.why) : null,
    );
  });
  const now = m.under_way.map((x) => el('li', {}, el('div', { class: 'what' }, el('span', { class: 'badge' }, x.kind), el('span', {}, `${bytes(m.extent_bytes)} at ${bytes(x.offset)}`), el('span', { class: 'when' }, 'now'))));
  $('moves').replaceChildren(...now, ...rows);
  if (now.length + rows.length === 0) $('moves').replaceChildren(el('li', { class: 'quiet' }, 'Nothing has moved since serving began.'));
}

/// The policy with its parameters. `change(what, body)` is null where nothing may be changed.
export function policy(p, change, said) {
  const box = $('policy');
  const head = [
    el('p', {}, el('strong', {}, p.policy), p.kind ? el('span', { class: 'quiet' }, ` (${p.kind})`) : null, p.what ? `: ${p.what}.` : ''),
    p.source ? el('p', { class: 'quiet' }, `Source: ${p.source}.`) : null,
  ];
  const inputs = new Map();
  const row = ([key, value]) => {
    const m = p.meanings[key];
    const text = Array.isArray(value) ? value.join(', ') : String(value);
    let shown = text;
    if (change && !Array.isArray(value)) {
      const input = el('input', { type: 'text', value: text, 'aria-label': key, spellcheck: 'false', autocomplete: 'off' });
      input.addEventListener('input', () => tr.classList.toggle('changed', input.value.trim() !== text));
      inputs.set(key, { input, text, value });
      shown = input;
    }
    const tr = el('tr', {}, el('td', {}, key), el('td', {}, shown), m?.of === 'engine' ? null : el('td', { class: 'quiet' }, m?.default ?? ''), el('td', {}, m?.what ?? ''));
    return tr;
  };
  const all = Object.entries(p.params);
  const group = (of, title) => {
    const rows = all.filter(([k]) => (p.meanings[k]?.of ?? 'policy') === of);
    if (rows.length === 0) return [];
    const head = ['Name', 'Now', ...(of === 'policy' ? ['Default'] : []), 'Meaning'].map((h) => el('th', { scope: 'col' }, h));
    return [el('h3', {}, title), el('div', { class: 'scroll' }, el('table', { class: 'params' }, el('caption', { class: 'off' }, title), el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...rows.map(row))))];
  };
  const parts = [...head, ...group('policy', 'Parameters of the policy'), ...group('engine', 'Of the engine, for every policy')];
  if (change) {
    const done = el('p', { class: said?.bad ? 'bad' : 'quiet', role: 'status' }, said?.text ?? '');
    const set = el('button', { type: 'button', id: 'set' }, 'Set what was changed');
    set.addEventListener('click', () => {
      const values = {};
      for (const [key, { input, text, value }] of inputs) {
        const now = input.value.trim();
        if (now !== text) values[key] = typeof value === 'number' ? Number(now) : now;
      }
      if (Object.keys(values).length > 0) change('set', { values });
    });
    const pick = el('select', { id: 'preset', 'aria-label': 'Another policy' }, ...p.presets.map((q) => el('option', { value: q.name, selected: q.name === p.name }, `${q.name}: ${q.what}`)));
    const swap = el('button', { type: 'button', id: 'switch' }, 'Let it take over');
    swap.addEventListener('click', () => {
      if (pick.value === p.name || swap.dataset.sure === pick.value) {
        if (pick.value !== p.name) change('switch', { policy: pick.value });
        return;
      }
      swap.dataset.sure = pick.value;
      swap.textContent = `Yes, ${pick.value} instead of ${p.name}`;
    });
    pick.style.maxWidth = '100%';
    parts.push(el('p', { class: 'row' }, set), el('h3', {}, 'Another policy'), el('p', {}, pick, ' ', swap), done);
  } else parts.push(el('p', { class: 'quiet' }, 'This view changes nothing: ', el('code', {}, 'isotherm set'), ' does, or a view that was started with ', el('code', {}, '--web-control'), ' and a token.'));
  box.replaceChildren(...parts.filter(Boolean));
}
