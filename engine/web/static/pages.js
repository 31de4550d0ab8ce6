// The configuration, the supervision tree and the end of the log.

import { h, api, toast } from "./dom.js";
import { noToken } from "./letters.js";
import * as f from "./format.js";

export class Config {
  constructor(main, query, session) {
    if (!session.token) { main.replaceChildren(noToken()); return; }
    const box = h("pre", { class: "plain", tabindex: "0", "aria-label": "Resolved configuration" });
    main.replaceChildren(h("div", { class: "row" }, h("h1", {}, "Configuration"),
      h("span", { class: "soft" }, "as it runs now: defaults included, variables replaced, secrets masked")), h("section", { class: "card" }, box));
    main.lastChild.style.marginTop = "14px";
    api("config").then((yaml) => {
      for (const line of yaml.split("\n")) {
        const m = /^(\s*(?:- )?)([\w.-]+:)(.*)$/.exec(line);
        if (m) box.append(m[1], h("span", { class: "key" }, m[2]), /\*{3,}|xxxxx/.test(m[3]) ? h("span", { class: "masked" }, m[3]) : m[3], "\n");
        else box.append(line, "\n");
      }
    }).catch((err) => toast(err.message));
  }
  update() {}
  close() {}
}

const tones = { running: "good", idle: "idle", done: "idle", waiting: "warn", stopping: "warn", stuck: "bad", NORMAL: "good", UNKNOWN: "idle", OPEN: "bad" };

export class Tree {
  constructor(main) {
    this.box = h("div", { class: "card pad tree" });
    this.shut = new Set();
    main.replaceChildren(h("div", { class: "row" }, h("h1", {}, "Supervision"),
      h("span", { class: "soft" }, "everything that is kept running, with restarts and their reasons")), this.box);
    this.box.style.marginTop = "14px";
    this.load();
  }

  async load() {
    if (this.closed) return;
    try {
      const status = await api("status");
      if (this.closed) return;
      const sketch = JSON.stringify(status.tree, (k, v) => k === "seconds" ? undefined : v);
      if (sketch !== this.sketch) {
        this.sketch = sketch;
        this.box.replaceChildren(h("ul", {}, this.node(status.tree, "")));
      }
    } catch { /* the next attempt may succeed */ }
    this.timer = setTimeout(() => this.load(), 3000);
  }

  node(c, above) {
    const path = above + "/" + c.name;
    const line = [h("b", {}, c.name), " ", h("span", { class: "badge " + (tones[c.state] || "warn") }, c.state), " ",
      h("span", { class: "soft" }, [c.restarts ? f.plural(c.restarts, "restart", "restarts") : "", c.next_seconds ? "starts in " + f.seconds(c.next_seconds) : "", c.last_reason || ""].filter(Boolean).join(", "))];
    if (!c.children) return h("li", {}, h("span", { class: "leaf" }, line));
    const below = c.children.slice(0, 100).map((x) => this.node(x, path));
    if (c.children.length > 100) below.push(h("li", { class: "soft" }, "and " + (c.children.length - 100) + " more"));
    const d = h("details", { ontoggle: () => d.open ? this.shut.delete(path) : this.shut.add(path) }, h("summary", {}, line), h("ul", {}, below));
    d.open = !this.shut.has(path);
    return h("li", {}, d);
  }

  update() {}
  close() { this.closed = true; clearTimeout(this.timer); }
}

const maxLines = 400;

export class Log {
  constructor(main, query, session) {
    if (!session.token) { main.replaceChildren(noToken()); this.closed = true; return; }
    this.after = 0;
    this.box = h("div", { class: "log", tabindex: "0", role: "log", "aria-label": "End of the log" });
    this.filter = h("input", { type: "search", placeholder: "Filter lines  /", "aria-label": "Filter lines", oninput: () => this.apply() });
    this.level = h("select", { "aria-label": "Log level", onchange: () => this.setLevel() }, ["debug", "info", "warn", "error"].map((l) => h("option", { value: l }, l)));
    main.replaceChildren(h("div", { class: "row" }, h("h1", {}, "Log"), h("span", { class: "soft grow" }, "the last " + maxLines + " lines"), this.filter,
      h("label", {}, "Level ", this.level)), h("section", { class: "card" }, this.box));
    main.lastChild.style.marginTop = "14px";
    api("log-level").then((l) => { this.level.value = l.level; }).catch(() => { this.level.parentNode.hidden = true; });
    this.load();
  }

  async setLevel() {
    try {
      await api("log-level", { level: this.level.value });
      toast("Log level: " + this.level.value);
    } catch (err) { toast(err.message); }
  }

  async load() {
    if (this.closed) return;
    try {
      const { lines } = await api("log?after=" + this.after);
      if (this.closed) return;
      if (lines.length) this.add(lines);
    } catch { /* the next attempt may succeed */ }
    this.timer = setTimeout(() => this.load(), 1000);
  }

  add(lines) {
    this.after = lines[lines.length - 1].n;
    const end = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    for (const l of lines) {
      this.box.append(h("div", { class: l.level }, h("time", { datetime: l.at }, new Date(l.at).toTimeString().slice(0, 8)), " ", l.level.padEnd(5), " ", l.message,
        (l.attrs || []).map(([k, v]) => [" ", h("span", { class: "k" }, k + "="), v])));
    }
    while (this.box.children.length > maxLines) this.box.firstChild.remove();
    this.apply();
    if (end) this.box.scrollTop = this.box.scrollHeight;
  }

  apply() {
    const wanted = this.filter.value.toLowerCase();
    for (const d of this.box.children) d.hidden = wanted !== "" && !d.textContent.toLowerCase().includes(wanted);
  }

  update() {}
  close() { this.closed = true; clearTimeout(this.timer); }
}
