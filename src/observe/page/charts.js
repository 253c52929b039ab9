"use strict";
// Hand-drawn charts. Nodes are made once and changed afterwards, so that a page left open for days does not grow.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 44, RIGHT = 6, TOP = 8, BOTTOM = 18, STRIP = 4;

function svg(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(node);
  return node;
}
function set(node, attributes) {
  for (const key in attributes) {
    const value = String(attributes[key]);
    if (node.getAttribute(key) !== value) node.setAttribute(key, value);
  }
}
function say(node, text) { if (node.textContent !== text) node.textContent = text; }

// As many nodes as are asked for: those at hand first, new ones after, the rest hidden.
class Pool {
  constructor(make) { this.make = make; this.nodes = []; this.used = 0; }
  reset() { this.used = 0; }
  next() {
    if (this.used === this.nodes.length) this.nodes.push(this.make());
    const node = this.nodes[this.used++];
    node.removeAttribute("visibility");
    return node;
  }
  done() { for (let i = this.used; i < this.nodes.length; i++) this.nodes[i].setAttribute("visibility", "hidden"); }
}

const plainNumber = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const num = value => (Number.isFinite(value) ? value : 0);
const format = {
  count(value) {
    const n = num(value);
    if (n < 1e6) return plainNumber.format(n);
    const [size, unit] = n < 1e9 ? [1e6, "M"] : n < 1e12 ? [1e9, "G"] : [1e12, "T"];
    return (n / size).toPrecision(3) + " " + unit;
  },
  rate(value) {
    const n = num(value);
    if (n === 0) return "0";
    return n >= 100 ? format.count(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
  },
  share(value) {
    const n = num(value) * 100;
    return (n > 0 && n < 0.1 ? "<0.1" : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1)) + " %";
  },
  time(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    const s = Math.max(0, seconds);
    if (s === 0) return "0 s";
    if (s < 1e-3) return (s * 1e6).toFixed(0) + " µs";
    if (s < 0.01) return (s * 1e3).toFixed(1) + " ms";
    if (s < 1) return (s * 1e3).toFixed(0) + " ms";
    if (s < 10) return s.toFixed(2) + " s";
    if (s < 120) return s.toFixed(0) + " s";
    if (s < 7200) return (s / 60).toFixed(0) + " min";
    return s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(0) + " days";
  },
  ago(seconds) { return seconds < 1 ? "now" : "−" + (seconds < 60 ? seconds + " s" : seconds / 60 + " min"); },
};
function niceTop(most) {
  if (!(most > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map(n => n * size).find(n => n >= most * 1.0001) || 10 * size;
}

// One crosshair for all charts: a time, or none.
const cursor = { at: null, charts: [], move(at) { this.at = at; for (const chart of this.charts) chart.mark(); } };

class Chart {
  constructor(box, legend, name) {
    this.box = box; this.legend = legend; this.name = name; this.data = null; this.labels = new Map(); this.paths = new Map();
    this.root = svg("svg", { role: "img", tabindex: 0, "aria-label": name }, box);
    const group = () => svg("g", { "aria-hidden": "true" }, this.root);
    const [grid, bands, shapes, rules, words] = [group(), group(), group(), group(), group()];
    this.shapes = shapes;
    this.lines = new Pool(() => svg("line", { class: "grid-line" }, grid));
    this.bands = new Pool(() => svg("rect", { class: "band" }, bands));
    this.rules = new Pool(() => svg("line", { class: "rule" }, rules));
    this.words = new Pool(() => svg("text", {}, words));
    this.cross = svg("line", { class: "cross", visibility: "hidden" }, this.root);
    this.root.addEventListener("pointermove", event => this.point(event.clientX));
    this.root.addEventListener("pointerdown", event => this.point(event.clientX));
    this.root.addEventListener("pointerleave", () => cursor.move(null));
    this.root.addEventListener("blur", () => cursor.move(null));
    this.root.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(box);
    cursor.charts.push(this);
  }
  show(data) { this.data = data; this.draw(); }
  x(at) { const d = this.data; return LEFT + (at - d.from) / (d.to - d.from) * (this.width - LEFT - RIGHT); }
  y(value) { return this.floor - Math.min(value / this.data.top, 1.02) * (this.floor - TOP); }
  draw() {
    const d = this.data;
    this.width = this.box.clientWidth; this.height = this.box.clientHeight;
    if (!d || this.width < LEFT + 40 || this.height < 40) return;
    this.floor = this.height - BOTTOM - (d.band ? STRIP + 3 : 0);
    set(this.root, { viewBox: `0 0 ${this.width} ${this.height}` });
    for (const pool of [this.lines, this.bands, this.rules, this.words]) pool.reset();
    this.scales();
    this.curves();
    if (d.band) this.strip();
    for (const rule of d.rules || []) {
      if (!(rule.value <= d.top)) continue;
      const y = this.y(rule.value);
      set(this.rules.next(), { class: "rule " + (rule.solid ? "solid " : "") + rule.cls, x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y });
    }
    for (const pool of [this.lines, this.bands, this.rules, this.words]) pool.done();
    this.mark();
  }
  scales() {
    const d = this.data, rows = this.floor > 120 ? 4 : 2;
    for (let row = 0; row <= rows; row++) {
      const value = d.top * row / rows, y = this.y(value);
      set(this.lines.next(), { class: row ? "grid-line" : "base", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y });
      const word = this.words.next();
      set(word, { x: LEFT - 6, y: y + 4, "text-anchor": "end" });
      say(word, value >= 10 || Number.isInteger(value) ? format.count(value) : value.toFixed(1));
    }
    const span = d.to - d.from, step = [10, 15, 30, 60].find(step => span / step * 74 <= this.width - LEFT) || 60;
    for (let back = 0; back <= span + 0.01; back += step) {
      const word = this.words.next();
      const x = this.x(d.to - back);
      set(word, { x, y: this.height - 4, "text-anchor": back === 0 ? "end" : back + step > span ? "start" : "middle" });
      say(word, format.ago(back));
    }
  }
  curves() {
    const d = this.data, points = d.points;
    for (const one of d.series) {
      let pair = this.paths.get(one.key);
      if (!pair) {
        pair = { area: one.area ? svg("path", { class: "area " + one.cls }, this.shapes) : null, line: svg("path", { class: "curve " + one.cls }, this.shapes) };
        this.paths.set(one.key, pair);
      }
      let line = "";
      for (let i = 0; i < points.length; i++) {
        line += (i ? "L" : "M") + this.x(points[i].at_seconds).toFixed(1) + " " + this.y(num(points[i][one.key])).toFixed(1);
      }
      set(pair.line, { d: line });
      if (!pair.area) continue;
      const ends = points.length ? `L${this.x(points[points.length - 1].at_seconds).toFixed(1)} ${this.floor}L${this.x(points[0].at_seconds).toFixed(1)} ${this.floor}Z` : "";
      set(pair.area, { d: line + ends });
    }
  }
  // The ladder's states as a strip below the floor; equal neighbours are one.
  strip() {
    const points = this.data.points;
    for (let i = 0; i < points.length;) {
      let end = i + 1;
      while (end < points.length && points[end].pressure === points[i].pressure) end++;
      const from = i ? this.x(points[i - 1].at_seconds) : Math.max(LEFT, this.x(points[0].at_seconds - 1));
      const to = this.x(points[end - 1].at_seconds);
      set(this.bands.next(), { class: "band c-" + stateOf(points[i].pressure), x: from, width: Math.max(0, to - from), y: this.floor + 3, height: STRIP });
      i = end;
    }
  }
  nearest() {
    const points = this.data.points;
    if (!points.length) return null;
    if (cursor.at === null) return points[points.length - 1];
    return points.reduce((best, point) => (Math.abs(point.at_seconds - cursor.at) < Math.abs(best.at_seconds - cursor.at) ? point : best));
  }
  // Crosshair and the numbers under it; without one, the latest.
  mark() {
    const d = this.data;
    if (!d || !this.width) return;
    const point = this.nearest();
    if (cursor.at === null || !point) this.cross.setAttribute("visibility", "hidden");
    else {
      const x = this.x(point.at_seconds);
      set(this.cross, { visibility: "visible", x1: x, x2: x, y1: TOP, y2: this.floor });
    }
    const parts = d.series.map(one => [one.key, one.label, one.cls, point ? format.count(point[one.key]) : "–"]);
    for (const rule of d.rules || []) parts.push([rule.key, rule.label, rule.cls + (rule.solid ? "" : " dash"), format.rate(rule.value)]);
    parts.push(["time", cursor.at === null || !point ? "" : format.ago(Math.max(0, Math.round(d.to - point.at_seconds))), "time", ""]);
    const seen = new Set();
    for (const [key, label, cls, value] of parts) {
      seen.add(key);
      let item = this.labels.get(key);
      if (!item) {
        const span = document.createElement("span"), word = document.createTextNode(""), bold = document.createElement("b");
        span.append(word, " ", bold);
        this.legend.append(span);
        item = { span, word, bold };
        this.labels.set(key, item);
      }
      if (item.span.className !== cls) item.span.className = cls;
      if (item.word.data !== label) item.word.data = label;
      say(item.bold, value);
      item.span.hidden = false;
    }
    for (const [key, item] of this.labels) if (!seen.has(key)) item.span.hidden = true;
    set(this.root, { "aria-label": this.name + ": " + parts.filter(part => part[3]).map(part => part[1] + " " + part[3]).join(", ") + ". Arrow keys look back." });
  }
  point(clientX) {
    if (!this.data || !this.data.points.length) return;
    const d = this.data, x = clientX - this.root.getBoundingClientRect().left;
    cursor.move(d.from + (x - LEFT) / (this.width - LEFT - RIGHT) * (d.to - d.from));
  }
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") return cursor.move(null);
    if (!step || !this.data || !this.data.points.length) return;
    event.preventDefault();
    const points = this.data.points;
    const now = cursor.at === null ? points[points.length - 1].at_seconds : cursor.at;
    cursor.move(Math.min(this.data.to, Math.max(points[0].at_seconds, now + step)));
  }
}

const stateOf = pressure => (pressure === "elevated" || pressure === "overloaded" ? pressure : "healthy");
// The stretch of time that a trend needs: one of a few, so that the scale seldom jumps.
function stretch(points, now) {
  const to = points.length ? points[points.length - 1].at_seconds : num(now);
  const span = points.length ? to - points[0].at_seconds : 0;
  return { from: to - ([60, 120, 300].find(size => span <= size) || 300), to };
}
