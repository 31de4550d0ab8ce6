// The overview: routes as a live graph with their workers as lanes, and charts of the last hour.

import { h, text, attr, api } from "./dom.js";
import { Chart } from "./charts.js";
import * as f from "./format.js";

const maxRows = 40; // workers shown at once; the filter finds the others
const rank = { good: 0, idle: 1, warn: 2, bad: 3 };
const keyOf = (r) => r.pipeline + "/" + r.route;
const svg = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);

export class Overview {
  constructor(main, query) {
    this.selected = query.get("route");
    this.chosen = Boolean(this.selected); // by the operator; until then the worst route is shown
    this.worker = null;
    this.rows = new Map();
    this.paths = new Map();
    this.all = false;
    this.list = h("div", { class: "routes", role: "group", "aria-label": "Routes" });
    this.title = h("h1");
    this.health = h("span", { class: "badge" });
    this.held = h("p", { class: "soft" });
    this.callout = h("div", { class: "callout", id: "attention", role: "status" });
    this.stats = {};
    const stat = (key, name) => h("div", {}, h("dt", {}, name), this.stats[key] = h("dd", {}, "–"));
    this.stages = h("div", { class: "stages" });
    this.lanes = svg("svg");
    this.lanes.setAttribute("class", "lanes");
    this.lanes.setAttribute("aria-hidden", "true");
    this.body = h("tbody");
    this.filter = h("input", { type: "search", placeholder: "Filter workers  /", "aria-label": "Filter workers", oninput: () => this.update(this.frame) });
    this.more = h("button", { type: "button", class: "quiet", onclick: () => { this.all = !this.all; this.update(this.frame); } });
    this.table = h("table", { class: "workers", "aria-label": "Workers" }, h("thead", {}, h("tr", {},
      h("th", { scope: "col" }, "Worker"), h("th", { scope: "col" }, "Gate that binds"), h("th", { scope: "col", class: "num" }, "In flight / window"),
      h("th", { scope: "col", class: "num" }, "Round trip"), h("th", { scope: "col", class: "num" }, "Batches/s"), h("th", { scope: "col", class: "num" }, "Failed"))), this.body);
    this.charts = h("div", { class: "charts" });
    this.workerCharts = h("div", { class: "charts" });
    this.tools = h("div", { class: "row pad" }, h("h2", { class: "grow" }, "Workers"), this.more, this.filter);
    this.card = h("section", { class: "card", "aria-label": "Route" },
      h("div", { class: "pad" }, h("div", { class: "row" }, this.title, this.health), this.held, this.callout),
      h("dl", { class: "stats" }, stat("delivered", "Delivered/s"), stat("read", "Read/s"), stat("flight", "In flight"), stat("waiting", "Waiting"),
        stat("parked", "Parked"), stat("lag", "Backlog"), stat("drain", "Time to drain"), stat("dead", "Dead letters")),
      this.graph = h("div", { class: "graph" }, this.stages, h("div", { class: "lanes-cell" }, this.lanes), h("div", { class: "scroll" }, this.table)));
    this.main = main;
    main.replaceChildren(h("div", { class: "empty" }, "Waiting for the first figures…"));
  }

  close() {
    this.closeCharts();
    this.closeWorker();
  }

  closeCharts() { this.routeCharts?.forEach((c) => c.close()); this.routeCharts = null; }
  closeWorker() { this.oneCharts?.forEach((c) => c.close()); this.oneCharts = null; }

  update(frame) {
    if (!frame) return;
    if (!this.frame) this.main.replaceChildren(this.list, this.card, this.charts, this.workerCharts);
    this.frame = frame;
    if (!frame.routes.length) return void this.main.replaceChildren(h("div", { class: "empty" }, "No routes"));
    let r = frame.routes.find((x) => keyOf(x) === this.selected);
    const worst = frame.routes.reduce((a, b) => this.worstTone(b) > this.worstTone(a) ? b : a);
    if (!r || !this.chosen && this.worstTone(worst) > this.worstTone(r)) {
      r = worst;
      this.select(keyOf(r));
    }
    this.updateList(frame);
    this.updateRoute(r);
    this.updateWorkers(r);
    this.updateCharts(r);
  }

