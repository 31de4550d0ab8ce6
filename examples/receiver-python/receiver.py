"""An HTTP receiver that tells its senders how much it will take (docs/formats/advertised-window.md).

    python3 receiver.py 127.0.0.1:8080

It serves four batches at once, 20 ms each. Each sender gets an even share of a pool that is twice the slots: enough that
a slot never waits for the network, and little that waits. A worker that wants to adapt does it as flow.Receiver does.
"""
import http.server, sys, threading, time

SLOTS, POOL, EPOCH = 4, 8, int(time.time()) % (1 << 31)
slots, lock, taken, seen = threading.Semaphore(SLOTS), threading.Lock(), {}, {}


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        came = time.monotonic()
        sender = self.headers.get("Penstock-Sender", self.client_address[0]).split(";")[0]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with slots:
            began = time.monotonic()
            time.sleep(0.02)  # the work
        done = time.monotonic()
        with lock:
            taken[sender], seen[sender] = taken.get(sender, 0) + 1, done
            share = max(1, POOL // sum(done - at < 5 for at in seen.values()))
            grant = f"epoch={EPOCH}; credit={taken[sender] + share}; taken={taken[sender]}; slots={SLOTS}; unit=batches"
        grant += f"; wait={int((began - came) * 1e6)}; service={int((done - began) * 1e6)}"
        self.send_response(200)
        self.send_header("Penstock-Credit", grant)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080").partition(":")
server = http.server.ThreadingHTTPServer((host, int(port)), Receiver)
print(f"{host}:{server.server_port}", flush=True)
server.serve_forever()
