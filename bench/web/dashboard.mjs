// Drives the dashboard in Chromium: sign-in, live values, the slow worker on the first screen, dead
// letters replayed and discarded, parked deliveries retried and cancelled, the other views, accessible
// names, no console error. It leaves screenshots in out/. PENSTOCK names the binary; CHROMIUM the browser.

import { mkdirSync, existsSync, rmSync, mkdtempSync } from "node:fs";
import { join, dirname } from "node:path";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import assert from "node:assert/strict";
import { receiver, start } from "./site.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const binary = process.env.PENSTOCK || join(here, "../../bin/penstock");
const browserPath = process.env.CHROMIUM || "/usr/bin/chromium";
const out = join(here, "out");
const token = "only-for-this-test";

if (!existsSync(browserPath)) {
  console.log("dashboard: skipped: there is no " + browserPath + " (Debian package chromium)");
  process.exit(0);
}
const { chromium } = await import("playwright-core");
mkdirSync(out, { recursive: true });

let poison = true, closed = true;
const receivers = { fast: await receiver(25), slow: await receiver(900), picky: await receiver(5, (body) => poison && body.includes("poison")), merchant: await receiver(5, () => closed, 503) };
const site = await start(binary, receivers, token);
const profile = mkdtempSync(join(tmpdir(), "penstock-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: browserPath, viewport: { width: 1280, height: 800 }, colorScheme: "light",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = context.pages()[0];
const complaints = [], foreign = [];
let expected = 0; // complaints that a step provokes
page.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") complaints.push(m.text()); });
page.on("pageerror", (e) => complaints.push(String(e)));
page.on("request", (r) => { if (!r.url().startsWith(site.url)) foreign.push(r.url()); });
const done = (what) => console.log("ok  " + what);
const picture = (name) => page.screenshot({ path: join(out, name + ".png") });
const stat = (name) => page.locator(".stats > div", { hasText: name }).locator("dd").innerText();

let failed;
try {
  await page.goto(site.url);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Not signed in").waitFor();
  expected = complaints.length; // the browser reports the 401
  assert.ok(expected <= 1, complaints.join("\n"));
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  const attention = page.locator("#attention");
  await attention.waitFor();
  done("sign-in: a wrong token is refused, the right one opens the overview");
  const weight = await page.evaluate(() => [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
    .filter((e) => !e.name.includes("/api/")).reduce((sum, e) => sum + e.decodedBodySize, 0));
  assert.ok(weight > 100000 && weight < 200000, "the page has " + weight + " bytes");
  done("page weight " + weight + " bytes");

  await page.waitForFunction((slow) => document.querySelector("#attention")?.textContent.includes(slow), receivers.slow.url, { timeout: 30000 });
  const box = await attention.boundingBox();
  assert.ok(box.y + box.height < 800, "the slow worker is not on the first screen");
  assert.match(await attention.innerText(), /Gate \w+: \w+/);
  done("first screen, unscrolled: " + (await attention.innerText()).replaceAll("\n", " | "));

  const idle = page.getByRole("group", { name: "Routes" }).getByRole("button", { name: /orders \/ main/ });
  await idle.click();
  await page.getByText("No worker needs attention.").waitFor();
  assert.deepEqual([await stat("Backlog"), await stat("Time to drain")], ["0 B", "drained"]);
  await page.getByRole("group", { name: "Routes" }).getByRole("button", { name: /shop \/ main/ }).click();
  await page.waitForFunction((slow) => document.querySelector("#attention")?.textContent.includes(slow), receivers.slow.url);
  done("a route with nothing to do needs no attention, and has no backlog");

  const changes = await page.evaluate(() => new Promise((finish) => {
    let n = 0;
    const observer = new MutationObserver(() => n++);
    observer.observe(document.querySelector(".stats"), { subtree: true, childList: true, characterData: true });
    setTimeout(() => { observer.disconnect(); finish(n); }, 4000);
  }));
  assert.ok(changes >= 2, "the figures changed " + changes + " times in 4 s");
  assert.notEqual(await stat("Delivered/s"), "0");
  done("live values changed " + changes + " times in 4 s; " + await stat("Delivered/s") + " records/s");

  await page.keyboard.press("j");
  assert.match(await page.evaluate(() => document.activeElement.textContent), /^http:\/\/127/);
  await page.locator(".workers button", { hasText: receivers.slow.url }).click();
  await page.getByRole("img", { name: /^Window: / }).locator("canvas").waitFor();
  await page.waitForTimeout(7000); // the charts need a few points to look at
  await page.evaluate(() => scrollTo(0, 0));
  await picture("overview-light");
  done("keyboard and the charts of one worker");

  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await page.waitForTimeout(300);
  await picture("overview-dark");
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(1500);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, "the page is " + wide + " wide on a phone");
  const phone = await attention.boundingBox();
  assert.ok(phone.y + phone.height < 844, "the slow worker is not on the first screen of a phone");
  await picture("overview-phone");
  await page.setViewportSize({ width: 1280, height: 800 });
  done("dark, and phone width without sideways scrolling");

  await page.keyboard.press("2");
  const rows = page.getByRole("table", { name: "Dead letters" }).locator("tbody tr");
  await rows.first().waitFor();
  assert.equal(await rows.count(), 5, "dead letters");
  await rows.first().locator("button").click();
  await page.locator(".detail pre").waitFor();
  assert.match(await page.locator(".detail pre").innerText(), /poison/);
  await picture("dead-letters");
  poison = false;
  await rows.first().getByRole("checkbox").check();
  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();
  await page.getByText("1 letter replayed: 1 delivered").waitFor({ timeout: 30000 });
  await page.waitForFunction(() => document.querySelectorAll(".split tbody tr").length === 4);
  assert.equal([...receivers.picky.state.lines].filter((l) => l.includes("poison")).length, 1);
  done("one dead letter inspected and replayed: the receiver has it");
  await rows.nth(0).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Discard" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Discard" }).click();
  await page.getByText("1 letter discarded").waitFor({ timeout: 30000 });
  await page.waitForFunction(() => document.querySelectorAll(".split tbody tr").length === 3);
  await page.getByRole("button", { name: "Replay" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Replay" }).click();
  await page.getByText("3 letters replayed: 3 delivered").waitFor({ timeout: 30000 });
  assert.equal([...receivers.picky.state.lines].filter((l) => l.includes("poison")).length, 4);
  assert.equal(receivers.picky.state.records, 39, "each record but the discarded one arrived once");
  done("one discarded, the others replayed: 39 of 40 records arrived, each once");

  await page.keyboard.press("6");
  const parked = page.getByRole("table", { name: "Parked deliveries" }).locator("tbody tr");
  await page.waitForFunction(() => document.querySelectorAll("table[aria-label='Parked deliveries'] tbody tr").length === 6);
  await parked.filter({ hasText: "order-1" }).locator("button").click();
  await page.locator(".history").getByText("503").waitFor();
  await page.locator("#health").getByText("ready", { exact: true }).waitFor(); // the replay has ended
  await picture("parked");
  closed = false;
  await parked.filter({ hasText: "order-1" }).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Attempt now" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Attempt now" }).click();
  await page.getByText("1 delivery due now").waitFor();
  await parked.filter({ hasText: "order-1" }).getByText("done").waitFor({ timeout: 30000 });
  assert.equal([...receivers.merchant.state.lines].filter((l) => l.includes("order-1")).length, 1);
  await parked.filter({ hasText: "order-2" }).getByRole("checkbox").check();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel 1 delivery" }).click();
  await parked.filter({ hasText: "order-2" }).getByText("cancelled").waitFor({ timeout: 30000 });
  await page.getByLabel("State").selectOption("waiting");
  await page.waitForFunction(() => document.querySelectorAll("table[aria-label='Parked deliveries'] tbody tr").length === 4);
  await page.getByLabel("Key").fill("order-3");
  await page.waitForFunction(() => document.querySelectorAll("table[aria-label='Parked deliveries'] tbody tr").length === 1);
  done("of six parked deliveries one is attempted and accepted, one cancelled, four wait");

  await page.keyboard.press("Escape");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("3");
  await page.getByText("pipelines:").waitFor();
  assert.ok(!(await page.locator("main").innerText()).includes(token), "the token is shown");
  await picture("configuration");
  await page.keyboard.press("4");
  await page.locator(".tree summary", { hasText: "shop" }).first().waitFor();
  await picture("supervision");
  await page.keyboard.press("5");
  await page.getByRole("log").getByText("dead letters replayed").first().waitFor();
  await page.getByLabel("Log level").selectOption("debug");
  await page.getByRole("log").getByText("log level changed").waitFor();
  await picture("log");
  done("configuration without the token, supervision tree, log and its level");

  for (const key of ["1", "2", "3", "4", "5", "6"]) {
    await page.keyboard.press("Escape");
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press(key);
    await page.waitForTimeout(400);
    const nameless = await page.evaluate(() => [...document.querySelectorAll("a, button, input, select, table, [role=img], [role=log]")].filter((e) => {
      const label = e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || e.title;
      return e.offsetParent !== null && !label.trim();
    }).map((e) => e.outerHTML.slice(0, 100)));
    assert.deepEqual(nameless, [], "elements without an accessible name");
  }
  done("all controls have accessible names");

  const response = await page.request.get(site.url + "/");
  assert.match(response.headers()["content-security-policy"], /default-src 'none'/);
  const forged = await page.request.post(site.url + "/api/v1/dead/replay", {
    headers: { Origin: "http://evil.example", "Sec-Fetch-Site": "cross-site" }, data: { pipeline: "orders", route: "main", all: true },
  });
  assert.equal(forged.status(), 403);
  done("a POST of another site is refused");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  done("sign-out");
  assert.deepEqual(complaints.slice(expected), [], "console");
  assert.deepEqual(foreign, [], "requests to others");
  done("no console error, no request to others");
} catch (err) {
  failed = err;
  await picture("failed").catch(() => {});
  console.log("console: " + JSON.stringify(complaints));
  console.log(site.log().split("\n").slice(-15).join("\n"));
}
await context.close();
await site.stop();
rmSync(profile, { recursive: true, force: true });
for (const r of Object.values(receivers)) { r.server.closeAllConnections(); r.server.close(); }
if (failed) {
  console.error(failed);
  process.exit(1);
}