  worstTone(r) {
    const own = { bad: 3, warn: 2 }[f.healthTone(r.health)] || 0;
    return Math.max(own, r.worst >= 0 ? rank[f.tone(r.workers[r.worst])] + 0.5 : 0);
  }

  select(key) {
    if (this.selected === key && this.routeCharts) return;
    this.selected = key;
    this.worker = null;
    this.closeCharts();
    this.closeWorker();
    this.workerCharts.replaceChildren();
    this.rows.clear();
    this.paths.clear();
    this.body.replaceChildren();
    this.lanes.replaceChildren();
  }

  updateList(frame) {
    this.list.hidden = frame.routes.length < 2;
    if (this.list.hidden) return;
    const keys = frame.routes.map(keyOf).join();
    if (this.listed !== keys) {
      this.listed = keys;
      this.list.replaceChildren(...frame.routes.map((r) => h("button", {
        type: "button", onclick: () => { this.chosen = true; this.select(keyOf(r)); this.update(this.frame); },
      }, h("span", { class: "row" }, h("span", { class: "name grow" }), h("span", { class: "badge" })), h("span", { class: "soft" }))));
    }
    frame.routes.forEach((r, i) => {
      const b = this.list.children[i];
      attr(b, "aria-pressed", keyOf(r) === this.selected);
      text(b.querySelector(".name"), r.pipeline + " / " + r.route);
      const worst = r.worst >= 0 ? r.workers[r.worst] : null;
      const tone = r.health !== "running" ? f.healthTone(r.health) : worst ? f.tone(worst) : "good";
      attr(b.querySelector(".badge"), "class", "badge " + tone);
      text(b.querySelector(".badge"), r.health !== "running" ? r.health : worst && tone !== "good" ? worst.state.toLowerCase() : "running");
      text(b.lastChild, f.short(r.delivered_rate) + "/s, " + f.plural(r.workers.length, "worker", "workers"));
    });
  }

  updateRoute(r) {
    text(this.title, r.pipeline + " / " + r.route);
    text(this.health, r.health);
    attr(this.health, "class", "badge " + f.healthTone(r.health));
    text(this.held, r.error ? r.error : "Limited by " + r.held + ".");
    const w = r.worst >= 0 ? r.workers[r.worst] : null;
    if (w) {
      const tone = f.tone(w);
      attr(this.callout, "class", "callout " + (tone === "good" || tone === "idle" ? "warn" : tone));
      const state = tone === "good" ? "the slowest worker" : w.state + (w.misconfigured ? ", misconfigured" : "");
      const words = "Gate " + w.gate + ": " + w.words + ".";
      const why = w.misconfigured ? r.last_fault : f.rounded(w.reason) || "round trip " + f.seconds(w.round_trip);
      const say = w.name + "\n" + state + "\n" + words + "\n" + why;
      if (this.said !== say) {
        this.said = say;
        this.callout.replaceChildren(h("div", {}, h("b", {}, w.name), " is ", state), h("div", {}, words), h("div", { class: "soft" }, why || ""));
      }
    } else if (this.said !== "") {
      this.said = "";
      attr(this.callout, "class", "callout good");
      this.callout.replaceChildren(h("div", {}, r.workers.length ? "No worker needs attention." : "No worker yet."));
    }
    text(this.stats.delivered, f.short(r.delivered_rate));
    text(this.stats.read, f.short(r.read_rate));
    text(this.stats.flight, f.short(r.in_flight));
    text(this.stats.waiting, f.short(r.waiting));
    const parked = this.stats.parked.parentElement;
    if (!r.parked) parked.remove();
    else if (!parked.isConnected) this.stats.lag.parentElement.before(parked);
    text(this.stats.parked, f.short(r.parked || 0));
    text(this.stats.lag, f.bytes(r.lag_bytes));
    text(this.stats.drain, r.drain_seconds < 0 ? "unknown" : r.drain_seconds === 0 ? "drained" : r.drain_seconds < 1 ? "< 1 s" : f.span(r.drain_seconds));
    text(this.stats.dead, f.short(r.dead));
    const stages = [["source", r.source], ...r.processors.map((p, i) => ["processor " + (i + 1), p]), ["sink", r.sink]];
    const sketch = JSON.stringify(stages);
    if (this.sketch !== sketch) {
      this.sketch = sketch;
      this.stages.replaceChildren(...stages.flatMap(([kind, name], i) =>
        [i ? h("div", { class: "pipe" }) : null, h("div", { class: "stage" }, h("small", {}, kind), name)]).filter(Boolean));
    }
  }

