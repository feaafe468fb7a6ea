// Curves over time, on a canvas; a table says the same.

import { colour, el } from './words.js';

/// Seconds without a point after which a curve has a gap.
const GAP = 12;
/// Seconds that are shown: the least that hold all points.
const SPANS = [120, 300, 600];

function ceilingOf(max) {
  if (!(max > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 2.5, 5, 10].map((f) => f * power).find((n) => n >= max * 1.02) ?? 10 * power;
}

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export class Chart {
  /// `series`: [{ name, colour, at: index in a point }]; `words` prints a value.
  constructor(host, table, button, name, series, words) {
    Object.assign(this, { host, table, name, series, words, points: [], cursor: null });
    this.canvas = el('canvas', { tabindex: '0', role: 'img', 'aria-label': name });
    this.tip = el('div', { class: 'tip', role: 'status', hidden: true });
    this.keys = el('div', { class: 'keys-line' });
    host.append(this.canvas, this.tip, this.keys);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener('pointermove', (e) => this.point(e.offsetX / this.canvas.clientWidth));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('keydown', (e) => this.key(e));
    button.addEventListener('click', () => {
      table.hidden = !table.hidden;
      button.setAttribute('aria-expanded', String(!table.hidden));
      this.fill();
    });
  }

  show(points, series = this.series, words = this.words) {
    Object.assign(this, { points, series, words });
    this.draw();
    this.fill();
  }

  /// Those within the span, and where it begins and ends.
  visible() {
    const to = this.points.at(-1)?.[0] ?? Date.now() / 1000;
    const span = SPANS.find((s) => to - (this.points[0]?.[0] ?? to) <= s) ?? SPANS.at(-1);
    const from = to - span;
    return { from, to, points: this.points.filter((p) => p[0] >= from) };
  }

  draw() {
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (w === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(w * ratio);
    this.canvas.height = Math.round(h * ratio);
    const c = this.canvas.getContext('2d');
    c.scale(ratio, ratio);
    c.font = '12px system-ui, "DejaVu Sans", sans-serif';
    const { from, to, points } = this.visible();
    let max = 0;
    for (const p of points) for (const s of this.series) max = Math.max(max, p[s.at] ?? 0);
    const top = ceilingOf(max);
    const [left, right, above, below] = [68, 8, 8, 20];
    const x = (t) => left + ((t - from) / (to - from)) * (w - left - right);
    const y = (v) => above + (1 - v / top) * (h - above - below);
    this.x = x;
    c.strokeStyle = colour('line');
    c.fillStyle = colour('quiet');
    c.lineWidth = 1;
    c.textBaseline = 'middle';
    c.textAlign = 'right';
    for (const f of [0, 0.25, 0.5, 0.75, 1]) {
      const at = Math.round(y(top * f)) + 0.5;
      c.beginPath();
      c.moveTo(left, at);
      c.lineTo(w - right, at);
      c.stroke();
      if (f === 0 || f === 0.5 || f === 1) c.fillText(f === 0 ? '0' : this.words(top * f), left - 6, at);
    }
    c.textBaseline = 'alphabetic';
    const minutes = (to - from) / 60;
    const step = minutes <= 2 ? 0.5 : minutes <= 5 ? 1 : w < 480 ? 5 : 2;
    for (let m = 0; m <= minutes; m += step) {
      const at = x(to - m * 60);
      c.textAlign = m === 0 ? 'right' : m === minutes ? 'left' : 'center';
      c.fillText(m === 0 ? 'now' : m < 1 ? `${m * 60} s` : `${m} min`, at, h - 4);
    }
    for (const s of this.series) {
      c.strokeStyle = colour(s.colour);
      c.lineWidth = 1.75;
      c.lineJoin = 'round';
      c.beginPath();
      let before = null;
      for (const p of points) {
        const v = p[s.at];
        if (v === null || v === undefined) {
          before = null;
          continue;
        }
        if (before === null || p[0] - before > GAP) {
          c.moveTo(x(p[0]), y(v));
          c.lineTo(x(p[0]) + 0.5, y(v));
        } else c.lineTo(x(p[0]), y(v));
        before = p[0];
      }
      c.stroke();
    }
    if (points.length === 0) {
      c.fillStyle = colour('quiet');
      c.textAlign = 'center';
      c.fillText('the curve begins with the next second', (left + w - right) / 2, h / 2);
    }
    const here = this.cursor === null ? null : points[this.cursor];
    if (here) {
      c.strokeStyle = colour('quiet');
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(x(here[0]), above);
      c.lineTo(x(here[0]), h - below);
      c.stroke();
    }
    this.say(points, here, x);
  }

  say(points, here, x) {
    const last = points.at(-1);
    const value = (p, s) => `${s.name} ${p[s.at] === null || p[s.at] === undefined ? '–' : this.words(p[s.at])}`;
    this.canvas.setAttribute(
      'aria-label',
      `${this.name}, the last minutes. ${last ? `Now: ${this.series.map((s) => value(last, s)).join(', ')}.` : ''}`,
    );
    this.keys.replaceChildren(
      ...this.series.map((s) => {
        const box = el('span', { class: 'swatch' });
        box.style.background = `var(--${s.colour})`;
        return el('span', { class: 'key' }, box, last ? value(last, s) : s.name);
      }),
    );
    this.tip.hidden = !here;
    if (here) {
      this.tip.textContent = `${clock(here[0])}  ${this.series.map((s) => value(here, s)).join('  ')}`;
      const at = x(here[0]);
      const flip = at > this.canvas.clientWidth / 2;
      this.tip.style.left = flip ? 'auto' : `${at + 8}px`;
      this.tip.style.right = flip ? `${this.canvas.clientWidth - at + 8}px` : 'auto';
    }
  }

  point(share) {
    const { points } = this.visible();
    if (share === null || points.length === 0 || !this.x) this.cursor = null;
    else {
      const at = share * this.canvas.clientWidth;
      let best = 0;
      points.forEach((p, i) => {
        if (Math.abs(this.x(p[0]) - at) < Math.abs(this.x(points[best][0]) - at)) best = i;
      });
      this.cursor = best;
    }
    this.draw();
  }

  key(e) {
    const n = this.visible().points.length;
    if (n === 0) return;
    const at = this.cursor ?? n;
    if (e.key === 'ArrowLeft') this.cursor = Math.max(0, at - 1);
    else if (e.key === 'ArrowRight') this.cursor = Math.min(n - 1, at + 1);
    else if (e.key === 'Home') this.cursor = 0;
    else if (e.key === 'End') this.cursor = n - 1;
    else if (e.key === 'Escape') this.cursor = null;
    else return;
    e.preventDefault();
    this.draw();
  }

  fill() {
    if (this.table.hidden) return;
    const { points } = this.visible();
    const some = points.slice(-60).reverse();
    const head = el('tr', {}, el('th', { scope: 'col' }, 'Time'), ...this.series.map((s) => el('th', { scope: 'col', class: 'num' }, s.name)));
    const rows = some.map((p) =>
      el('tr', {}, el('td', {}, clock(p[0])), ...this.series.map((s) => el('td', { class: 'num' }, p[s.at] === null || p[s.at] === undefined ? '–' : this.words(p[s.at])))),
    );
    this.table.replaceChildren(
      el('table', {}, el('caption', { class: 'off' }, `${this.name}, the last minute`), el('thead', {}, head), el('tbody', {}, ...rows)),
    );
  }
}
