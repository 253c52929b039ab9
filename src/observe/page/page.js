"use strict";
// Asks for the snapshot once a second and shows it; writes text nodes and attributes, never markup.

const $ = id => document.getElementById(id);
const EVERY = 1000, PATIENCE = 5000, LONGEST = 8000;
const beside = document.body.dataset.beside;
const depth = new Chart($("depth"), $("depth-legend"), "Depth over time");
const flow = new Chart($("flow"), $("flow-legend"), "Jobs per second over time");
const held = new Chart($("held"), $("held-legend"), "Offers in line and jobs in flight over time");
const blocks = [], tabs = [];
let last = null, lastAt = 0, failures = 0, isHeld = false, chosen = "", timer = 0;
try { chosen = decodeURIComponent(location.hash.slice(1)); } catch { chosen = ""; }

function perSecond(text) {
  const parts = /^(\d+)\/(\d*)(ns|us|ms|s|min|h|hour|day|d)$/.exec(String(text || ""));
  if (!parts) return null;
  const unit = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, hour: 3600, day: 86400, d: 86400 }[parts[3]];
  return Number(parts[1]) / (Number(parts[2] || 1) * unit);
}

function sentence(queue, rate) {
  const parts = [];
  if (queue.closed) parts.push("Closed: it takes no more offers.");
  if (typeof queue.paused === "string") parts.push("Departures are held: " + cut(queue.paused) + ".");
  else if (queue.health === "red") parts.push("There is work and nothing starts: consumers are gone, stuck, or hold every place in flight.");
  if (!queue.closed) {
    if (queue.pressure === "overloaded") parts.push("Offers are refused at once, and told when to come back.");
    else if (queue.pressure === "elevated") parts.push("Who cannot wait is refused; " + format.count(queue.waiting) + " stand in line.");
    else parts.push("Offers are admitted at once.");
  }
  if (rate && queue.depth > 0 && typeof queue.paused !== "string") parts.push("What is queued takes " + format.time(queue.depth / rate) + " to leave.");
  return parts.join(" ");
}

function showNow(queue) {
  const rate = perSecond(queue.rate_now || queue.rate), now = flowOf(queue), state = stateOf(queue.pressure);
  set($("state"), { "data-state": state });
  say($("pressure"), state);
  say($("since"), "for " + format.time(queue.pressure_for_seconds));
  say($("says"), sentence(queue, rate));
  const of = most => (Number.isFinite(most) ? "of " + format.count(most) : "");
  const waits = queue.waits || {}, share = now.offered > 0 ? now.refused / now.offered : 0;
  tiles($("tiles"), [
    ["Offered /s", format.rate(now.offered)],
    ["Admitted /s", format.rate(now.admitted)],
    ["Leaving /s", format.rate(now.departed), rate ? "of " + format.rate(rate) : "no rate"],
    ["Refused /s", format.rate(now.refused), format.share(share), now.refused > 0],
    ["Done /s", format.rate(now.acked)],
    ["Depth", format.count(queue.depth), of(queue.max_depth), queue.depth >= queue.high],
    ["In line", format.count(queue.waiting), of(queue.max_waiters)],
    ["In flight", format.count(queue.in_flight), of(queue.max_in_flight)],
    ["Wait p99", format.time(waits.p99_seconds ?? NaN), waits.count ? "p50 " + format.time(waits.p50_seconds ?? NaN) : ""],
    ["Oldest waits", format.time(queue.oldest_wait_seconds ?? NaN)],
    ["Put back", format.count((queue.ledger || {}).requeued)],
    ["Dead letters", format.count(queue.dead_letters), queue.dead_letters_lost ? format.count(queue.dead_letters_lost) + " lost" : "", queue.dead_letters_lost > 0],
  ]);
}

function showCharts(queue, now) {
  const points = queue.trend || [], span = stretch(points, now), rate = perSecond(queue.rate_now || queue.rate);
  const most = (...keys) => points.reduce((top, point) => Math.max(top, ...keys.map(key => num(point[key]))), 0);
  const deepest = Math.max(most("depth"), num(queue.depth)), bound = num(queue.max_depth);
  // The bound is part of the picture, unless the curve would be a flat line below it.
  const top = deepest * 12 >= bound ? Math.max(bound, deepest) : niceTop(deepest * 1.5);
  depth.show({ ...span, points, top, band: true,
    series: [{ key: "depth", label: "depth", cls: "c-held", area: true }],
    rules: [{ key: "low", label: "low mark", cls: "c-mark", value: num(queue.low) }, { key: "high", label: "high mark", cls: "c-elevated", value: num(queue.high) },
      { key: "bound", label: "bound", cls: "c-overloaded", value: bound, solid: true }] });
  flow.show({ ...span, points, top: niceTop(Math.max(most("offered", "departed"), rate || 0)),
    series: [{ key: "offered", label: "offered", cls: "c-offered", area: true }, { key: "refused", label: "refused", cls: "c-refused" },
      { key: "admitted", label: "admitted", cls: "c-line" }, { key: "departed", label: "leaving", cls: "c-departed" }],
    rules: rate ? [{ key: "rate", label: "rate", cls: "c-departed", value: rate }] : [] });
  held.show({ ...span, points, top: niceTop(most("waiting", "in_flight")),
    series: [{ key: "waiting", label: "in line", cls: "c-line", area: true }, { key: "in_flight", label: "in flight", cls: "c-departed" }], rules: [] });
}

