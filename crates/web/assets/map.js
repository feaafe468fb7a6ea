// The map of a volume: a cell for each extent, or for a few, in the order of addresses, row by row. Its colours say which tier
// most of a cell is read from, or how recently it was used. 131,072 cells are one image that is painted at once.

import { ago, bytes, colour, count, el, percent, tierColour, tierName } from './words.js';

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const VALUE = new Uint8Array(128).fill(255);
for (let i = 0; i < 64; i++) VALUE[DIGITS.charCodeAt(i)] = i;
const NOTHING = 255;
const [COPY, DIRTY, HELD] = [8, 16, 32];
/// Pixels that a cell has at least, and cells at most.
const [AREA_MIN, CELLS_MAX] = [3, 131072];
const EVERY_MS = 3000;
const STRIP = 400;

const rgb = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
const pack = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
const mix = (a, b, f) => a.map((x, i) => Math.round(x + (b[i] - x) * f));

function decode(text) {
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = VALUE[text.charCodeAt(i) & 127];
  return out;
}

/// Every so-manieth cell, as many as the strip has room for: an image is not that wide.
function thinned(answer) {
  const cells = Math.min(answer.cells, STRIP * 4);
  const some = (values) => Uint8Array.from({ length: cells }, (_, i) => values[Math.floor((i * answer.cells) / cells)]);
  return { cells, place: some(answer.place), heat: some(answer.heat) };
}

