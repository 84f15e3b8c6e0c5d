"use strict";
// Elements, charts and controls: for the report and for the live page.
const DASHES = { "-": "", "--": "7 4", "-.": "9 3 2 3", ":": "2 3" };
const SHAPES = {
  o: "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z", s: "M-3-3h6v6h-6z",
  "^": "M0-4L3.8 3H-3.8z", v: "M0 4L3.8-3H-3.8z", D: "M0-4.2L4.2 0L0 4.2L-4.2 0z",
  P: "M-1.4-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
  X: "M0-1.7L2-3.9L3.9-2L1.7 0L3.9 2L2 3.9L0 1.7L-2 3.9L-3.9 2L-1.7 0L-3.9-2L-2-3.9z",
};

// Elements.
function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
// New contents for an element. What has not changed stays, with its focus, how far it is scrolled,
// and a click that has begun on it.
const KEPT = new Set(["DIV", "TABLE", "THEAD", "TBODY", "TR"]);
function renew(host, ...parts) {
  parts.forEach((part, i) => {
    const old = host.children[i];
    if (!old) host.append(part);
    else if (KEPT.has(old.tagName) && old.tagName === part.tagName) renew(old, ...part.children);
    else if (!old.isEqualNode(part)) old.replaceWith(part);
  });
  while (host.children.length > parts.length) host.lastElementChild.remove();
}
// On a dark page black becomes white, and deep colours become lighter.
function ink(colour) {
  if (colour === "#000000") return "var(--ink)";
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b < 85 ? `color-mix(in srgb, ${colour} var(--deep), white)` : colour;
}

// JSON has no NaN: null stands for a value that is not finite.
const numbers = (column) => column.map((v) => (v === null ? NaN : v));