const PLACES = [["queued", "c-held"], ["reserved", "c-held"], ["in_flight", "c-departed"], ["waiting", "c-line"], ["acked", "c-departed"], ["refused", "c-refused"],
  ["expired", "c-refused"], ["evicted", "c-refused"], ["failed", "c-refused"], ["abandoned", "c-refused"], ["cancelled", "c-offered"],
  ["cancelled_waiting", "c-offered"], ["returned", "c-offered"]];
const words = name => String(name).replaceAll("_", " ");
const whereTable = document.createElement("table");
$("where").append(whereTable);

function showTables(queue) {
  const ledger = queue.ledger || {}, offered = Math.max(1, num(ledger.offered));
  const times = [["wait to start", queue.waits], ["in flight", queue.processing]];
  const longest = Math.max(1e-9, ...times.map(([, t]) => num(t && t.p99_seconds)));
  table($("waits"), ["", "p50", "p90", "p99", ""], times.map(([name, t]) => {
    const time = t || {}, [p50, p90, p99] = [time.p50_seconds, time.p90_seconds, time.p99_seconds].map(seconds => seconds ?? NaN);
    const [a, b, c] = [p50, p90, p99].map(seconds => num(seconds) / longest);
    return [name, format.time(p50), format.time(p90), format.time(p99), { bars: [[a, "c-departed"], [b - a, "c-line"], [c - b, "c-refused"]] }];
  }));
  const places = PLACES.filter(([name]) => num(ledger[name]) > 0);
  table(whereTable, null, [[{ text: "offered", note: "" }, format.count(ledger.offered), { bars: [[1, "c-offered"]] }],
    ...places.map(([name, cls]) => [{ text: words(name), note: "" }, format.count(ledger[name]), { bars: [[ledger[name] / offered, cls]] }])]);
  const reasons = Object.entries(queue.refused_by_reason || {}).sort((a, b) => b[1] - a[1]).slice(0, 12);
  const all = Math.max(1, reasons.reduce((sum, [, count]) => sum + num(count), 0));
  table($("reasons"), null, reasons.length ? reasons.map(([reason, count]) => [words(reason), format.count(count), { bars: [[count / all, "c-refused"]] }]) : [["none so far"]]);
  const lanes = (queue.lanes || []).slice().reverse();
  const cells = l => [format.count(num(l.queued) + num(l.reserved)), format.count(l.in_flight), format.count(l.offered), format.count(l.acked), format.count(l.refused)];
  const got = l => ({ bars: [[num(l.acked) / Math.max(1, num(l.offered)), "c-departed"], [num(l.refused) / Math.max(1, num(l.offered)), "c-refused"]] });
  const head = name => [name, "queued", "in flight", "offered", "done", "refused", ""];
  table($("lanes"), head("lane"), lanes.map(lane => [words(lane.priority), ...cells(lane.ledger || {}), got(lane.ledger || {})]),
    new Set(lanes.flatMap((lane, index) => (num((lane.ledger || {}).offered) ? [] : [index]))));
  const tenants = queue.tenants || [];
  $("tenants-box").hidden = !tenants.length;
  if (!tenants.length) return;
  say($("tenants-note"), tenants.length < queue.tenants_known ? `the ${tenants.length} busiest of ${format.count(queue.tenants_known)}` : "");
  const rows = tenants.map(tenant => [{ name: tenant.key }, ...cells(tenant.ledger || {}), got(tenant.ledger || {})]);
  const others = queue.other_tenants || {};
  if (num(others.offered) > 0) rows.push(["everybody else", ...cells(others), got(others)]);
  table($("tenants"), head("tenant"), rows, new Set(num(others.offered) > 0 ? [tenants.length] : []));
}

