package httpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// connection is a connection from which a body is read. A read after its deadline fails.
type connection struct {
	nethttp.ResponseWriter
	body     io.Reader
	deadline time.Time
}

// SetReadDeadline implements the optional method for nethttp.ResponseController.
func (c *connection) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// Read implements io.Reader.
func (c *connection) Read(p []byte) (int, error) {
	if !c.deadline.After(time.Now()) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.body.Read(p)
}

// Close implements io.Closer.
func (c *connection) Close() error { return nil }

// newBody returns a reader of a body of unknown length, and the intake in which the reader reserves
// memory for the body.
func newBody(t *testing.T, body []byte, encoding string) (*bodyReader, *intake.Intake) {
	t.Helper()
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	in, err := intake.New(intake.Options{MaxBytes: 16 << 20}, h)
	if err != nil {
		t.Fatal(err)
	}
	c := &connection{body: bytes.NewReader(body)}
	r := &nethttp.Request{Body: c, ContentLength: -1, Header: nethttp.Header{}}
	r.Header.Set("Content-Encoding", encoding)
	b := &bodyReader{o: DefaultOptions(), r: r, conn: nethttp.NewResponseController(c),
		begun: time.Now(), until: time.Now().Add(time.Hour)}
	if b.room, err = in.Reserve(t.Context(), b.initial()); err != nil {
		t.Fatal(err)
	}
	return b, in
}

// trickle is a body of which each read returns one byte after an interval.
type trickle struct{ every time.Duration }

// Read implements io.Reader.
func (d trickle) Read(p []byte) (int, error) {
	time.Sleep(d.every)
	p[0] = 'x'
	return 1, nil
}

// TestSlowBody checks that a body that comes at less than 1 KiB/s is refused with 408 after 10 s,
// and that a faster one may take until the deadline of the request.
func TestSlowBody(t *testing.T) {
	for every, want := range map[time.Duration][2]time.Duration{
		time.Second:                   {graceRead, graceRead + time.Second},
		time.Second / (leastRate + 1): {time.Minute, time.Minute + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := newBody(t, nil, "identity")
			b.r.Body.(*connection).body, b.until = trickle{every}, time.Now().Add(time.Minute)
			begun := time.Now()
			_, err := b.read(t.Context())
			took := time.Since(begun)
			if e, ok := errors.AsType[*statusError](err); !ok || e.status != 408 ||
				took < want[0] || took > want[1] {
				t.Errorf("a byte every %v: %v after %v, want status 408 after %v", every, err, took,
					want[0])
			}
		})
	}
}

// TestBodyWaitsForRoom checks that a client is not refused as too slow because its body has waited
// for free memory of the source.
func TestBodyWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := make([]byte, 1<<20)
		b, in := newBody(t, body, "identity")
		other, err := in.Reserve(t.Context(), 16<<20-in.Held())
		if err != nil {
			t.Fatal(err)
		}
		ahead, err := in.Reserve(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := ahead.Grow(t.Context(), 1); err != nil { // it alone may exceed the limit
			t.Fatal(err)
		}
		go func() {
			time.Sleep(10 * graceRead)
			ahead.Release()
			other.Release()
		}()
		got, err := b.read(t.Context())
		if err != nil || len(got) != len(body) {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(body))
		}
	})
}

// TestMalformedAtDeadline checks that a malformed body gets status 400, and not 503, if the deadline
// passes or the client disconnects while the body is decoded.
func TestMalformedAtDeadline(t *testing.T) {
	o := DefaultOptions()
	o.Listen, o.Format = "127.0.0.1:0", NDJSON
	s, err := New(*o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.decode = func(string, []byte, int, room) (decoded, error) {
		cancel()
		return decoded{}, errors.New("not a record")
	}
	r := httptest.NewRequest(nethttp.MethodPost, "/", strings.NewReader("x"))
	_, _, _, err = s.receive(ctx, httptest.NewRecorder(), r)
	if e, ok := errors.AsType[*statusError](err); !ok || e.status != nethttp.StatusBadRequest {
		t.Errorf("%v, want status 400", err)
	}
}

// TestCutBody checks that a body is refused with status 400 if the connection ends within it. The
// connection may end between two frames of zstd, or between two members of gzip.
func TestCutBody(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var long []byte // its frame is longer than the header that is read before the decoder is made
	for i := range 100 {
		long = fmt.Appendf(long, "line %d\n", i)
	}
	var zipped bytes.Buffer
	g := gzip.NewWriter(&zipped)
	if _, err := g.Write([]byte("a\n")); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for encoding, body := range map[string][]byte{
		"identity": []byte("a\n"), "zstd": z.EncodeAll(long, nil), "gzip": zipped.Bytes(),
		"snappy": snappy.Encode(nil, []byte("a\n")),
	} {
		b, _ := newBody(t, nil, encoding)
		cut := iotest.ErrReader(io.ErrUnexpectedEOF)
		b.r.Body.(*connection).body = io.MultiReader(bytes.NewReader(body), cut)
		got, err := b.read(t.Context())
		if e, ok := errors.AsType[*statusError](err); !ok || e.status != 400 ||
			!strings.Contains(err.Error(), "ended early") {
			t.Errorf("%s: read %q, %v; want status 400", encoding, got, err)
		}
	}
}

// TestWindowIsReserved checks that the window of a zstd decoder is reserved before it is allocated,
// also if the body is short.
func TestWindowIsReserved(t *testing.T) {
	var body bytes.Buffer
	z, err := zstd.NewWriter(&body, zstd.WithWindowSize(maxWindow))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // frames
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		z.Reset(&body)
	}
	b, in := newBody(t, body.Bytes(), "zstd")
	plain, done, err := b.decompress(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if held := in.Held(); held < maxWindow {
		t.Errorf("%d bytes are reserved for a window of %d", held, maxWindow)
	}
	if got, err := io.ReadAll(plain); err != nil || len(got) != 2<<20 {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

// TestWindowOfLaterFrames checks that a later frame may have a larger window than the first one, up
// to maxWindow, and that a window larger than that is refused.
func TestWindowOfLaterFrames(t *testing.T) {
	frame := func(size int) []byte {
		enc, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
		if err != nil {
			t.Fatal(err)
		}
		return enc.EncodeAll(make([]byte, size), nil)
	}
	for _, c := range []struct {
		first, second int
		ok            bool
	}{{10, leastWindow + 1, true}, {10, maxWindow, true}, {10, maxWindow + 1, false}} {
		b, _ := newBody(t, append(frame(c.first), frame(c.second)...), "zstd")
		plain, done, err := b.decompress(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, plain)
		done()
		if (err == nil) != c.ok {
			t.Errorf("frames of %d and %d bytes: %v", c.first, c.second, err)
		}
	}
}
