// Figures as people read them: three digits, as the program prints them in a terminal.

function scaled(n, step, units) {
  let unit = 0;
  while (n >= (Number.isInteger(n) ? step : step - 0.5) && unit + 1 < units.length) {
    n /= step;
    unit += 1;
  }
  const digits = Number.isInteger(n) && unit === 0 ? 0 : n < 9.995 ? 2 : n < 99.95 ? 1 : 0;
  return `${n.toFixed(digits)} ${units[unit]}`.trimEnd();
}

export const bytes = (n) => scaled(Math.max(0, n), 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB']);
export const rate = (n) => `${bytes(Math.floor(n))}/s`;
export const count = (n) => scaled(n, 1000, ['', 'k', 'M', 'G', 'T', 'P']);
export const percent = (n) => (n === null || n === undefined ? '–' : `${(n * 100).toFixed(1)} %`);

export function time(s) {
  if (s === null || s === undefined) return '–';
  if (s <= 0) return '0';
  if (s < 1e-3) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 9.995e-3 ? 2 : s < 99.95e-3 ? 1 : 0)} ms`;
  if (s < 90) return `${s.toFixed(1)} s`;
  const minutes = Math.round(s / 60);
  const [d, h, m] = [Math.floor(minutes / 1440), Math.floor(minutes / 60) % 24, minutes % 60];
  if (d > 0) return `${d} d ${h} h`;
  return h > 0 ? `${h} h ${m} min` : `${m} min`;
}

export function ago(s) {
  if (s === null || s === undefined) return 'never';
  return s < 1.5 ? 'just now' : `${s < 90 ? `${Math.round(s)} s` : time(s)} ago`;
}

export function years(n) {
  if (n === null || n === undefined) return '–';
  if (n > 100) return '> 100 years';
  return n < 1 ? `${(n * 12).toFixed(1)} months` : `${n.toFixed(1)} years`;
}

/// Elements without markup from data: what a volume is called is never read as HTML.
export function el(name, attributes = {}, ...inside) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) {
    if (v === null || v === undefined || v === false) continue;
    if (k === 'class') e.className = v;
    else if (k in e && typeof v !== 'string') e[k] = v;
    else e.setAttribute(k, v === true ? '' : v);
  }
  e.append(...inside.filter((x) => x !== null && x !== undefined));
  return e;
}

/// A colour of app.css, as it is now.
let probe = null;
export function colour(name) {
  probe ??= document.body.appendChild(el('span', { class: 'off', 'aria-hidden': 'true' }));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export const tierColour = (tier, tiers) => (tier === 0 ? 't0' : tier === tiers - 1 ? 'slow' : `t${Math.min(tier, 3)}`);
export const tierName = (tier, tiers) =>
  tiers === 1 ? 'the only tier' : tier === 0 ? 'fast tier' : tier === tiers - 1 ? 'slow tier' : `tier ${tier}`;