// Scales and ticks.
function scale(from, to, start, end, log) {
  const f = log ? Math.log : (v) => v;
  const slope = (end - start) / (f(to) - f(from) || 1);
  const map = (v) => start + (f(v) - f(from)) * slope;
  map.invert = (p) => (log ? Math.exp : (v) => v)(f(from) + (p - start) / slope);
  return map;
}
function ticks(from, to, log, most) {
  if (log && to / from > 3) return logTicks(from, to, most);
  const raw = (to - from) / most;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = base * [1, 2, 5, 10].find((m) => m * base >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to * (1 + 1e-9); k++) found.push(k * step);
  return found;
}
function logTicks(from, to, most) {
  const decades = Math.log10(to / from);
  const every = Math.max(1, Math.ceil(decades / most));
  const parts = decades < 1 ? [1, 1.5, 2, 3, 4, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
  const found = [];
  for (let e = Math.floor(Math.log10(from)); e <= Math.log10(to); e += every)
    for (const part of parts) {
      const v = Number(`${part}e${e}`);
      if (v >= from * 0.999 && v <= to * 1.001) found.push(v);
    }
  return found;
}
function short(v, digits = 4) {
  const size = Math.abs(v);
  if (size >= 1e4 && size < 1e15) {
    const power = Math.floor(Math.log10(size) / 3 + 1e-9);
    return Number((v / 1e3 ** power).toPrecision(digits)) + [, "k", "M", "G", "T"][power];
  }
  const rounded = Number(v.toPrecision(digits));
  return size && (size < 1e-3 || size >= 1e15) ? rounded.toExponential() : String(rounded);
}
// Ticks by their names: with as many digits as it takes to tell them apart.
function named(values) {
  for (let digits = 4; ; digits++) {
    const names = values.map((v) => short(v, digits));
    if (digits >= 15 || distinct(names).length === names.length) return values.map((v, i) => [v, names[i]]);
  }
}
const precise = (v) => (Number.isNaN(v) ? "diverged" : Math.abs(v) >= 1e4 ? short(v) : v.toPrecision(4));

// A chart: lines with bands, a legend whose buttons hide lines, a read-out under the pointer.
// A line's label may change with the step size; its key does not.
function Chart(host) {
  const plot = svg("svg", { class: "plot", tabindex: 0, role: "img" });
  const legend = html("div", { class: "legend", role: "group", "aria-label": "Show or hide" });
  const readout = html("div", { class: "readout", role: "status", hidden: "" });
  host.append(legend, html("div", { class: "plotted" }, plot, readout));
  const hidden = new Set();
  let view = null, frame = null, cursor = null;

  function show(next) {
    view = next;
    if (!view.live) cursor = null; // a curve that grows keeps what is read out
    drawLegend();
    draw();
  }

  function drawLegend() {
    renew(legend, ...view.lines.map((line) => {
      const swatch = svg("svg", { width: 34, height: 12, viewBox: "0 0 34 12", "aria-hidden": "true" },
        svg("path", { d: "M1 6H33", stroke: ink(line.colour), "stroke-width": 2, "stroke-dasharray": DASHES[line.dash] }),
        svg("path", { d: SHAPES[line.marker], fill: ink(line.colour), transform: "translate(17 6)" }));
      const button = html("button", { type: "button", "data-key": line.key, "aria-pressed": !hidden.has(line.key) }, swatch, line.label);
      button.addEventListener("click", () => {
        if (!hidden.delete(line.key)) hidden.add(line.key);
        button.setAttribute("aria-pressed", !hidden.has(line.key));
        draw();
      });
      return button;
    }));
  }

  const visible = () => view.lines.filter((line) => !hidden.has(line.key) && line.x.length);

  function draw() {
    if (!view || !plot.clientWidth) return;
    const width = plot.clientWidth, height = plot.clientHeight;
    const lines = visible();
    const xs = range(lines.flatMap((l) => l.x), view.logX);
    const ys = view.yRange || yRange(lines, view.logY);
    const rows = named(ticks(...ys, view.logY, 6));
    const left = Math.max(52, ...rows.map(([, name]) => 14 + 7 * name.length));
    const area = { left, right: width - 14, top: 12, bottom: height - 42 };
    const x = scale(...xs, area.left, area.right, view.logX);
    const y = scale(...ys, area.bottom, area.top, view.logY);
    frame = { x, y, area, xs };
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.setAttribute("aria-label", `${view.yLabel} against ${view.xLabel}: ${lines.map((l) => l.label).join(", ")}. Arrow keys read values.`);
    const clip = svg("clipPath", { id: `${host.id}-clip` }, svg("rect", {
      x: area.left, y: area.top - 4, width: area.right - area.left + 5, height: area.bottom - area.top + 8 }));
    plot.replaceChildren(svg("defs", {}, clip), axes(xs, rows, width),
      svg("g", { "clip-path": `url(#${host.id}-clip)` }, ...lines.map(band), ...lines.map(curve)),
      svg("g", { class: "pointer" }));
    point();
  }

  function range(values, log) {
    const good = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    const from = good.length ? good.reduce((a, b) => Math.min(a, b)) : log ? 0.1 : 0; // too many for "..."
    const to = good.length ? good.reduce((a, b) => Math.max(a, b)) : 1;
    return from < to ? [from, to] : log ? [from / 2, from * 2] : [from - 0.5, from + 0.5];
  }

  // From the least value to the start: a diverging curve leaves the plot.
  function yRange(lines, log) {
    const start = Math.max(...lines.map((l) => l.y[0]).filter(Number.isFinite));
    const [from, to] = range(lines.flatMap((l) => [...l.low, ...l.high]), log);
    const floor = Math.min(0, from); // what "1.5 times the start" is measured from
    const top = Number.isFinite(start) && to - floor > 1.5 * (start - floor) ? floor + 1.1 * (start - floor) : to;
    if (!(top > from)) return [from, to];
    const low = from - 0.05 * (top - from);
    return log ? [from * 0.97, top * 1.03] : [from < 0 ? low : Math.max(0, low), top + 0.03 * (top - from)];
  }

  function axes(xs, rows, width) {
    const { x, y, area } = frame;
    const group = svg("g");
    for (const [v, name] of named(ticks(...xs, view.logX, Math.max(3, Math.floor(width / 110))))) {
      group.append(svg("line", { class: "grid", x1: x(v), x2: x(v), y1: area.top, y2: area.bottom }),
        svg("text", { x: x(v), y: area.bottom + 17, "text-anchor": "middle" }, name));
    }
    for (const [v, name] of rows) {
      group.append(svg("line", { class: "grid", x1: area.left, x2: area.right, y1: y(v), y2: y(v) }),
        svg("text", { x: area.left - 7, y: y(v) + 4, "text-anchor": "end" }, name));
    }
    group.append(
      svg("path", { class: "axis", fill: "none", d: `M${area.left} ${area.top}V${area.bottom}H${area.right}` }),
      svg("text", { x: area.right, y: area.bottom + 35, "text-anchor": "end" }, view.xLabel),
      svg("text", { transform: `translate(13 ${area.top}) rotate(-90)`, "text-anchor": "end" }, view.yLabel));
    return group;
  }

  const usable = (line, i, v) =>
    Number.isFinite(v) && (!view.logX || line.x[i] > 0) && (!view.logY || v > 0);

  function trace(line, values, reverse) {
    const order = [...line.x.keys()].filter((i) => usable(line, i, values[i]));
    if (reverse) order.reverse();
    return order.map((i) => {
      const at = [frame.x(line.x[i]).toFixed(1), frame.y(values[i]).toFixed(1)];
      return view.step ? `H${at[0]}V${at[1]}` : `L${at}`;
    }).join("").replace(/^L|^H([^V]*)V/, (all, x) => (x === undefined ? "M" : `M${x} `));
  }

  function band(line) {
    const lower = line.low ? trace(line, line.low, false) : "";
    if (!lower) return svg("g");
    const d = lower + trace(line, line.high, true).replace("M", "L") + "Z";
    return svg("path", { class: "band", d, fill: ink(line.colour), opacity: 0.14 });
  }

  function curve(line, place) {
    const every = Math.max(1, Math.ceil(line.x.length / 6));
    const marks = [...line.x.keys()].filter((i) => i % every === place % every && usable(line, i, line.y[i]));
    return svg("g", { "data-line": line.label },
      svg("path", { class: "curve", d: trace(line, line.y), fill: "none", stroke: ink(line.colour), "stroke-width": 2,
        "stroke-dasharray": DASHES[line.dash], "stroke-linejoin": "round" }),
      ...marks.map((i) => svg("path", { d: SHAPES[line.marker], fill: ink(line.colour),
        transform: `translate(${frame.x(line.x[i])} ${frame.y(line.y[i])})` })));
  }

  // The point of a line at the cursor: the nearest one, or for step functions the last one before.
  function at(line) {
    if (view.step) return line.x.findLastIndex((v) => v <= cursor * (1 + 1e-9));
    return line.x.reduce((best, v, i) => (Math.abs(v - cursor) < Math.abs(line.x[best] - cursor) ? i : best), 0);
  }

  function point() {
    const layer = plot.querySelector(".pointer");
    layer?.replaceChildren();
    readout.hidden = cursor === null || !visible().length;
    if (readout.hidden || !layer) return;
    const { x, y, area } = frame;
    layer.append(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: area.top, y2: area.bottom }));
    const rows = visible().map((line) => [line, at(line)]).filter(([, i]) => i >= 0);
    rows.sort(([a, i], [b, j]) => (view.step ? b.y[j] - a.y[i] : a.y[i] - b.y[j]));
    for (const [line, i] of rows)
      if (usable(line, i, line.y[i]) && !view.step)
        layer.append(svg("circle", { cx: x(line.x[i]), cy: Math.max(area.top - 4, y(line.y[i])), r: 4, fill: ink(line.colour) }));
    readout.replaceChildren(html("b", {}, `${view.xName} ${short(cursor)}`), html("table", {}, ...rows.map(row)));
    const right = x(cursor) > (area.left + area.right) / 2;
    readout.style.left = right ? "auto" : `${x(cursor) + 12}px`;
    readout.style.right = right ? `${plot.clientWidth - x(cursor) + 12}px` : "auto";
  }

  function row([line, i]) {
    const dot = svg("svg", { width: 10, height: 10, viewBox: "-5 -5 10 10" },
      svg("path", { d: SHAPES[line.marker], fill: ink(line.colour) }));
    const spread = line.low ? `${precise(line.low[i])} – ${precise(line.high[i])}` : "";
    const narrow = plot.clientWidth < 520;
    const cells = [dot, narrow ? line.key : line.label, precise(line.y[i]), ...(narrow ? [] : [spread])];
    return html("tr", {}, ...cells.map((cell) => html("td", {}, cell)));
  }

  function moveTo(value) {
    cursor = value;
    point();
  }
  const stops = () => [...new Set(visible().flatMap((l) => l.x))].filter((v) => !view.logX || v > 0).sort((a, b) => a - b);

  plot.addEventListener("pointermove", (event) => {
    if (!frame) return;
    const near = frame.x.invert(event.clientX - plot.getBoundingClientRect().left);
    const values = stops();
    if (values.length)
      moveTo(values.reduce((best, v) => (Math.abs(frame.x(v) - frame.x(near)) < Math.abs(frame.x(best) - frame.x(near)) ? v : best)));
  });
  plot.addEventListener("pointerleave", () => moveTo(null));
  plot.addEventListener("blur", () => moveTo(null));
  plot.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") moveTo(null);
    if (!move) return;
    event.preventDefault();
    const values = stops();
    const here = cursor === null ? (move > 0 ? -1 : values.length) : values.indexOf(cursor);
    moveTo(values[Math.max(0, Math.min(values.length - 1, here + move))]);
  });
  new ResizeObserver(draw).observe(plot);
  return { show };
}

// Controls. One with a single option is hidden.
function choose(parent, title, options, changed) {
  const select = html("select", {}, ...options.map(([value, label]) => html("option", { value }, label)));
  const label = html("label", {}, title, select);
  label.hidden = options.length < 2;
  select.addEventListener("change", changed);
  parent.append(label);
  return select;
}
function pills(parent, name, title, options, changed, kind = "radio") {
  const group = html("div", { class: "pills" }, ...options.map(([value, label, checked]) => {
    const input = html("input", { type: kind, name, value, ...(checked ? { checked: "" } : {}) });
    input.addEventListener("change", changed);
    return html("label", {}, input, html("span", {}, label));
  }));
  parent.append(html("fieldset", {}, html("legend", {}, title), group));
  return { get value() { return group.querySelector(":checked")?.value; },
    has: (value) => group.querySelector(`[value="${value}"]`).checked };
}
function refill(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, label]) => html("option", { value }, label)));
  if (options.some(([value]) => value === before)) select.value = before;
  select.parentElement.hidden = options.length < 2;
}
const distinct = (values) => [...new Set(values)];
