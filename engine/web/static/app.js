// The frame around the views: navigation, sign-in, the stream of frames.

import { h, text, attr, api, toast } from "./dom.js";
import { span, plural } from "./format.js";
import { Overview } from "./overview.js";
import { Letters } from "./letters.js";
import { Parked } from "./parked.js";
import { Config, Tree, Log } from "./pages.js";

const views = [
  { path: "", name: "Overview", make: Overview },
  { path: "dead", name: "Dead letters", make: Letters },
  { path: "config", name: "Configuration", make: Config },
  { path: "tree", name: "Supervision", make: Tree },
  { path: "log", name: "Log", make: Log },
  { path: "parked", name: "Parked", make: Parked, hidden: (session) => !session.parking?.length },
];

const state = { frame: null, view: null, current: null, stream: null, session: { signed_in: false, token: false }, lost: 0 };
const $ = (id) => document.getElementById(id);

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("theme"));
}

const system = matchMedia("(prefers-color-scheme: dark)");
setTheme(localStorage.getItem("theme") || (system.matches ? "dark" : "light"));
system.addEventListener("change", () => { if (!localStorage.getItem("theme")) setTheme(system.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", theme);
  setTheme(theme);
});

for (const [i, v] of views.entries()) {
  $("views").append(h("a", { href: "#/" + v.path, title: v.name + " (key " + (i + 1) + ")" }, v.name));
}

function route() {
  if (!state.session.signed_in) return;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const i = Math.max(0, views.findIndex((v) => v.path === path && !v.hidden?.(state.session)));
  [...$("views").children].forEach((a, k) => k === i ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current"));
  if (state.view) state.view.close();
  document.title = (i ? views[i].name + " · " : "") + "Penstock";
  state.current = i;
  state.view = new views[i].make($("main"), new URLSearchParams(query || ""), state.session);
  if (state.frame) state.view.update(state.frame);
}

function show(frame) {
  state.frame = frame;
  state.lost = 0;
  const badge = $("health");
  text(badge, frame.ready ? "ready" : "not ready");
  attr(badge, "class", "badge " + (frame.ready ? "good" : "bad"));
  const problems = $("problems");
  problems.hidden = frame.problems.length === 0;
  text(problems, frame.problems.slice(0, 3).join(" · ") + (frame.problems.length > 3 ? " · and " + (frame.problems.length - 3) + " more" : ""));
  text($("about"), "penstock " + frame.program + ", process " + frame.pid + ", running for " + span(frame.seconds) + ", " +
    plural(frame.routes.length, "route", "routes"));
  if (state.view) state.view.update(frame);
}

function connect() {
  state.stream = new EventSource("/api/v1/events");
  state.stream.onmessage = (e) => show(JSON.parse(e.data));
  state.stream.onerror = async () => {
    attr($("health"), "class", "badge warn");
    text($("health"), "disconnected");
    if (state.stream.readyState !== EventSource.CLOSED && state.lost++ < 1) return;
    state.stream.close();
    setTimeout(begin, 2000);
  };
}

function signIn() {
  if (state.view) state.view.close();
  state.view = null;
  $("problems").hidden = true;
  text($("health"), "sign in");
  attr($("health"), "class", "badge idle");
  const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "current-password", required: true });
  const message = h("p", { role: "alert", class: "soft" }, "The token is the value of admin.token in the config.");
  const form = h("form", {
    class: "card signin", onsubmit: async (e) => {
      e.preventDefault();
      try {
        await api("session", { token: field.value });
        begin();
      } catch (err) { message.textContent = "Not signed in: " + err.message; field.select(); }
    },
  }, h("h1", {}, "Sign in"), h("label", { for: "token" }, "Token"), field, h("button", { class: "primary" }, "Sign in"), message);
  $("main").replaceChildren(form);
  field.focus();
}

async function begin() {
  try {
    state.session = await api("session");
  } catch {
    setTimeout(begin, 2000);
    return;
  }
  $("signout").hidden = !(state.session.signed_in && state.session.token);
  views.forEach((v, i) => { $("views").children[i].hidden = Boolean(v.hidden?.(state.session)); });
  if (!state.session.signed_in) return signIn();
  if (!state.view) route();
  connect();
}

$("signout").addEventListener("click", async () => {
  await fetch("/api/v1/session", { method: "DELETE" });
  state.stream?.close();
  toast("Signed out");
  begin();
});
addEventListener("hashchange", route);
addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /INPUT|SELECT|TEXTAREA/.test(e.target.tagName) || document.querySelector("dialog[open]")) {
    if (e.key === "Escape" && e.target.type === "search") e.target.blur();
    return;
  }
  const n = Number(e.key);
  if (n >= 1 && n <= views.length && !views[n - 1].hidden?.(state.session)) location.hash = "#/" + views[n - 1].path;
  else if (e.key === "/") { e.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
  else state.view?.key?.(e);
});
begin();
