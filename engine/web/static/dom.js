// Small helpers. Text from the engine only ever becomes text nodes, never markup.

// h creates an element. Attributes: on* are listeners, "class" and others are set as given.
export function h(tag, attrs, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== false) e.append(child);
  }
  return e;
}

// text sets the text of an element if it differs, to avoid repainting.
export function text(e, value) {
  value = String(value);
  if (e.textContent !== value) e.textContent = value;
}

// attr sets an attribute if it differs.
export function attr(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

let timer;
export function toast(message) {
  const e = document.getElementById("toast");
  e.textContent = message;
  clearTimeout(timer);
  timer = setTimeout(() => { e.textContent = ""; }, 6000);
}

// confirmed asks in a dialog and resolves to true or false.
export function confirmed(title, words, action, danger) {
  return new Promise((resolve) => {
    const d = h("dialog", { "aria-label": title, onclose: () => { resolve(d.returnValue === "yes"); d.remove(); } },
      h("h1", {}, title), h("p", { class: "soft" }, words),
      h("div", { class: "row" }, h("span", { class: "grow" }),
        h("button", { type: "button", onclick: () => d.close("no") }, "Cancel"),
        h("button", { type: "button", class: danger ? "danger" : "primary", onclick: () => d.close("yes") }, action)));
    document.body.append(d);
    d.showModal();
  });
}

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

// api calls the engine. body makes it a POST of JSON.
export async function api(path, body) {
  const options = body === undefined ? {} :
    { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch("/api/v1/" + path, options);
  const content = await response.text();
  const json = (response.headers.get("Content-Type") || "").startsWith("application/json");
  const value = json ? JSON.parse(content) : content;
  if (!response.ok) throw new Refused(response.status, json ? value.error || response.statusText : content.trim());
  return value;
}
