// Numbers for people.

export function count(n) {
  return Math.round(n).toLocaleString("en-US");
}

export function short(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  const a = Math.abs(n);
  if (a >= 1e9) return (n / 1e9).toFixed(1) + "G";
  if (a >= 1e6) return (n / 1e6).toFixed(1) + "M";
  if (a >= 1e4) return (n / 1e3).toFixed(1) + "k";
  if (a < 0.05) return "0";
  if (a >= 100 || Number.isInteger(n)) return count(n);
  return n.toFixed(1);
}

export function bytes(n) {
  if (n === null || n === undefined || n < 0) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

export function seconds(s) {
  if (!(s > 0)) return "–";
  if (s < 1e-3) return Math.round(s * 1e6) + " µs";
  if (s < 0.0995) return (s * 1e3).toFixed(s < 0.00995 ? 1 : 0) + " ms";
  if (s < 1) return Math.round(s * 1e3) + " ms";
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  return span(s);
}

// span is a longer time.
export function span(s) {
  if (s < 60) return Math.round(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

// rounded shortens the durations in a sentence of the engine: 1.386104982s becomes 1.39s.
export function rounded(words) {
  return (words || "").replace(/(\d+)\.(\d{3,})(s|ms|µs)/g, (all, whole, rest, unit) => Number(whole + "." + rest).toPrecision(3) + unit);
}

export function plural(n, one, many) {
  return count(n) + " " + (n === 1 ? one : many);
}

// tone returns the color of a worker's state. A slow worker without work that could take more
// counts as idle.
export function tone(w) {
  if (w.misconfigured || w.state === "OPEN") return "bad";
  if ((w.state === "SLOW" || w.state === "BUSY") && w.gate === "none" && w.in_flight === 0) return "idle";
  if (w.state === "SLOW" || w.state === "BUSY" || w.state === "THROTTLED") return "warn";
  if (w.state === "UNKNOWN") return "idle";
  return "good";
}

export function healthTone(health) {
  return { running: "good", finished: "idle", draining: "warn", restarting: "warn", stopped: "bad" }[health] || "idle";
}
