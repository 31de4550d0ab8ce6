// Dead letters: search, inspect, replay, discard.

import { h, api, toast, confirmed } from "./dom.js";
import * as f from "./format.js";

export const noToken = () => h("div", { class: "card empty" },
  h("p", {}, "Records, log lines and options are shown only if a token is set, since every user of this machine can open this page."),
  h("p", {}, "Set ", h("code", {}, "admin: { address: …, token: ${file:/etc/penstock/token} }"), " in the config and restart."));

export class Letters {
  constructor(main, query, session) {
    this.main = main;
    this.closed = false;
    this.picked = new Set();
    if (!session.token) { main.replaceChildren(noToken()); this.locked = true; return; }
    this.route = h("select", { "aria-label": "Route", onchange: () => this.load() });
    this.reason = h("input", { type: "search", placeholder: "Search reasons  /", "aria-label": "Search reasons", oninput: () => this.later() });
    this.settled = h("input", { type: "checkbox", id: "settled", onchange: () => this.load() });
    this.summary = h("span", { class: "soft grow", role: "status" });
    this.replayButton = h("button", { type: "button", class: "primary", onclick: () => this.act("replay") }, "Replay");
    this.discardButton = h("button", { type: "button", class: "danger", onclick: () => this.act("discard") }, "Discard");
    this.every = h("input", { type: "checkbox", "aria-label": "Select all shown", onchange: () => this.pickAll() });
    this.body = h("tbody");
    this.empty = h("div", { class: "empty", hidden: true });
    this.detail = h("div", { class: "card pad detail", "aria-live": "polite" }, h("p", { class: "soft" }, "Choose a dead letter to read it."));
    main.replaceChildren(
      h("div", { class: "row" }, h("h1", {}, "Dead letters"), this.route, this.reason, this.settled, h("label", { for: "settled" }, "show settled"), this.summary),
      h("div", { class: "split", id: "letters" },
        h("div", { class: "card" }, h("div", { class: "row pad" }, h("span", { class: "grow soft", id: "picked" }, "Nothing selected: buttons mean all that match"), this.replayButton, this.discardButton),
          h("div", { class: "scroll" }, h("table", { class: "plainly", "aria-label": "Dead letters" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, this.every),
            h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Reason"), h("th", { scope: "col" }, "Worker"))), this.body)), this.empty),
        this.detail));
    document.getElementById("letters").style.marginTop = "14px";
    this.wanted = query.get("route");
  }

  close() { this.closed = true; clearTimeout(this.timer); }

  update(frame) {
    if (this.locked) return;
    const keys = frame.routes.map((r) => r.pipeline + "/" + r.route);
    if (this.keys !== keys.join()) {
      this.keys = keys.join();
      const before = this.route.value || this.wanted;
      const most = frame.routes.reduce((a, b) => b.dead > a.dead ? b : a, frame.routes[0]);
      this.route.replaceChildren(...keys.map((k) => h("option", { value: k }, k)));
      this.route.value = keys.includes(before) ? before : most.pipeline + "/" + most.route;
      this.dead = undefined;
    }
    const dead = frame.routes.find((r) => r.pipeline + "/" + r.route === this.route.value)?.dead;
    if (dead !== this.dead) { this.dead = dead; this.load(); }
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 250);
  }

  ids() {
    const [pipeline, route] = this.route.value.split("/");
    return { pipeline, route };
  }

  async load() {
    const { pipeline, route } = this.ids();
    const query = new URLSearchParams({ pipeline, route, reason: this.reason.value, settled: this.settled.checked });
    const turn = this.turn = (this.turn || 0) + 1;
    try {
      const page = await api("dead?" + query);
      if (this.closed || turn !== this.turn) return;
      this.show(page);
    } catch (err) { this.summary.textContent = err.message; }
  }

  show(page) {
    this.page = page;
    const shown = new Set(page.letters.map((l) => l.id));
    for (const id of this.picked) if (!shown.has(id)) this.picked.delete(id);
    this.summary.textContent = f.plural(page.matched, "match", "matches") +
      (page.letters.length < page.matched ? ", the newest " + page.letters.length + " shown" : "") + ", " + f.count(page.open) + " open in this route";
    this.body.replaceChildren(...page.letters.map((l) => h("tr", { class: "pick", onclick: () => this.inspect(l) },
      h("td", {}, this.box(l)), h("td", { class: "num" }, new Date(l.time).toLocaleString()),
      h("td", { class: "who" }, h("button", { type: "button" }, l.reason), l.settled ? h("span", { class: "badge idle" }, "settled") : null),
      h("td", { class: "soft wrap" }, l.worker || "–"))));
    this.empty.hidden = page.letters.length > 0;
    this.empty.textContent = this.reason.value ? "No open dead letter has this in its reason." : "No open dead letters.";
    this.count();
  }

  box(l) {
    const box = h("input", {
      type: "checkbox", "aria-label": "Select " + l.id, disabled: l.settled, onclick: (e) => e.stopPropagation(),
      onchange: () => { box.checked ? this.picked.add(l.id) : this.picked.delete(l.id); this.count(); },
    });
    box.checked = this.picked.has(l.id);
    return box;
  }

  pickAll() {
    this.picked = new Set(this.every.checked ? this.page.letters.filter((l) => !l.settled).map((l) => l.id) : []);
    this.show(this.page);
  }

  count() {
    const n = this.picked.size;
    document.getElementById("picked").textContent = n ? f.count(n) + " selected" : "Nothing selected: buttons mean all open letters that match";
    const none = !this.page?.letters.some((l) => !l.settled);
    this.replayButton.disabled = this.discardButton.disabled = this.busy || none;
  }

  inspect(l) {
    const record = l.record ?? atob(l.record_base64 || "");
    const field = (name, value) => value ? [h("dt", {}, name), h("dd", {}, String(value))] : [];
    this.detail.replaceChildren(h("h2", {}, "Dead letter"), h("dl", {}, field("Reason", l.reason), field("Detail", l.detail), field("Time", new Date(l.time).toLocaleString()),
      field("Worker", l.worker), field("Attempts", l.attempts), field("From", l.file), field("Position", l.position), field("Id", l.id),
      field("State", l.settled ? "settled by a replay or discard" : "open")),
    h("h2", {}, l.record === undefined ? "Record (binary)" : "Record"), h("pre", {}, record));
  }

  async act(kind) {
    const { pipeline, route } = this.ids();
    const ids = [...this.picked];
    const what = ids.length ? f.plural(ids.length, "dead letter", "dead letters") : "all open dead letters" + (this.reason.value ? " whose reason has “" + this.reason.value + "”" : "");
    const words = kind === "replay" ? "They are delivered again through the processors and the sink of " + pipeline + "/" + route + ". The route pauses meanwhile." :
      "They count as settled and are not delivered. They stay in the file. The route pauses for a moment.";
    if (!await confirmed((kind === "replay" ? "Replay " : "Discard ") + what + "?", words, kind === "replay" ? "Replay" : "Discard", kind !== "replay")) return;
    this.busy = true;
    this.count();
    try {
      const result = await api("dead/" + kind, ids.length ? { pipeline, route, ids } : { pipeline, route, all: true, reason: this.reason.value });
      toast(kind === "replay" ? f.plural(result.letters, "letter", "letters") + " replayed: " + f.count(result.delivered) + " delivered, " + f.count(result.dead) + " refused again" +
          (result.dropped ? ", " + f.count(result.dropped) + " dropped" : "") + (result.parked ? ", " + f.count(result.parked) + " parked" : "")
        : f.plural(result.letters, "letter", "letters") + " discarded");
      this.picked.clear();
    } catch (err) { toast("Failed: " + err.message); }
    this.busy = false;
    this.load();
  }
}
