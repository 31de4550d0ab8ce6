//go:build linux

package faults

import (
	"fmt"
	"strings"
	"time"
)

// answers returns an HTTP/1.1 response with a status, header lines and a body of two bytes.
func answers(status string, header ...string) string {
	text := "HTTP/1.1 " + status + "\r\n"
	for _, h := range header {
		text += h + "\r\n"
	}
	return text + "Content-Length: 2\r\n\r\nno"
}

// badReply is a faulty reply of a receiver. effect is the outcome of a run in which the receiver
// always replies in this way.
type badReply struct {
	reply
	effect effect
}

// badReplies are the faults of receivers. The receiver stores the records even if its reply does
// not reach the client, unless discard is set.
var badReplies = []badReply{
	{reply{name: "closes at once", atOnce: true, end: closeConn}, blocks},
	{reply{name: "resets at once", atOnce: true, end: resetConn}, blocks},
	{reply{name: "greets like SSH", atOnce: true, answer: "SSH-2.0-OpenSSH_9.2\r\n",
		end: closeConn}, blocks},
	{reply{name: "closes after the head", part: -1, end: closeConn}, blocks},
	{reply{name: "resets after the head", part: -1, end: resetConn}, blocks},
	{reply{name: "closes in the body", part: 1000, end: closeConn}, blocks},
	{reply{name: "resets in the body", part: 1000, end: resetConn}, blocks},
	{reply{name: "closes without an answer", discard: true, end: closeConn}, blocks},
	{reply{name: "stores and closes without an answer", end: closeConn}, blocks},
	{reply{name: "stores and resets", end: resetConn}, blocks},
	{reply{name: "stores and hangs", end: hang}, blocks},
	{reply{name: "hangs", discard: true, end: hang}, blocks},
	{reply{name: "stops in the body and hangs", part: 1000, end: hang}, blocks},
	{reply{name: "half a status line", discard: true, answer: "HTTP/1.1 20", end: closeConn},
		blocks},
	{reply{name: "status line only", discard: true, answer: "HTTP/1.1 200 OK\r\n", end: closeConn},
		blocks},
	{reply{name: "half a header", discard: true, answer: "HTTP/1.1 200 OK\r\nContent-Le",
		end: closeConn}, blocks},
	{reply{name: "half a header and hangs", discard: true, answer: "HTTP/1.1 200 OK\r\nContent-Le",
		end: hang}, blocks},
	{reply{name: "no status", discard: true, answer: "HTTP/1.1 \r\n\r\n", end: closeConn}, blocks},
	{reply{name: "a status of five digits", discard: true, answer: "HTTP/1.1 20000 OK\r\n\r\n",
		end: closeConn},
		blocks},
	{reply{name: "HTML without a status", discard: true, answer: "<html>200 OK</html>\r\n\r\n",
		end: closeConn},
		blocks},
	{reply{name: "zeros", discard: true, answer: strings.Repeat("\x00", 4096), end: closeConn},
		blocks},
	{reply{name: "an endless header", discard: true,
		answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n",
			300_000), end: closeConn}, blocks},
	{reply{name: "only 100 Continue", discard: true, answer: "HTTP/1.1 100 Continue\r\n\r\n",
		end: closeConn}, blocks},
	{reply{name: "100 without end", discard: true, answer: "HTTP/1.1 100 Continue\r\n\r\n",
		repeat: 2000,
		end:    closeConn}, blocks},
	{reply{name: "102 and hangs", discard: true, answer: "HTTP/1.1 102 Processing\r\n\r\n",
		end: hang}, blocks},
	{reply{name: "103 then 200", answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" +
		answers("200 OK")}, passes},
	{reply{name: "101 Switching Protocols", discard: true,
		answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
		end:    closeConn},
		blocks},
	{reply{name: "408", discard: true, answer: answers("408 Request Timeout")}, blocks},
	{reply{name: "425", discard: true, answer: answers("425 Too Early")}, blocks},
	{reply{name: "429 for 0 s", discard: true,
		answer: answers("429 Too Many Requests", "Retry-After: 0")}, blocks},
	{reply{name: "429 with a garbage Retry-After", discard: true,
		answer: answers("429 Too Many Requests",
			"Retry-After: -7x")}, blocks},
	{reply{name: "500", discard: true, answer: answers("500 Internal Server Error")}, blocks},
	{reply{name: "500 but stored", answer: answers("500 Internal Server Error")}, blocks},
	{reply{name: "503 for 1 s", discard: true,
		answer: answers("503 Service Unavailable", "Retry-After: 1")}, pauses},
	{reply{name: "507 and close", discard: true,
		answer: answers("507 Insufficient Storage", "Connection: close"),
		end:    closeConn}, blocks},
	{reply{name: "599", discard: true, answer: answers("599 Strange")}, blocks},
	{reply{name: "401", discard: true, answer: answers("401 Unauthorized")}, pauses},
	{reply{name: "404", discard: true, answer: answers("404 Not Found")}, pauses},
	{reply{name: "307 to itself", discard: true,
		answer: answers("307 Temporary Redirect", "Location: /in")}, pauses},
	{reply{name: "413 for all", discard: true, answer: answers("413 Content Too Large")}, rejects},
	{reply{name: "400 for all", discard: true, answer: answers("400 Bad Request")}, rejects},
	{reply{name: "422 and close", discard: true, answer: answers("422 Unprocessable"),
		end: closeConn}, rejects},
	{reply{name: "200 and the body ends early",
		answer: "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nok",
		end:    closeConn}, decides},
	{reply{name: "200 and the body never ends",
		answer: "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nok", end: hang},
		decides},
	{reply{name: "200 and chunked garbage",
		answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok",
		end:    closeConn}, decides},
	{reply{name: "200 with two lengths",
		answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 7\r\n\r\nok",
		end:    closeConn}, decides},
	{reply{name: "200 with a negative length",
		answer: "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
		end:    closeConn}, decides},
	{reply{name: "200 with 5 MB of body",
		answer: "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" +
			strings.Repeat("k", 5_000_000)}, decides},
	{reply{name: "200 without a length, to the close", answer: "HTTP/1.1 200 OK\r\n\r\nok",
		end: closeConn}, passes},
	{reply{name: "200 as HTTP/1.0", answer: "HTTP/1.0 200 OK\r\n\r\nok", end: closeConn}, passes},
	{reply{name: "200 with bare line feeds", answer: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
		decides},
	{reply{name: "204", answer: "HTTP/1.1 204 No Content\r\n\r\n"}, passes},
	{reply{name: "200 and closes without notice", answer: answers("200 OK"), end: closeConn},
		passes},
	{reply{name: "200 and resets", answer: answers("200 OK"), end: resetConn}, decides},
	{reply{name: "200 with close, kept open", answer: answers("200 OK", "Connection: close"),
		end: hang}, passes},
	{reply{name: "200 sent twice", answer: answers("200 OK"), repeat: 1}, decides},
	{reply{name: "200 byte by byte", answer: answers("200 OK"), drip: 2 * time.Millisecond},
		passes},
	{reply{name: "200 after 300 ms", answer: answers("200 OK"), wait: 300 * time.Millisecond},
		passes},
	{reply{name: "200 after the deadline", answer: answers("200 OK"), wait: 2 * time.Second},
		blocks},
}

