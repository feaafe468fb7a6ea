// Draws the page's charts from the JSON in it. Without this script the tables remain.
"use strict";
(() => {
  // Series also differ in dash, marker and lightness, so that the charts can be read in grey and with any kind of colour vision.
  // Colours after Paul Tol's high- and medium-contrast schemes, the light ones darkened until they show on white.
  const COLORS = {
    light: ["#004488", "#c08a00", "#bb4455", "#6699cc", "#222222", "#7a5c00", "#dd88aa", "#3a8a5f"],
    dark: ["#77aadd", "#eecc66", "#dd7788", "#f4f4f4", "#44aa99", "#b8962e", "#f3b6c6", "#9fb0c3"],
  };
  // Lightness falls from one end to the other, so that the order also shows in grey. It starts near that of the page: small counts are faint.
  const HEAT = {
    light: ["#dff2b4", "#b4dfb5", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58"],
    dark: ["#233a63", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
  };
  const DASHES = ["solid", [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [14, 4], [2, 6], [8, 3, 2, 3, 2, 3]];
  const MARKS = ["circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect", "emptyTriangle", "emptyDiamond"];
  const DECALS = [
    null,
    { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: Math.PI / 4 },
    { symbol: "circle", dashArrayX: [[8, 8], [0, 8, 8, 0]], dashArrayY: [6, 0], symbolSize: 0.6 },
    { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -Math.PI / 4 },
    { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 6], rotation: 0 },
    { symbol: "triangle", dashArrayX: [[9, 9], [0, 9, 9, 0]], dashArrayY: [7, 2], symbolSize: 0.75 },
    { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 6], rotation: Math.PI / 2 },
    { symbol: "rect", dashArrayX: [[6, 6], [0, 6, 6, 0]], dashArrayY: [6, 0] },
  ];
  const at = (list, i) => list[i % list.length];
  // Marks, dashes and patterns advance by one with each round of the colours, as in marks.rs.
  const turn = (list, i) => at(list, i + Math.floor(i / 8));

  // ---- Numbers, as unit.rs writes them ----
  const BINARY = [[1, ""], [1024, "Ki"], [1024 ** 2, "Mi"], [1024 ** 3, "Gi"], [1024 ** 4, "Ti"], [1024 ** 5, "Pi"]];
  const SI = [[1e-9, "n"], [1e-6, "µ"], [1e-3, "m"], [1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"], [1e15, "P"]];
  const TIME = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "d"]];
  function digits(v) {
    const a = Math.abs(v);
    if (a === 0) return "0";
    if (a < 1e-4 || a >= 1e15) return v.toExponential(2);
    if (a >= 99.95) return v.toFixed(0);
    const text = v.toFixed(Math.min(7, Math.max(0, 2 - Math.floor(Math.log10(a)))));
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }
  function step(steps, v, unit) {
    const a = Math.abs(v);
    if (a === 0) return unit;
    let best = steps[0];
    for (const s of steps) if (a >= s[0] * 0.999999) best = s;
    return best;
  }
  // 90 min reads better than 1.5 h.
  function timed(v) {
    let best = step(TIME.slice(0, 4), v, TIME[3]);
    for (const s of TIME.slice(4)) if (Math.abs(v) >= 2 * s[0]) best = s;
    return digits(v / best[0]) + " " + best[1];
  }
  const counted = (v, least) => {
    const s = Math.abs(v) >= least ? step(SI, v, SI[3]) : SI[3];
    return digits(v / s[0]) + s[1];
  };
  function text(axis, v) {
    if (v === null || v === undefined || !Number.isFinite(v)) return "–";
    const spaced = (number, unit) => (unit ? number + " " + unit : number);
    switch (axis.kind) {
      case "dollar": {
        const a = Math.abs(v);
        const number = a === 0 || a >= 1 ? a.toFixed(2).replace(/(\d)(?=(\d{3})+\.)/g, "$1\u202f") : digits(a);
        return (v < 0 ? "-$" : "$") + number;
      }
      case "percent": return digits(v * 100) + " %";
      case "count": return spaced(counted(v, 1e4), axis.symbol);
      case "plain": return spaced(digits(v), axis.symbol);
      case "time": return timed(v);
      case "binary": { const s = step(BINARY, v, BINARY[0]); return digits(v / s[0]) + " " + s[1] + axis.symbol; }
      default: { const s = step(SI, v, SI[3]); return digits(v / s[0]) + " " + s[1] + axis.symbol; }
    }
  }
  // The label of a value that is already divided by the axis' factor.
  function tick(axis, v) {
    if (axis.kind === "dollar") return (v < 0 ? "-$" : "$") + counted(Math.abs(v), 1e3);
    if (axis.kind === "count") return counted(v, 1e3);
    return axis.log ? text(axis, v) : digits(v);
  }
  function heading(axis) {
    const notes = [axis.kind === "dollar" ? "" : axis.unit, axis.log ? "log" : ""].filter((s) => s);
    return notes.length ? axis.label + " (" + notes.join(", ") + ")" : axis.label;
  }

  // ---- Small things ----
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => root.dataset.theme === "dark";
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  function node(tag, props, ...children) {
    const n = Object.assign(document.createElement(tag), props);
    n.append(...children);
    return n;
  }
  // Names are text, never markup.
  function tip(head, rows) {
    const body = node("table", {}, ...rows.map(([mark, name, value]) => {
      const swatch = node("td", { textContent: mark ? "■" : "" });
      if (mark) swatch.style.color = mark;
      return node("tr", {}, swatch, node("td", { textContent: name }), node("td", { textContent: value }));
    }));
    const box = node("div", { className: "tip" });
    if (head) box.append(node("b", { textContent: head }));
    box.append(body);
    return box;
  }

  function frame() {
    const [line, soft, panel, color] = [css("--line"), css("--soft"), css("--panel"), css("--text")];
    return {
      animation: false,
      textStyle: { fontFamily: "system-ui, sans-serif", color: soft },
      color: dark() ? COLORS.dark : COLORS.light,
      grid: { left: 70, right: 24, top: 44, bottom: 52 },
      tooltip: {
        confine: true, backgroundColor: panel, borderColor: line, textStyle: { color, fontSize: 13 },
        axisPointer: { lineStyle: { color: soft }, crossStyle: { color: soft } },
      },
      legend: {
        type: "scroll", top: 4, left: "center", textStyle: { color }, itemWidth: 34, inactiveColor: line,
        pageTextStyle: { color: soft }, pageIconColor: soft, pageIconInactiveColor: line,
      },
    };
  }
  // An axis that ends with the data has no label at its end, because that would not be a round number.
  function valueAxis(axis, across, more, last = !across) {
    const soft = css("--soft");
    return Object.assign({
      type: axis.log ? "log" : "value", name: heading(axis), nameLocation: "middle", nameGap: across ? 30 : 52,
      nameTextStyle: { color: css("--text"), fontSize: 13 },
      axisLine: { show: true, lineStyle: { color: css("--line") } },
      axisTick: { show: true, lineStyle: { color: css("--line") } },
      axisLabel: { color: soft, hideOverlap: true, showMaxLabel: axis.log ? null : last, formatter: (v) => tick(axis, v) },
      splitLine: { show: !across, lineStyle: { color: css("--grid") } },
    }, more);
  }
  const zoom = (axes) => axes.map((a) => ({
    type: "inside", [a]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, preventDefaultMouseMove: false,
  }));
  const shown = (axis, v) => (v === null || (axis.log && v <= 0) ? null : v / axis.factor);

  // ---- The kinds of charts ----
  function lines(c) {
    const o = frame();
    const longest = Math.max(...c.series.map((s) => s.x.length), 1);
    // A few markers per line, shifted from line to line so that they do not overlap.
    const every = Math.max(1, Math.round(longest / 9));
    const alone = c.series.length === 1;
    o.legend.show = !alone;
    if (alone) o.grid.top = 20;
    o.tooltip.trigger = "axis";
    o.tooltip.formatter = (all) => {
      const list = Array.isArray(all) ? all : [all];
      const x = list.length ? list[0].data[0] * c.x.factor : null;
      return tip(c.x.label + " " + text(c.x, x), list.map((p) => [p.color, p.seriesName, text(c.y, p.data[2])]));
    };
    o.xAxis = valueAxis(c.x, true, { min: c.x.log ? null : "dataMin", max: c.x.log ? null : "dataMax" });
    if (!c.x.log && c.series.some((s) => s.x.length && s.x[0] >= 0)) o.xAxis.min = (e) => (e.min < 0.2 * e.max ? 0 : e.min);
    o.yAxis = valueAxis(c.y, false, c.steps ? { max: 1 / c.y.factor } : {});
    o.dataZoom = zoom(["xAxisIndex"]);
    o.series = c.series.map((s, i) => {
      const some = s.x.length <= 12;
      return {
        type: "line", name: s.name, data: s.x.map((x, k) => [shown(c.x, x), shown(c.y, s.y[k]), s.y[k]]),
        stack: c.stacked ? "all" : undefined, step: c.steps ? "end" : false,
        areaStyle: c.stacked ? { opacity: 0.75 } : undefined,
        lineStyle: { width: 2, type: alone || c.stacked ? "solid" : turn(DASHES, i) },
        symbol: turn(MARKS, i), showSymbol: !(alone && !some) && !c.stacked, showAllSymbol: true,
        symbolSize: (_, p) => (some || (p.dataIndex + Math.floor(every * i / c.series.length)) % every === 0 ? 8 : 0),
        emphasis: { focus: alone ? "none" : "series" },
      };
    });
    return o;
  }
  function decal(i) {
    const d = turn(DECALS, i);
    return d && Object.assign({ color: dark() ? "rgba(0,0,0,.45)" : "rgba(255,255,255,.6)" }, d);
  }
  function bars(c) {
    const o = frame();
    const alone = c.series.length === 1;
    o.legend.show = !alone;
    o.legend.itemWidth = 26;
    if (alone) o.grid.top = 20;
    o.tooltip.trigger = "axis";
    o.tooltip.axisPointer.type = "shadow";
    o.tooltip.formatter = (list) => tip(list[0].name, list.map((p) => [p.color, p.seriesName, text(c.y, p.data && p.data.raw)]));
    const longest = Math.max(0, ...c.categories.map((s) => s.length));
    const category = {
      type: "category", data: c.categories, name: c.x_label, nameLocation: "middle", nameGap: 30,
      nameTextStyle: { color: css("--text"), fontSize: 13 }, axisLine: { lineStyle: { color: css("--line") } },
      axisTick: { show: false }, axisLabel: { color: css("--soft"), hideOverlap: true },
    };
    if (c.lying) {
      Object.assign(category, { inverse: true, name: "" });
      category.axisLabel = { color: css("--text"), interval: 0, width: 170, overflow: "truncate" };
      o.grid.left = Math.min(180, 24 + longest * 7);
      o.xAxis = valueAxis(c.y, true, { splitLine: { show: true, lineStyle: { color: css("--grid") } } });
      o.yAxis = category;
    } else {
      if (longest > 8 && c.categories.length > 6) {
        Object.assign(category.axisLabel, { rotate: 35, hideOverlap: false, interval: 0, width: 110, overflow: "truncate" });
        category.nameGap = 74;
        o.grid.bottom = 96;
      } else if (c.categories.length <= 24) {
        category.axisLabel.interval = c.categories.length > 12 ? 1 : 0;
      }
      o.xAxis = category;
      o.yAxis = valueAxis(c.y, false);
    }
    o.series = c.series.map((s, i) => ({
      type: "bar", name: s.name, stack: c.stacked ? "all" : undefined, barMaxWidth: 46, barGap: "8%",
      data: s.values.map((v) => (v === null ? null : { value: shown(c.y, v), raw: v })),
      itemStyle: { decal: alone ? undefined : decal(i), borderColor: css("--panel"), borderWidth: c.stacked ? 1 : 0 },
      label: { show: alone && c.categories.length <= 12, position: c.lying ? "right" : "top", color: css("--text"), formatter: (p) => text(c.y, p.data.raw) },
      emphasis: { focus: "series" },
    }));
    if (alone && c.lying) o.grid.right = 90;
    return o;
  }
  function heat(c, state) {
    const o = frame();
    const layers = state.layer < 0 ? c.layers : [c.layers[state.layer]];
    const cells = [];
    let most = 1;
    const columns = c.layers[0] ? c.layers[0].columns.length : 0;
    for (let x = 0; x < columns; x++) {
      for (let y = 0; y < c.cells; y++) {
        const count = layers.reduce((sum, l) => sum + (l.columns[x][y] || 0), 0);
        if (count > 0) cells.push([x, y, Math.log10(count), count]);
        most = Math.max(most, count);
      }
    }
    const ramp = dark() ? HEAT.dark : HEAT.light;
    o.legend.show = false;
    o.grid = { left: 70, right: 92, top: 14, bottom: 52 };
    // The cells need category axes, which are hidden; the visible axes with round numbers have no data.
    const hidden = (n) => ({ type: "category", show: false, data: Array.from({ length: n }, (_, i) => i) });
    const round = (axis, bin, n, across) => valueAxis(axis, across, {
      min: 0, max: (n * bin) / axis.factor, position: across ? "bottom" : "left", splitLine: { show: false },
    }, false);
    o.xAxis = [hidden(columns), round(c.x, c.x_bin, columns, true)];
    o.yAxis = [hidden(c.cells), round(c.y, c.y_bin, c.cells, false)];
    const scale = (v) => counted(Math.pow(10, v), 1e3);
    o.visualMap = {
      min: 0, max: Math.log10(most) || 1, dimension: 2, calculable: false, orient: "vertical", right: 4, top: "middle", itemHeight: 190,
      text: [scale(Math.log10(most)), "1"], textStyle: { color: css("--soft") }, inRange: { color: ramp },
    };
    o.tooltip.formatter = (p) => tip("", [
      ["", c.x.label, text(c.x, p.data[0] * c.x_bin) + " – " + text(c.x, (p.data[0] + 1) * c.x_bin)],
      ["", c.y.label, text(c.y, p.data[1] * c.y_bin) + " – " + text(c.y, (p.data[1] + 1) * c.y_bin)],
      ["", c.label, String(p.data[3])],
      ...(c.layers.length > 1 ? c.layers.map((l) => ["", "of these " + l.name, String(l.columns[p.data[0]][p.data[1]] || 0)]) : []),
    ]);
    o.series = [{ type: "heatmap", data: cells, progressive: 0, itemStyle: { borderWidth: 0 }, emphasis: { itemStyle: { borderColor: css("--text"), borderWidth: 1 } } }];
    return o;
  }
  // The points that no other point beats in both figures, by ascending x, as in Scatter::front.
  function front(c, px, py) {
    const sign = (m) => (c.metrics[m].higher ? -1 : 1);
    const all = c.points.map((p, i) => [i, p.values[px], p.values[py]]).filter((p) => p[1] !== null && p[2] !== null && !c.points[p[0]].reference)
      .map(([i, x, y]) => [i, x * sign(px), y * sign(py)]).sort((a, b) => a[1] - b[1] || a[2] - b[2] || a[0] - b[0]);
    const kept = [];
    let best = null;
    for (const p of all) {
      if (best === null || p[2] < best[2] || (p[1] === best[1] && p[2] === best[2])) { kept.push(p); best = p; }
    }
    if (sign(px) < 0) kept.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    return kept.map((p) => p[0]);
  }
  function scatter(c, state) {
    const o = frame();
    const [mx, my] = [c.metrics[state.x], c.metrics[state.y]];
    const on = front(c, state.x, state.y);
    const groups = [...new Set(c.points.map((p) => p.group))];
    const spot = (i) => {
      const v = c.points[i].values;
      return { value: [shown(mx, v[state.x]), shown(my, v[state.y])], point: i };
    };
    const better = (m) => (m.higher ? "more is better" : "less is better");
    const wide = (m) => ({ scale: true, name: heading(m) + ", " + better(m) });
    o.xAxis = valueAxis(mx, true, Object.assign(wide(mx), { splitLine: { show: true, lineStyle: { color: css("--grid") } } }));
    o.yAxis = valueAxis(my, false, wide(my));
    o.legend.data = [...groups, "front"];
    o.legend.itemWidth = 15;
    o.tooltip.trigger = "item";
    o.tooltip.formatter = (p) => {
      if (p.data.point === undefined) return "";
      const point = c.points[p.data.point];
      // Points at the same place cannot be hovered over one by one, so all of their names are shown.
      const twins = c.points.filter((q) => q !== point && q.values[state.x] === point.values[state.x] && q.values[state.y] === point.values[state.y]);
      const names = [point, ...twins.slice(0, 6)].map((q) => q.name).join("; ") + (twins.length > 6 ? "; …" : "");
      return tip(names + (on.includes(p.data.point) ? " (on the front)" : ""), c.metrics.map((m, k) => ["", m.label, text(m, point.values[k])]));
    };
    const colors = o.color;
    o.series = groups.map((g, i) => ({
      type: "scatter", name: g, symbol: turn(MARKS, i), color: at(colors, i),
      data: c.points.map((p, k) => [p, k]).filter(([p]) => p.group === g).map(([, k]) => Object.assign(spot(k), {
        symbolSize: on.includes(k) ? 15 : 9, itemStyle: { opacity: on.includes(k) ? 1 : 0.75 },
      })),
    }));
    o.series.push({
      type: "line", name: "front", data: on.map((i) => spot(i)), step: false, symbol: "circle", symbolSize: 22, z: 1,
      itemStyle: { color: "transparent", borderColor: css("--text"), borderWidth: 1.5 }, lineStyle: { color: css("--soft"), type: [4, 4], width: 1.5 }, silent: true,
    });
    return o;
  }
  const KINDS = { lines, bars, heat, scatter };

  // ---- The parts around a chart ----
  function csv(c) {
    const quote = (v) => { const s = v === null || v === undefined ? "" : String(v); return /[",\n]/.test(s) ? '"' + s.replace(/"/g, '""') + '"' : s; };
    const base = { time: "s", percent: "share of 1" };
    const named = (a) => { const unit = base[a.kind] || a.symbol; return unit ? a.label + " [" + unit + "]" : a.label; };
    let rows;
    if (c.type === "lines") rows = [["series", named(c.x), named(c.y)], ...c.series.flatMap((s) => s.x.map((x, k) => [s.name, x, s.y[k]]))];
    else if (c.type === "bars") rows = [[c.x_label, ...c.series.map((s) => s.name + " " + named(c.y))], ...c.categories.map((name, i) => [name, ...c.series.map((s) => s.values[i])])];
    else if (c.type === "heat") {
      rows = [[named(c.x), named(c.y), "part", c.label]];
      for (const l of c.layers) l.columns.forEach((col, x) => col.forEach((n, y) => { if (n > 0) rows.push([x * c.x_bin, y * c.y_bin, l.name, n]); }));
    } else rows = [["configuration", "group", ...c.metrics.map(named)], ...c.points.map((p) => [p.name, p.group, ...p.values])];
    return rows.map((r) => r.map(quote).join(",")).join("\n") + "\n";
  }
  async function copy(button, words) {
    try {
      await navigator.clipboard.writeText(words);
    } catch {
      // Not every browser lets a page from a file write to the clipboard. Then the text is selected and copied as by hand.
      const area = node("textarea", { value: words });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  const charts = [];
  function make(host) {
    const c = data.charts[Number(host.dataset.chart)];
    const state = { layer: -1, x: c.px, y: c.py };
    const tools = node("div", { className: "tools" });
    const list = node("div", { className: "front" });
    // Each bar that lies has a line for its name.
    if (c.type === "bars" && c.lying) host.style.height = Math.max(340, 100 + 17 * c.categories.length) + "px";
    // Heat maps have tens of thousands of cells, too many for SVG elements; the rest stays sharp in print.
    const view = echarts.init(host, null, { renderer: c.type === "heat" ? "canvas" : "svg" });
    const draw = () => {
      view.setOption(KINDS[c.type](c, state), true);
      if (c.type !== "scatter") return;
      const [mx, my] = [c.metrics[state.x], c.metrics[state.y]];
      const items = front(c, state.x, state.y).map((i) => {
        const p = c.points[i];
        return node("li", { textContent: p.name + ": " + text(mx, p.values[state.x]) + ", " + text(my, p.values[state.y]) });
      });
      list.replaceChildren(node("span", { textContent: "On the front (" + mx.label + ", " + my.label + "):" }), node("ol", {}, ...items));
    };
    if (c.type === "heat" && c.layers.length > 1) {
      const buttons = ["All", ...c.layers.map((l) => l.name)].map((name, i) => {
        const b = node("button", { type: "button", textContent: name });
        b.setAttribute("aria-pressed", String(i === 0));
        b.onclick = () => {
          state.layer = i - 1;
          buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === b)));
          draw();
        };
        return b;
      });
      tools.append("Show ", ...buttons);
      host.before(tools);
    }
    if (c.type === "scatter") {
      const choose = (key, label) => {
        const select = node("select", { onchange: (e) => { state[key] = Number(e.target.value); draw(); } },
          ...c.metrics.map((m, i) => node("option", { value: String(i), textContent: m.label, selected: i === state[key] })));
        return node("label", {}, label + " ", select);
      };
      tools.append(choose("x", "Across"), choose("y", "Up"));
      host.before(tools);
      host.after(list);
    }
    const details = host.closest("figure").querySelector("details");
    const button = node("button", { type: "button", className: "copy", textContent: "Copy all as CSV" });
    button.onclick = () => copy(button, csv(c));
    details.append(button);
    draw();
    host.dataset.drawn = c.type;
    charts.push({ view, draw });
  }

  const toggle = document.getElementById("theme");
  function theme(name) {
    root.dataset.theme = name;
    toggle.textContent = name === "dark" ? "Light" : "Dark";
    charts.forEach((c) => c.draw());
  }
  theme(system.matches ? "dark" : "light");
  toggle.hidden = false;
  toggle.onclick = () => theme(dark() ? "light" : "dark");
  system.addEventListener("change", () => theme(system.matches ? "dark" : "light"));
  document.querySelectorAll("[data-chart]").forEach(make);
  const fit = () => charts.forEach((c) => c.view.resize());
  addEventListener("resize", fit);
  let before = null;
  addEventListener("beforeprint", () => { before = root.dataset.theme; theme("light"); fit(); });
  addEventListener("afterprint", () => { if (before) theme(before); fit(); });
})();