  shown(r) {
    const wanted = this.filter.value.trim().toLowerCase();
    const matching = r.workers.filter((w) => !wanted || (w.name + " " + w.state + " " + w.gate).toLowerCase().includes(wanted));
    const limit = this.all ? 1000 : maxRows;
    this.tools.hidden = r.workers.length <= 6;
    if (r.workers.length > 6 && !this.tools.isConnected) this.card.insertBefore(this.tools, this.graph);
    this.more.hidden = matching.length <= maxRows;
    text(this.more, this.all ? "Show fewer" : "Show all " + f.count(matching.length));
    if (matching.length <= 6) return matching;
    const order = matching.map((w) => [rank[f.tone(w)], w]);
    order.sort((a, b) => b[0] - a[0] || (a[1].name < b[1].name ? -1 : 1));
    return order.slice(0, limit).map((x) => x[1]);
  }

  updateWorkers(r) {
    const workers = this.shown(r);
    const most = Math.max(1e-9, ...workers.map((w) => w.rate));
    const present = new Set();
    workers.forEach((w, i) => {
      let row = this.rows.get(w.name);
      if (!row) this.rows.set(w.name, row = this.makeRow(w.name));
      present.add(w.name);
      if (this.body.children[i] !== row.tr) this.body.insertBefore(row.tr, this.body.children[i] || null);
      const tone = f.tone(w);
      text(row.state, w.state + (w.misconfigured ? " · misconfigured" : ""));
      attr(row.state, "class", "badge " + tone);
      text(row.gate, w.gate);
      text(row.words, w.words);
      text(row.window, w.in_flight + " / " + f.short(w.window));
      row.fill.style.width = Math.min(100, w.window > 0 ? 100 * w.in_flight / w.window : 0) + "%";
      text(row.trip, f.seconds(w.round_trip));
      text(row.base, w.base > 0 ? "idle " + f.seconds(w.base) : "");
      text(row.rate, f.short(w.rate));
      text(row.failed, f.count(w.failed));
      row.bar.style.width = 100 * w.rate / most + "%";
      attr(row.bar, "class", tone);
      attr(row.tr, "aria-selected", w.name === this.worker);
    });
    for (const [name, row] of this.rows) if (!present.has(name)) { row.tr.remove(); this.rows.delete(name); }
    this.drawLanes(workers, most);
  }

  makeRow(name) {
    const row = {};
    const pick = () => this.pick(name);
    row.tr = h("tr", { class: "pick", onclick: pick },
      h("td", { class: "who" }, h("button", { type: "button", title: "Show the charts of this worker" }, name), " ", row.state = h("span", { class: "badge" }),
        h("span", { class: "bar", "aria-hidden": "true" }, row.bar = h("i"))),
      h("td", { class: "gates" }, row.gate = h("span", { class: "gate" }), h("div", { class: "words" }, row.words = h("span"))),
      h("td", { class: "num", "data-label": "In flight / window" }, row.window = h("span"), h("span", { class: "meter", "aria-hidden": "true" }, row.fill = h("i"))),
      h("td", { class: "num", "data-label": "Round trip" }, row.trip = h("div"), row.base = h("div", { class: "words" })),
      h("td", { class: "num", "data-label": "Batches/s" }, row.rate = h("span")),
      h("td", { class: "num", "data-label": "Failed" }, row.failed = h("span")));
    return row;
  }

