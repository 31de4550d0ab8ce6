// A penstock that runs beside its receivers: three endpoints, of which one is slow and one refuses
// some records at first, and a merchant that gets notifications.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, writeFileSync, appendFileSync, mkdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// receiver starts an HTTP server that answers after ms. It refuses a batch with a status while refuses(body) is true.
export function receiver(ms, refuses = () => false, status = 422) {
  const state = { records: 0, lines: new Set() };
  let busy = Promise.resolve(), working = 0;
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (d) => { body += d; });
    request.on("end", async () => {
      if (ms > 100) await (busy = busy.then(() => sleep(ms))); // a slow one serves one request after another
      else {
        working++;
        await sleep(ms * Math.max(1, working / 4)); // as if four at once were its capacity
        working--;
      }
      if (refuses(body)) {
        response.writeHead(status).end((status === 422 ? "this receiver takes no line with the word poison\n" : "closed until tomorrow\n"));
        return;
      }
      for (const line of body.split("\n")) if (line) { state.records++; state.lines.add(line); }
      response.end();
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ server, state, url: "http://127.0.0.1:" + server.address().port })));
}

// start runs penstock with a config for the receivers and returns when its dashboard answers.
export async function start(binary, { fast, slow, picky, merchant }, token) {
  const dir = mkdtempSync(join(tmpdir(), "penstock-web-"));
  const logs = join(dir, "logs");
  mkdirSync(logs);
  let n = 0;
  const write = (lines) => {
    let text = "";
    for (let i = 0; i < lines; i++, n++) {
      text += `line ${n} GET /shop/item/${n % 977} status=${n % 50 ? 200 : 503} bytes=${(n * 7919) % 90000}\n`;
    }
    appendFileSync(join(logs, "shop.log"), text);
  };
  write(600000);
  writeFileSync(join(logs, "audit.log"), Array.from({ length: 40 }, (_, i) => `order ${i} ${i % 8 ? "paid" : "poison"}\n`).join(""));
  writeFileSync(join(logs, "paid.ndjson"), Array.from({ length: 6 }, (_, i) => JSON.stringify({ order: "order-" + i, url: merchant.url + "/paid" }) + "\n").join(""));
  const config = join(dir, "penstock.yaml");
  writeFileSync(config, `state: ${dir}/state
admin: { address: "127.0.0.1:0", token: "${token}" }
pipelines:
  shop:
    source: { tail: { include: ["${logs}/shop.log"], start: beginning } }
    processors: [{ where: 'message contains "line"' }]
    batch: { records: 100, linger: 50ms }
    flow: { timeout: 20s }
    sink: { http: { endpoints: ["${fast.url}", "${slow.url}"], body: raw } }
  orders:
    source: { tail: { include: ["${logs}/audit.log"], start: beginning } }
    batch: { records: 10, linger: 50ms }
    guard: { off: true }
    sink: { http: { endpoints: ["${picky.url}/orders"], body: raw } }
  paid:
    source: { tail: { include: ["${logs}/paid.ndjson"], start: beginning } }
    processors: [{ parse: { format: json } }]
    sink:
      http:
        url: url
        allow: { hosts: [127.0.0.1], ports: [${new URL(merchant.url).port}], http: true, private: true }
        idempotency_key: order
        schedule: [1h, 3h]
`);
  const child = spawn(binary, ["run", config], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (d) => { log += d; });
  const ended = new Promise((done) => child.on("exit", done));
  const begun = Date.now();
  let url;
  while (!url) {
    const m = /address=(127\.0\.0\.1:\d+)/.exec(log);
    if (m) url = "http://" + m[1];
    else if (child.exitCode !== null || Date.now() - begun > 20000) throw new Error("penstock did not start:\n" + log);
    else await sleep(50);
  }
  const feed = setInterval(() => write(4000), 500);
  return {
    url, dir, log: () => log,
    async stop() {
      clearInterval(feed);
      child.kill("SIGTERM");
      setTimeout(() => child.kill("SIGTERM"), 1000).unref(); // a slow receiver would make it wait
      await ended;
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