// httpCases returns cases for each bad reply, with two or three schedules each. The cases alternate
// between HTTP and HTTPS, and between the sources.
func httpCases() (table []faultCase) {
	for i, bad := range badReplies {
		for j, when := range []schedule{firstThree, everyThird, always} {
			secure := (i+j)%2 == 1
			if when.name == "first three" &&
				(bad.effect == pauses || bad.wait > time.Second || bad.end == hang) {
				when = firstOne
			}
			if when.name == "every third" &&
				(bad.effect == pauses || bad.wait > time.Second || bad.end == hang ||
					bad.effect == rejects) {
				continue // the pauses would take a minute
			}
			table = append(table, httpCase(bad, when, secure, sources[(i+j)%len(sources)]))
		}
	}
	return append(table, incompleteRequests()...)
}

func httpCase(bad badReply, when schedule, secure bool, from source) faultCase {
	transport, ca := "plain", ""
	if secure {
		transport, ca = "TLS", ", tls: { ca: ./ca.pem }"
	}
	d := delivery{
		source:   from,
		sink:     `http: { endpoints: ["{url}"], body: raw` + ca + ` }`,
		receiver: func(r *rig, when schedule) *receiver { return r.receive(bad.reply, when, secure) },
	}
	c := d.as(fmt.Sprintf("http/%s/%s/%s/%s", bad.name, when.name, transport, from.name),
		bad.effect, when)
	c.slow = c.slow || bad.end == hang
	return c
}

// incompleteRequests are receivers that answer a large request before they have read it.
func incompleteRequests() (table []faultCase) {
	for _, secure := range []bool{false, true} {
		for _, early := range []reply{
			{name: "2xx at the head, then resets", early: answers("200 OK"), part: -1,
				end: resetConn},
			{name: "2xx at the head, then closes", early: answers("200 OK"), part: -1,
				end: closeConn},
			{name: "2xx at the head, then stops reading", early: answers("200 OK"), part: -1,
				end: hang},
			{name: "2xx in the body, then resets", part: 300_000, answer: answers("200 OK"),
				end: resetConn},
			{name: "2xx in the body, then stops reading", part: 300_000, answer: answers("200 OK"),
				end: hang},
			{name: "500 at the head, then stops reading", early: answers("500 Oops"), part: -1,
				end: hang},
			{name: "204 at the head, then resets", early: "HTTP/1.1 204 No Content\r\n\r\n",
				part: -1, end: resetConn},
		} {
			for _, when := range []schedule{firstOne, always} {
				transport := map[bool]string{false: "plain", true: "TLS"}[secure]
				d := largeRequests(early, secure)
				c := d.as(fmt.Sprintf("http-incomplete/%s/%s/%s", early.name, when.name, transport),
					blocks, when)
				c.holds, c.slow = "an answer to a request that was not sent whole is no delivery",
					secure
				table = append(table, c)
			}
		}
	}
	return table
}

func largeRequests(early reply, secure bool) delivery {
	ca := ""
	if secure {
		ca = ", tls: { ca: ./ca.pem }"
	}
	return delivery{
		count: 24_000, size: 1000, batch: "{ records: 50000, bytes: 12MiB, linger: 100ms }",
		batchRecords: 12_000,
		options:      "memory: 64MiB\n    checkpoint: { replay: 64MiB }",
		sink:         `http: { endpoints: ["{url}"], body: raw` + ca + ` }`,
		receiver: func(r *rig, when schedule) *receiver {
			s := r.receive(early, when, secure)
			s.rcvbuf = 256 << 10
			return s
		},
	}
}