function showTabs(queues, current) {
  queues.forEach((queue, index) => {
    let tab = tabs[index];
    if (!tab) {
      const button = document.createElement("button"), mark = document.createElement("span"), name = document.createElement("bdi"), aside = document.createElement("span");
      button.type = "button";
      mark.className = "mark"; aside.className = "hidden"; mark.ariaHidden = "true";
      button.append(mark, name, aside);
      tab = { button, name, aside, of: "" };
      button.addEventListener("click", () => { chosen = tab.of; history.replaceState(null, "", "#" + encodeURIComponent(chosen)); show(); });
      tabs[index] = tab;
      $("queues").append(button);
    }
    tab.of = queue.name;
    tab.button.hidden = false;
    set(tab.button, { "data-state": stateOf(queue.pressure) });
    if (queue === current) set(tab.button, { "aria-current": "true" }); else tab.button.removeAttribute("aria-current");
    say(tab.name, cut(queue.name));
    say(tab.aside, ", " + stateOf(queue.pressure));
  });
  for (let index = queues.length; index < tabs.length; index++) tabs[index].button.hidden = true;
}

function show() {
  const queues = last.queues, limiters = last.limiters || [], advice = last.advice || [];
  const current = queues.find(queue => queue.name === chosen) || queues[0];
  showTabs(queues, current);
  $("queue").hidden = !current;
  $("none").hidden = Boolean(current || limiters.length);
  if (current) { showNow(current); showCharts(current, last.taken_at_seconds); showTables(current); }
  document.title = current ? `${stateOf(current.pressure)} ${format.count(current.depth)}/${format.count(current.max_depth)} · ${cut(current.name)}` : "sluicegate";
  $("limiters-box").hidden = !limiters.length;
  limiters.forEach((limiter, index) => (blocks[index] = blocks[index] || new LimiterBlock($("limiters"))).show(limiter, last.taken_at_seconds));
  for (let index = limiters.length; index < blocks.length; index++) blocks[index].root.hidden = true;
  $("advice-box").hidden = !advice.length;
  const list = $("advice");
  advice.forEach((one, index) => {
    const item = list.children[index] || list.appendChild(document.createElement("li"));
    if (!item.firstChild) item.append(document.createElement("b"), document.createTextNode(""));
    say(item.firstChild, cut(one.name) + (one.subject ? ", " + cut(one.subject) : "") + ": ");
    const text = `${one.reason}; suggest ${words(one.setting)} ${one.suggested} in place of ${one.current} (${one.confidence} confidence)`;
    if (item.lastChild.data !== text) item.lastChild.data = text;
  });
  while (list.children.length > advice.length) list.lastChild.remove();
  const more = num(last.queues_left_out) ? `${format.count(last.queues_left_out)} more queues are not shown. ` : "";
  say($("foot"), `${more}sluicegate ${cut(last.version)}. Numbers per second are means of ten seconds; trends hold five minutes.`);
}

function state(name, text) { set($("link"), { "data-state": name }); say($("link"), text); }

async function ask() {
  const cancel = new AbortController(), limit = setTimeout(() => cancel.abort(), PATIENCE);
  try {
    const answer = await fetch(beside + "snapshot.json", { cache: "no-store", signal: cancel.signal, credentials: "same-origin" });
    if (!answer.ok) throw new Error("the answer was " + answer.status);
    const snapshot = await answer.json();
    if (!snapshot || !Array.isArray(snapshot.queues)) throw new Error("the answer is no snapshot");
    last = snapshot; lastAt = Date.now(); failures = 0;
    return null;
  } catch (error) {
    failures += 1;
    return error.name === "AbortError" ? "no answer within " + format.time(PATIENCE / 1000) : error.name === "TypeError" ? "nobody answers" : String(error.message || error);
  } finally { clearTimeout(limit); }
}

async function turn() {
  clearTimeout(timer);
  const trouble = isHeld || document.hidden ? "" : await ask();
  if (trouble === null && !isHeld) {
    $("lost").hidden = true;
    document.body.classList.remove("stale");
    show();
    state("live", "live");
  } else if (trouble) {
    const since = lastAt ? " The numbers are " + format.time((Date.now() - lastAt) / 1000) + " old." : "";
    say($("lost"), `Connection lost: ${trouble}.${since} Trying again by itself.`);
    $("lost").hidden = false;
    document.body.classList.toggle("stale", lastAt > 0);
    state("lost", "lost");
  }
  if (!document.hidden) timer = setTimeout(turn, Math.min(LONGEST, EVERY * 2 ** Math.min(failures, 3)));
}

$("hold").addEventListener("click", () => {
  isHeld = !isHeld;
  set($("hold"), { "aria-pressed": isHeld });
  say($("hold"), isHeld ? "Go on" : "Hold");
  if (isHeld) state("held", "held"); else turn();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
turn();
