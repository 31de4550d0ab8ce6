// A chart of the last hour. It starts with the history from the engine and adds a point for each
// frame.

import { h } from "./dom.js";

const hour = 3600;

export class Chart {
  // lines: [{name, color (a CSS variable), value(frame item), key (of the history)}]
  // least is the top of the axis while all values are 0.
  constructor(title, lines, format, least = 1) {
    this.least = least;
    this.lines = lines;
    this.format = format;
    this.data = [[], ...lines.map(() => [])];
    this.plotBox = h("div", { class: "plot" });
    this.summary = h("span", { class: "soft" });
    this.box = h("div", { class: "card chart", role: "img", "aria-label": title + ", the last hour" },
      h("div", { class: "row" }, h("h2", { class: "grow" }, title),
        h("span", { class: "legend" }, lines.map((l) => {
          const mark = h("i");
          mark.style.background = "var(" + l.color + ")";
          return h("span", {}, mark, l.name);
        }))), this.plotBox);
    this.redraw = () => this.draw(true);
    this.resize = new ResizeObserver(() => this.draw(false));
    this.resize.observe(this.plotBox);
    document.addEventListener("theme", this.redraw);
  }

  close() {
    this.resize.disconnect();
    document.removeEventListener("theme", this.redraw);
    this.plot?.destroy();
  }

  load(history) {
    this.data = [history.at.slice(), ...this.lines.map((l) => (history.values[l.key] || []).slice())];
    this.draw(false);
  }

  add(at, item) {
    const x = this.data[0];
    if (x.length && at <= x[x.length - 1]) return;
    x.push(at);
    this.lines.forEach((l, i) => this.data[i + 1].push(l.value(item)));
    while (x.length && x[0] < at - hour) this.data.forEach((d) => d.shift());
    this.draw(false);
  }

  draw(rebuild) {
    const width = this.plotBox.clientWidth;
    if (!width || typeof uPlot === "undefined") return;
    if (this.plot && !rebuild) {
      if (this.plot.width !== width) this.plot.setSize({ width, height: 150 });
      this.plot.setData(this.data);
      return;
    }
    this.plot?.destroy();
    const css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name).trim();
    const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.plot = new uPlot({
      width, height: 150, padding: [8, 8, 0, 0], cursor: { y: false, points: { size: 5 } }, legend: { show: false },
      scales: { y: { range: (u, lo, hi) => [0, hi > 0 ? hi * 1.1 : this.least] } },
      axes: [{ ...axis, size: 24, values: (u, at) => at.map((t) => new Date(t * 1000).toTimeString().slice(0, 5)), space: 60, incrs: [60, 120, 300, 600, 900, 1800] },
        { ...axis, size: 52, space: 34, values: (u, v) => v.map((x) => this.format(x)) }],
      series: [{}, ...this.lines.map((l) => ({
        stroke: color(l.color), width: 1.75, spanGaps: false, points: { show: false },
        fill: l.fill ? color(l.color) + "22" : undefined,
      }))],
    }, this.data, this.plotBox);
  }
}