  // drawLanes draws a curve from the sink to each worker. Its width is the worker's share of the throughput.
  drawLanes(workers, most) {
    const height = this.graph.clientHeight, width = this.lanes.clientWidth;
    if (!width || !height) return;
    attr(this.lanes, "viewBox", "0 0 " + width + " " + height);
    attr(this.lanes, "height", height);
    const top = this.graph.getBoundingClientRect().top;
    const total = workers.reduce((sum, w) => sum + this.widthOf(w, most), 0);
    const scale = Math.min(1, 0.8 * height / Math.max(1, total));
    const sink = this.stages.lastElementChild.getBoundingClientRect();
    let y = (sink.top + sink.bottom) / 2 - top - total * scale / 2;
    const present = new Set();
    for (const w of workers) {
      let path = this.paths.get(w.name);
      if (!path) { this.paths.set(w.name, path = svg("path")); this.lanes.append(path); }
      present.add(w.name);
      const thick = this.widthOf(w, most) * scale;
      const box = this.rows.get(w.name).tr.getBoundingClientRect();
      const to = (box.top + box.bottom) / 2 - top, from = y + thick / 2;
      y += thick;
      const d = "M0 " + from.toFixed(1) + "C" + width / 2 + " " + from.toFixed(1) + " " + width / 2 + " " + to.toFixed(1) + " " + width + " " + to.toFixed(1);
      attr(path, "d", d);
      attr(path, "stroke-width", Math.max(1, thick).toFixed(1));
      const tone = w.rate < 0.01 && f.tone(w) === "good" ? "idle" : f.tone(w);
      attr(path, "class", tone);
    }
    for (const [name, path] of this.paths) if (!present.has(name)) { path.remove(); this.paths.delete(name); }
  }

  widthOf(w, most) { return 1.5 + 24 * w.rate / most; }

  pick(name) {
    this.chosen = true;
    this.closeWorker();
    this.worker = this.worker === name ? null : name;
    this.workerCharts.replaceChildren();
    if (this.worker) {
      this.oneCharts = [
        new Chart("Window: " + name, [
          { name: "window", color: "--lane", key: "window", value: (w) => w.window },
          { name: "in flight", color: "--lane-warn", key: "in_flight", value: (w) => w.in_flight, fill: true }], f.short),
        new Chart("Round trip: " + name, [{ name: "round trip", color: "--lane", key: "round_trip", value: (w) => w.round_trip, fill: true }], (v) => v ? f.seconds(v) : "0"),
      ];
      this.workerCharts.replaceChildren(...this.oneCharts.map((c) => c.box));
      this.loadHistory(this.oneCharts, "&worker=" + encodeURIComponent(name));
    }
    this.update(this.frame);
  }

  async loadHistory(charts, extra) {
    const route = this.selected;
    try {
      const history = await api("history?route=" + encodeURIComponent(route) + extra);
      if (this.selected === route) charts.forEach((c) => c.load(history));
    } catch { /* the charts begin now */ }
  }

  updateCharts(r) {
    if (!this.routeCharts) {
      this.routeCharts = [
        new Chart("Records per second", [
          { name: "delivered", color: "--lane", key: "delivered", value: (x) => x.delivered_rate, fill: true },
          { name: "read", color: "--lane-warn", key: "read", value: (x) => x.read_rate }], f.short),
        new Chart("Records in the route", [
          { name: "in flight", color: "--lane", key: "in_flight", value: (x) => x.in_flight, fill: true },
          { name: "waiting", color: "--lane-warn", key: "waiting", value: (x) => x.waiting }], f.short),
        new Chart("Backlog in the source", [{ name: "bytes", color: "--lane", key: "lag_bytes", value: (x) => x.lag_bytes < 0 ? null : x.lag_bytes, fill: true }],
          (v) => v ? f.bytes(v) : "0", 1024),
      ];
      this.charts.replaceChildren(...this.routeCharts.map((c) => c.box));
      this.loadHistory(this.routeCharts, "");
    }
    const at = this.frame.at / 1000;
    this.routeCharts.forEach((c) => c.add(at, r));
    const w = this.worker && r.workers.find((x) => x.name === this.worker);
    if (w) this.oneCharts?.forEach((c) => c.add(at, w));
  }

  key(e) {
    if (e.key !== "j" && e.key !== "k") return;
    const buttons = [...this.body.querySelectorAll("td.who button")];
    const i = buttons.indexOf(document.activeElement);
    buttons[Math.max(0, Math.min(buttons.length - 1, i + (e.key === "j" ? 1 : -1)))]?.focus();
  }
}
