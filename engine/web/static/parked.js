// Parked deliveries: search, inspect, attempt now, cancel.

import { h, api, toast, confirmed } from "./dom.js";
import * as f from "./format.js";

const page = 100;
const tones = { waiting: "good", exhausted: "warn", done: "idle", dead: "bad", cancelled: "idle" };
const states = { "": "any state", waiting: "waiting", exhausted: "exhausted", done: "done", dead: "dead-lettered", cancelled: "cancelled" };
const when = (t) => t ? new Date(t).toLocaleString() : "–";

export class Parked {
  constructor(main, query, session) {
    this.picked = new Set();
    this.rows = [];
    this.route = h("select", { "aria-label": "Route", onchange: () => this.load() }, session.parking.map((r) => h("option", { value: r }, r)));
    this.state = h("select", { "aria-label": "State", onchange: () => this.load() }, Object.entries(states).map(([v, name]) => h("option", { value: v }, name)));
    this.host = h("input", { type: "search", placeholder: "Host  /", "aria-label": "Host", oninput: () => this.later() });
    this.key = h("input", { type: "search", placeholder: "Key", "aria-label": "Key", oninput: () => this.later() });
    this.summary = h("span", { class: "soft grow", role: "status" });
    this.chosen = h("span", { class: "grow soft" });
    this.retry = h("button", { type: "button", class: "primary", onclick: () => this.act("retry") }, "Attempt now");
    this.cancel = h("button", { type: "button", class: "danger", onclick: () => this.act("cancel") }, "Cancel");
    this.every = h("input", { type: "checkbox", "aria-label": "Select all shown", onchange: () => this.pickAll() });
    this.body = h("tbody");
    this.empty = h("div", { class: "empty", hidden: true }, "No deliveries.");
    this.more = h("button", { type: "button", class: "more", hidden: true, onclick: () => this.load(this.rows[this.rows.length - 1].id) }, "Show more");
    this.detail = h("div", { class: "card pad detail", "aria-live": "polite" }, h("p", { class: "soft" }, "Choose a delivery to see its history."));
    main.replaceChildren(
      h("div", { class: "row" }, h("h1", {}, "Parked deliveries"), this.route, this.state, this.host, this.key, this.summary),
      h("div", { class: "split below" },
        h("div", { class: "card" }, h("div", { class: "row pad" }, this.chosen, this.retry, this.cancel),
          h("div", { class: "scroll" }, h("table", { class: "plainly", "aria-label": "Parked deliveries" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, this.every),
            ["Key", "State", "Next attempt"].map((name) => h("th", { scope: "col" }, name)))), this.body)), this.empty,
          this.more),
        this.detail));
    this.load();
  }

  close() { this.closed = true; clearTimeout(this.timer); }

  // update loads the page again when the number of parked deliveries has changed.
  update(frame) {
    const parked = frame.routes.find((r) => r.pipeline + "/" + r.route === this.route.value)?.parked;
    if (this.frame && parked !== this.parked) this.load();
    this.frame = frame;
    this.parked = parked;
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 250);
  }

  // load shows the first page, or appends the page that follows the delivery after.
  async load(after) {
    const turn = this.turn = (this.turn || 0) + 1;
    const route = "?route=" + encodeURIComponent(this.route.value);
    const key = this.key.value.trim();
    try {
      const found = key ? [await api("deliveries/" + encodeURIComponent(key) + route)] :
        await api("deliveries" + route + "&limit=" + page + "&state=" + this.state.value + "&host=" + encodeURIComponent(this.host.value.trim()) + (after ? "&after=" + after : ""));
      if (this.closed || turn !== this.turn) return;
      this.rows = after ? this.rows.concat(found) : found;
      this.more.hidden = Boolean(key) || found.length < page;
      this.show("");
    } catch (err) {
      if (this.closed || turn !== this.turn) return;
      this.rows = [];
      this.more.hidden = true;
      this.show(err.message);
    }
  }

  show(trouble) {
    const shown = new Set(this.rows.map((d) => d.key));
    for (const key of this.picked) if (!shown.has(key)) this.picked.delete(key);
    this.summary.textContent = trouble || f.plural(this.rows.length, "delivery", "deliveries") + (this.more.hidden ? "" : " shown, there are more");
    this.body.replaceChildren(...this.rows.map((d) => h("tr", { class: "pick", onclick: () => this.inspect(d.key) },
      h("td", {}, this.box(d)),
      h("td", { class: "who" }, h("button", { type: "button" }, d.key), h("div", { class: "words" }, d.host)),
      h("td", {}, h("span", { class: "badge " + tones[d.state] }, states[d.state] || d.state)),
      h("td", {}, d.next_at ? when(d.next_at) : d.ended_at ? "ended " + when(d.ended_at) : "–",
        d.next_attempt ? h("div", { class: "words" }, "attempt " + d.next_attempt + " of " + d.attempts_planned) : null))));
    this.empty.hidden = this.rows.length > 0;
    this.count();
  }

  answer(a) {
    const status = a.status && !(a.detail || "").startsWith(a.status) ? " " + a.status : "";
    return a.event + status + (a.detail ? ": " + a.detail : "");
  }

  open(d) { return d.state === "waiting" || d.state === "exhausted"; }

  box(d) {
    const box = h("input", {
      type: "checkbox", "aria-label": "Select " + d.key, disabled: !this.open(d), onclick: (e) => e.stopPropagation(),
      onchange: () => { box.checked ? this.picked.add(d.key) : this.picked.delete(d.key); this.count(); },
    });
    box.checked = this.picked.has(d.key);
    return box;
  }

  pickAll() {
    this.picked = new Set(this.every.checked ? this.rows.filter((d) => this.open(d)).map((d) => d.key) : []);
    this.show("");
  }

  count() {
    this.chosen.textContent = this.picked.size ? f.count(this.picked.size) + " selected" : "Select deliveries to attempt or cancel them";
    this.retry.disabled = this.cancel.disabled = this.busy || this.picked.size === 0;
  }

  path(key, action) { return "deliveries/" + encodeURIComponent(key) + action + "?route=" + encodeURIComponent(this.route.value); }

  async inspect(key) {
    try {
      const d = await api(this.path(key, ""));
      if (this.closed) return;
      const field = (name, value) => value ? [h("dt", {}, name), h("dd", {}, String(value))] : [];
      this.detail.replaceChildren(h("h2", {}, "Parked delivery"), h("dl", {}, field("Key", d.key), field("URL", d.url), field("State", states[d.state]),
        field("Parked", when(d.parked_at)), field("Next", d.next_at && when(d.next_at)), field("Ended", d.ended_at && when(d.ended_at)),
        field("Operation", d.operation && d.operation.location + ", " + f.plural(d.operation.polls, "poll", "polls")), field("Record", d.record)),
      h("h2", {}, "History"), h("ol", { class: "history" }, (d.history || []).map((a) => h("li", {}, h("time", { datetime: a.at }, when(a.at)), " ",
        this.answer(a), a.milliseconds ? ", " + f.seconds(a.milliseconds / 1000) : "", a.body ? h("pre", {}, a.body) : null))));
    } catch (err) { toast(err.message); }
  }

  async act(kind) {
    const keys = [...this.picked];
    const what = f.plural(keys.length, "delivery", "deliveries");
    const retry = kind === "retry";
    const words = retry ? "An extra attempt is made at once. The schedule continues after it." : "No further attempt is made. An attempt in flight may still arrive.";
    if (!await confirmed((retry ? "Attempt " : "Cancel ") + what + (retry ? " now?" : "?"), words, retry ? "Attempt now" : "Cancel " + what, !retry)) return;
    this.busy = true;
    this.count();
    let done = 0, failed = "";
    for (const key of keys) {
      try {
        await api(this.path(key, "/" + kind), {});
        done++;
      } catch (err) { failed = failed || key + ": " + err.message; }
    }
    toast(f.plural(done, "delivery", "deliveries") + (retry ? " due now" : " cancelled") + (failed ? "; failed: " + failed : ""));
    this.busy = false;
    this.picked.clear();
    this.load();
    setTimeout(() => { if (!this.closed) this.load(); }, 1500); // the attempts have ended by then, usually
  }
}
