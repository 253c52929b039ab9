"use strict";
// Tables whose rows are reused. Whatever a caller named is written as a text node, isolated in direction, never as markup.

function cut(text) {
  const whole = String(text === undefined || text === null ? "" : text);
  return whole.length > 120 ? whole.slice(0, 119) + "…" : whole;
}

// A cell is a text, or { name }, { text, note }, { bars: [[share, class], ..] }.
function fill(node, cell) {
  const kind = typeof cell !== "object" ? "text" : cell.bars ? "bars" : cell.name !== undefined ? "name" : "noted";
  if (node.dataset.kind !== kind) {
    node.replaceChildren();
    node.dataset.kind = kind;
    node.className = kind === "bars" ? "bar" : "";
    if (kind === "name") node.append(document.createElement("bdi"));
    if (kind === "noted") node.append(document.createTextNode(""), document.createElement("small"));
    if (kind === "bars") svg("rect", { class: "track", width: "100%", height: "100%", rx: 2 }, svg("svg", { class: "share", "aria-hidden": "true" }, node));
  }
  if (kind === "text") return say(node, String(cell));
  if (kind === "name") {
    say(node.firstChild, cut(cell.name));
    return set(node, { title: cut(cell.name) });
  }
  if (kind === "noted") {
    if (node.firstChild.data !== cell.text) node.firstChild.data = cell.text;
    return say(node.lastChild, cell.note || "");
  }
  bars(node.firstChild, cell.bars, 1);
}

// Parts of a whole beside each other, after `skip` nodes that stay.
function bars(root, parts, skip) {
  while (root.childNodes.length < parts.length + skip) svg("rect", { height: "100%", rx: 1 }, root);
  let from = 0;
  for (let i = skip; i < root.childNodes.length; i++) {
    const [share, cls] = parts[i - skip] || [0, ""];
    const width = Math.max(0, Math.min(num(share), 1 - from));
    set(root.childNodes[i], { class: cls, x: (from * 100).toFixed(2) + "%", width: (width * 100).toFixed(2) + "%" });
    from += width;
  }
}

// Head and rows of a table; `rows` holds lists of cells, `faint` the numbers of rows that are asides.
function table(node, head, rows, faint) {
  if (head && !node.tHead) {
    const line = node.createTHead().insertRow();
    for (const text of head) {
      const cell = document.createElement("th");
      cell.scope = "col";
      line.append(cell);
      say(cell, text);
    }
  }
  const body = node.tBodies[0] || node.createTBody();
  rows.forEach((cells, index) => {
    const row = body.rows[index] || body.insertRow();
    row.className = faint && faint.has(index) ? "faint" : "";
    cells.forEach((cell, column) => fill(row.cells[column] || row.insertCell(), cell));
    while (row.cells.length > cells.length) row.deleteCell(-1);
  });
  while (body.rows.length > rows.length) body.deleteRow(-1);
}

// Terms with their numbers, in the order given.
function tiles(list, items) {
  items.forEach(([term, value, note, bad], index) => {
    let box = list.children[index];
    if (!box) {
      box = document.createElement("div");
      const number = document.createElement("dd");
      number.append(document.createTextNode(""), document.createElement("small"));
      box.append(document.createElement("dt"), number);
      list.append(box);
    }
    say(box.firstChild, term);
    const number = box.lastChild;
    if (number.firstChild.data !== value) number.firstChild.data = value;
    say(number.lastChild, note || "");
    number.className = bad ? "bad" : "";
  });
}

// One block for each limiter: requests over time, its levels, its endpoints, and who was refused most.
class LimiterBlock {
  constructor(parent) {
    const make = (name, cls) => Object.assign(document.createElement(name), { className: cls || "" });
    this.root = make("div", "levels");
    this.title = make("h3");
    this.name = make("bdi");
    this.note = make("small", "note");
    this.title.append(this.name, " ", this.note);
    const pair = make("div", "pair"), left = make("div"), right = make("div"), levels = make("div", "scroll");
    this.levels = make("table"); this.endpoints = make("table"); this.keys = make("table");
    this.legend = make("p", "legend"); this.spark = make("div", "chart spark");
    levels.append(this.levels);
    left.append(levels, this.endpoints);
    right.append(this.legend, this.spark, this.keys);
    pair.append(left, right);
    this.root.append(this.title, pair);
    parent.append(this.root);
    this.chart = new Chart(this.spark, this.legend, "Requests per second");
  }
  show(limiter, now) {
    this.root.hidden = false;
    say(this.name, cut(limiter.name));
    const flow = flowOf(limiter), verdicts = limiter.verdicts || {};
    const alone = num(verdicts.error_allowed) + num(verdicts.error_rejected);
    say(this.note, `${format.rate(flow.offered)}/s, ${format.share(flow.refused_share)} refused` + (alone ? `, ${format.count(alone)} decided without the store` : ""));
    const points = limiter.trend || [];
    const top = niceTop(points.reduce((most, point) => Math.max(most, num(point.offered)), 0));
    this.chart.show({ ...stretch(points, now), points, top, series: [
      { key: "offered", label: "requests", cls: "c-offered", area: true }, { key: "refused", label: "refused", cls: "c-refused" } ] });
    table(this.levels, ["level", "used", "", "left", "refused", "keys", "limit"], (limiter.levels || []).map(level => [
      { name: level.name }, level.shared ? (Number.isFinite(level.usage) ? format.share(level.usage) : "–") : "each key",
      { bars: level.shared ? [[num(level.usage), num(level.usage) > 0.9 ? "c-refused" : "c-departed"]] : [] },
      level.shared && Number.isFinite(level.available) ? format.count(level.available) : "–", format.count(level.refused),
      Number.isFinite(level.keys) ? { text: format.count(level.keys), note: Number.isFinite(level.max_keys) ? "of " + format.count(level.max_keys) : "" } : "–",
      cut(level.limit || "") ]));
    const endpoints = (limiter.endpoints || []).slice(0, 8);
    this.endpoints.hidden = endpoints.length < 2;
    table(this.endpoints, ["endpoint", "allowed", "refused"], endpoints.map(({ name, verdicts: v = {} }) => [
      { name }, format.count(num(v.allowed) + num(v.exempt) + num(v.error_allowed)), format.count(num(v.rejected) + num(v.error_rejected)) ]));
    const keys = (limiter.top_refused || []).flatMap(top => (top.keys || []).slice(0, 6).map(key => [
      { name: key.key }, { name: top.level },
      { text: format.count(key.guaranteed), note: key.at_most > key.guaranteed ? "to " + format.count(key.at_most) : "" },
      { bars: [[num(key.guaranteed) / Math.max(1, num(top.refusals)), "c-refused"]] } ]));
    this.keys.hidden = !keys.length;
    table(this.keys, ["refused most, last minute", "level", "times", ""], keys);
  }
}

// Per-second numbers: of ten seconds where there are so many, else of what there is.
function flowOf(view) {
  const flows = view.flows || [];
  return flows.find(flow => flow.over_seconds > 5 && flow.over_seconds < 30) || flows[0] || {};
}