export class HeatMap {
  /// `ask(from, to, bins)` and `explain(offset)` are promises; `parts` are the elements of the page.
  constructor(parts, ask, explain) {
    Object.assign(this, { parts, ask, explain });
    Object.assign(this, { extents: 0, extentBytes: 1, tiers: 2, from: 0, to: 0, by: 'tier', seen: null, whole: null, cursor: null });
    Object.assign(this, { asking: false, again: false, onScreen: true, told: 0 });
    const { map, strip } = parts;
    new ResizeObserver(() => this.draw()).observe(map);
    new IntersectionObserver((e) => {
      this.onScreen = e.at(-1).isIntersecting;
      this.refresh();
    }).observe(map);
    map.addEventListener('wheel', (e) => {
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 0.6 : 1 / 0.6, this.extentAt(e.offsetX, e.offsetY));
    }, { passive: false });
    map.addEventListener('click', (e) => this.choose(this.cellAt(e.offsetX, e.offsetY), true));
    map.addEventListener('dblclick', (e) => this.zoom(0.25, this.extentAt(e.offsetX, e.offsetY)));
    map.addEventListener('keydown', (e) => this.key(e));
    map.addEventListener('focus', () => this.draw());
    map.addEventListener('blur', () => this.draw());
    const drag = (e) => {
      if (e.buttons & 1) this.centre((e.offsetX / strip.clientWidth) * this.extents);
    };
    strip.addEventListener('pointerdown', (e) => {
      strip.setPointerCapture(e.pointerId);
      drag(e);
    });
    strip.addEventListener('pointermove', drag);
    const click = (name, f) => parts[name].addEventListener('click', f);
    click('zoomIn', () => this.zoom(0.5));
    click('zoomOut', () => this.zoom(2));
    click('goLeft', () => this.go(-0.5));
    click('goRight', () => this.go(0.5));
    click('zoomAll', () => this.range(0, this.extents));
    for (const by of ['tier', 'heat'])
      click(by, () => {
        this.by = by;
        for (const b of ['tier', 'heat']) parts[b].setAttribute('aria-pressed', String(b === by));
        this.draw();
      });
  }

  /// What the volume is; another one is shown whole.
  volume(extents, extentBytes, tiers, anew) {
    Object.assign(this, { extentBytes, tiers });
    if (anew || extents !== this.extents) {
      Object.assign(this, { extents, seen: null, whole: null, cursor: null });
      this.parts.why.hidden = true;
      this.range(0, extents);
    }
  }

  range(from, to) {
    const n = Math.max(Math.min(16, this.extents), Math.min(this.extents, Math.round(to - from)));
    const at = Math.max(0, Math.min(this.extents - n, Math.round(from)));
    if (at === this.from && at + n === this.to && this.seen) return;
    [this.from, this.to, this.cursor] = [at, at + n, null];
    this.draw();
    this.refresh(true);
  }
  zoom(f, around = (this.from + this.to) / 2) {
    const n = Math.max(16, (this.to - this.from) * f);
    const share = (around - this.from) / (this.to - this.from);
    this.range(around - n * share, around + n * (1 - share));
  }
  go(f) {
    const n = this.to - this.from;
    this.range(this.from + n * f, this.to + n * f);
  }
  centre(extent) {
    const n = this.to - this.from;
    this.range(extent - n / 2, extent + n / 2);
  }

  /// Asks anew, unless that would be of no use; one question at a time.
  async refresh(now = false) {
    if (this.extents === 0 || document.hidden || !this.onScreen) return;
    if (!now && performance.now() - this.told < EVERY_MS) return;
    if (this.asking) {
      this.again ||= now;
      return;
    }
    this.asking = true;
    try {
      const { clientWidth: w, clientHeight: h } = this.parts.map;
      const bins = Math.max(1, Math.min(CELLS_MAX, Math.floor((w * h) / AREA_MIN), this.to - this.from));
      const [from, to] = [this.from, this.to];
      const answer = await this.ask(from, to, bins);
      const isWhole = from === 0 && to === this.extents;
      answer.place = decode(answer.place);
      answer.heat = decode(answer.heat);
      this.seen = answer;
      if (isWhole) this.whole = thinned(answer);
      else if (!this.whole) {
        const all = await this.ask(0, this.extents, Math.min(STRIP * 4, this.extents));
        this.whole = thinned({ ...all, place: decode(all.place), heat: decode(all.heat) });
      }
      this.told = performance.now();
      this.draw();
    } catch {
      // The state of the page says that nobody answers; what was seen last stays.
    } finally {
      this.asking = false;
      if (this.again) {
        this.again = false;
        this.refresh(true);
      }
    }
  }

  colours() {
    const of = (n) => rgb(colour(n));
    const [cold, mild, warm, hot, none] = ['cold', 'mild', 'warm', 'hot', 'none'].map(of);
    const ramp = new Uint32Array(64);
    for (let i = 0; i < 64; i++) {
      const f = (i / 63) * 3;
      const [a, b] = f < 1 ? [cold, mild] : f < 2 ? [mild, warm] : [warm, hot];
      ramp[i] = pack(mix(a, b, f - Math.min(2, Math.floor(f))));
    }
    const place = new Uint32Array(64);
    for (let i = 0; i < 64; i++) {
      const name = i & HELD ? 'held' : i & DIRTY ? 'dirty' : i & COPY ? 'copy' : tierColour(i & 7, this.tiers);
      place[i] = pack(of(name));
    }
    return { ramp, place, none: pack(none) };
  }

  /// How cells lie on the canvas.
  grid() {
    const { clientWidth: w, clientHeight: h } = this.parts.map;
    const n = this.seen?.cells ?? 1;
    const columns = Math.max(1, Math.min(n, Math.ceil(Math.sqrt((n * w) / h))));
    const rows = Math.max(1, Math.ceil(n / columns));
    return { n, columns, rows, w, h, cw: w / columns, ch: h / rows };
  }
  cellAt(x, y) {
    const g = this.grid();
    const cell = Math.floor(y / g.ch) * g.columns + Math.floor(x / g.cw);
    return Math.max(0, Math.min(g.n - 1, cell));
  }
  extentOf(cell) {
    const s = this.seen;
    return s ? s.from + Math.floor((cell * (s.to - s.from)) / s.cells) : 0;
  }
  extentAt(x, y) {
    return this.extentOf(this.cellAt(x, y));
  }

  paint(canvas, answer, columns, rows, gaps) {
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (w === 0) return null;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    if (!answer) return c;
    const paint = this.colours();
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const [values, table] = this.by === 'heat' ? [answer.heat, paint.ramp] : [answer.place, paint.place];
    for (let i = 0; i < answer.cells; i++) pixels[i] = values[i] === NOTHING ? paint.none : table[values[i]];
    const small = new OffscreenCanvas(columns, rows);
    small.getContext('2d').putImageData(image, 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(small, 0, 0, w, h);
    const [cw, ch] = [w / columns, h / rows];
    if (gaps && cw >= 7 && ch >= 7) {
      c.strokeStyle = colour('card');
      c.lineWidth = 1;
      c.beginPath();
      for (let x = 1; x < columns; x++) {
        c.moveTo(x * cw, 0);
        c.lineTo(x * cw, h);
      }
      for (let y = 1; y < rows; y++) {
        c.moveTo(0, y * ch);
        c.lineTo(w, y * ch);
      }
      c.stroke();
    }
    return c;
  }

  draw() {
    const { map, strip, legend } = this.parts;
    const g = this.grid();
    const c = this.paint(map, this.seen, g.columns, g.rows, true);
    if (!c) return;
    if (this.cursor !== null && this.seen) {
      const [x, y] = [(this.cursor % g.columns) * g.cw, Math.floor(this.cursor / g.columns) * g.ch];
      c.strokeStyle = colour('card');
      c.lineWidth = 4;
      c.strokeRect(x - 2, y - 2, Math.max(4, g.cw) + 4, Math.max(4, g.ch) + 4);
      c.strokeStyle = colour('ink');
      c.lineWidth = 2;
      c.strokeRect(x - 2, y - 2, Math.max(4, g.cw) + 4, Math.max(4, g.ch) + 4);
    }
    const all = this.whole;
    const s = this.paint(strip, all, all?.cells ?? 1, 1, false);
    if (s && this.extents > 0) {
      const [w, h] = [strip.clientWidth, strip.clientHeight];
      const [a, b] = [(this.from / this.extents) * w, (this.to / this.extents) * w];
      s.fillStyle = colour('bg');
      s.globalAlpha = 0.72;
      s.fillRect(0, 0, a, h);
      s.fillRect(b, 0, w - b, h);
      s.globalAlpha = 1;
      s.strokeStyle = colour('ink');
      s.lineWidth = 2;
      s.strokeRect(a + 1, 1, Math.max(4, b - a) - 2, h - 2);
    }
    this.say(legend);
  }

  say(legend) {
    const key = (name, text) => {
      const box = el('span', { class: 'swatch' });
      box.style.background = `var(--${name})`;
      return el('span', { class: 'key' }, box, text);
    };
    const caches = (this.seen?.copies ?? 0) > 0;
    const keys =
      this.by === 'heat'
        ? [el('span', { class: 'key' }, 'a week ago or more', el('span', { class: 'ramp' }), 'now (logarithmic)')]
        : [
            ...Array.from({ length: this.tiers }, (_, t) => key(tierColour(t, this.tiers), `home on the ${tierName(t, this.tiers)}`)),
            ...(caches ? [key('copy', 'copy on a faster tier'), key('dirty', 'copy newer than its home')] : []),
            key('held', 'moving'),
          ];
    legend.replaceChildren(...keys, key('none', 'nothing written'));
    const s = this.seen;
    if (!s) return;
    const of = (n) => percent(s.looked > 0 ? n / s.looked : null);
    const range = s.from === 0 && s.to === s.extents ? `The whole volume, ${bytes(s.extents * s.extent_bytes)}` : `${bytes(s.from * s.extent_bytes)} to ${bytes(s.to * s.extent_bytes)} of ${bytes(s.extents * s.extent_bytes)}`;
    const tiers = s.by_tier.map((n, t) => `${of(n)} read from the ${tierName(t, this.tiers)}`).join(', ');
    const cells = s.to - s.from === s.cells ? 'a cell is one extent' : `a cell is ${count((s.to - s.from) / s.cells)} extents`;
    const sampled = s.step > 1 ? `; one extent of ${s.step} was looked at` : '';
    const dirty = s.dirty > 0 ? `, ${of(s.dirty)} newer than at home` : '';
    const text = `${range}: ${of(s.mapped)} holds data; ${tiers}${dirty}. ${cells[0].toUpperCase()}${cells.slice(1)} (${bytes(s.extent_bytes)} each)${sampled}.`;
    if (this.parts.summary.textContent !== text) this.parts.summary.textContent = text;
    this.parts.map.setAttribute('aria-label', `Map of the volume, ${this.by === 'heat' ? 'by last use' : 'by tier'}`);
  }

  key(e) {
    const g = this.grid();
    const at = this.cursor ?? 0;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -g.columns, ArrowDown: g.columns };
    if (e.key in steps) this.choose(Math.max(0, Math.min(g.n - 1, this.cursor === null ? 0 : at + steps[e.key])), false);
    else if (e.key === 'Home') this.choose(0, false);
    else if (e.key === 'End') this.choose(g.n - 1, false);
    else if (e.key === 'Enter' || e.key === ' ') this.choose(at, true);
    else if (e.key === '+' || e.key === '=') this.zoom(0.5, this.extentOf(at));
    else if (e.key === '-') this.zoom(2, this.extentOf(at));
    else if (e.key === '0') this.range(0, this.extents);
    else return;
    e.preventDefault();
  }

  /// A cell is chosen: say what it is, or ask why it is so.
  async choose(cell, ask) {
    if (!this.seen) return;
    this.cursor = cell;
    this.draw();
    const { why } = this.parts;
    const extent = this.extentOf(cell);
    const offset = extent * this.extentBytes;
    const value = this.seen.place[cell];
    const brief =
      value === NOTHING ? 'nothing written here' : `read from the ${tierName(value & 7, this.tiers)}${value & DIRTY ? ', newer than its home' : value & COPY ? ', a copy' : ''}`;
    why.hidden = false;
    const head = el('p', {}, el('strong', {}, `Byte ${offset.toLocaleString()} (${bytes(offset)})`), `: ${brief}.`);
    why.replaceChildren(head);
    if (!ask) return;
    try {
      const w = await this.explain(offset);
      if (this.cursor !== cell) return;
      const lines = [el('p', {}, el('strong', {}, `Extent ${w.extent}, from byte ${(w.extent * w.extent_bytes).toLocaleString()}`), w.mapped ? '' : ': nothing was ever written there.')];
      if (w.mapped) {
        lines.push(el('p', {}, `Home: ${tierName(w.tier, this.tiers)}, ${w.member ?? 'a member that is gone'}, byte ${w.member_offset?.toLocaleString()}; ${w.valid_blocks} of ${w.blocks} blocks were written.`));
        if (w.copy) lines.push(el('p', {}, `Copy: ${tierName(w.copy.tier, this.tiers)}, ${w.copy.member}; ${w.copy.blocks} blocks, ${w.copy.dirty_blocks} of them newer than at home.`));
        lines.push(el('p', {}, `Last used ${ago(w.last_access_age_s)}${w.moving ? '; it is moving now' : ''}.`));
      }
      lines.push(el('p', {}, `${w.policy} says: ${w.why}`));
      why.replaceChildren(...lines);
    } catch (e) {
      why.append(el('p', { class: 'bad' }, e.message));
    }
  }
}
