package push_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// fixture is a server with its only route.
type fixture struct {
	*push.Server
	t      *testing.T
	host   *streamtest.Quiet
	reader stream.Reader
	mark   stream.Mark
}

// quiet returns a host that runs no goroutine.
func quiet() *streamtest.Quiet {
	return streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
}

func newFixture(t *testing.T, o *push.ServerOptions) *fixture {
	t.Helper()
	f := &fixture{t: t, host: quiet()}
	var err error
	if f.Server, err = push.NewServer(o, intake.Options{Name: "test"}, f.host); err != nil {
		t.Fatal(err)
	}
	f.reader, err = f.Open(t.Context(), stream.OpenOptions{
		Route:  streamtest.Route,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// submit submits one record in a request with ctx.
func (f *fixture) submit(ctx context.Context, record string) *intake.Submission {
	f.t.Helper()
	room, err := f.Admit(ctx, int64(len(record)+1))
	if err != nil {
		f.t.Fatal(err)
	}
	sub, err := room.Submit(intake.Lines([]byte(record+"\n")), true)
	if err != nil {
		f.t.Fatal(err)
	}
	return sub
}

// read reads a batch and returns its records.
func (f *fixture) read(ctx context.Context) (records []string, b *stream.Batch, err error) {
	b = stream.NewBatch(stream.BatchLimits{Bytes: 1 << 10, Records: 10})
	err = f.reader.Read(ctx, b)
	b.Split()
	for i := range b.Records {
		records = append(records, string(b.Text(i)))
	}
	return records, b, err
}

// settle settles a batch that was read in order.
func (f *fixture) settle(b *stream.Batch) {
	for _, s := range b.Spans {
		f.mark.Part, f.mark.Watermark = *s.Part, s.To
	}
	f.reader.(stream.SettledReader).Settled([]stream.Mark{f.mark})
}

// counts returns the counters that are not zero.
func (f *fixture) counts() string {
	var out []string
	for _, name := range []string{
		"requests_busy", "requests_unauthorized", "requests_unknown", "requests_withdrawn",
	} {
		if n := f.host.Counted(name); n != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(out, " ")
}

// TestAwait checks the outcome of a request for each stage that its record can reach before the
// request ends.
func TestAwait(t *testing.T) {
	errGone := errors.New("the client has gone")
	for name, c := range map[string]struct {
		read, settle bool
		joined       bool  // another request with the same id withdraws the record
		cancel       error // the client ends the request after 1s; nil: the deadline ends it
		unknown      bool
		err          string
		counts       string
	}{
		"settled":            {read: true, settle: true},
		"deadline, not read": {err: "the deadline has passed", counts: "requests_withdrawn=1"},
		"deadline, read": {
			read: true, unknown: true, err: "the deadline has passed", counts: "requests_unknown=1",
		},
		"client gone, no read": {cancel: errGone, err: errGone.Error(), counts: "requests_withdrawn=1"},
		"client gone, read": {
			read: true, cancel: errGone, unknown: true, err: errGone.Error(),
			counts: "requests_unknown=1",
		},
		"withdrawn by another": {
			joined: true, err: intake.ErrWithdrawn.Error(), counts: "requests_withdrawn=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := serverOptions()
				f := newFixture(t, o)
				outer, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cancel != nil {
					time.AfterFunc(time.Second, func() { cancel(c.cancel) })
				}
				ctx, end := f.WithDeadline(outer)
				defer end()
				start, sub := time.Now(), f.submit(ctx, "record")
				var b *stream.Batch
				if c.read {
					var err error
					if _, b, err = f.read(ctx); err != nil {
						t.Fatal(err)
					}
				}
				if c.settle {
					time.AfterFunc(2*time.Second, func() { f.settle(b) })
				}
				if c.joined {
					time.AfterFunc(2*time.Second, func() { sub.Withdraw(t.Context()) })
				}
				unknown, err := f.Await(ctx, sub, 7)
				if unknown != c.unknown {
					t.Errorf("unknown = %v, want %v", unknown, c.unknown)
				}
				checkError(t, err, c.err)
				want := o.Deadline
				if c.cancel != nil {
					want = time.Second
				} else if c.settle || c.joined {
					want = 2 * time.Second
				}
				if took := time.Since(start); took != want {
					t.Errorf("Await took %v, want %v", took, want)
				}
				if got := f.counts(); got != c.counts {
					t.Errorf("counters %q, want %q", got, c.counts)
				}
				if held := f.Held() > 0; held != c.unknown {
					t.Errorf("data is held: %v, want %v", held, c.unknown)
				}
				// a record with an unknown outcome is still delivered
				if c.unknown {
					f.settle(b)
					if f.Held() != 0 {
						t.Error("data is held after it was settled")
					}
				}
			})
		})
	}
}

// TestAdmit checks that a request waits for room for at most half of its deadline, and that all
// room is free again at the end.
func TestAdmit(t *testing.T) {
	errGone := errors.New("the client has gone")
	for name, c := range map[string]struct {
		bytes  stream.Size
		cancel time.Duration // when the client goes; 0: it stays
		free   time.Duration // when room becomes free; 0: never
		drain  time.Duration // when the only route drains; 0: never
		took   time.Duration
		err    string
	}{
		"fits":  {bytes: intake.MinMemory / 2},
		"freed": {bytes: intake.MinMemory, free: 3 * time.Second, took: 3 * time.Second},
		"full":  {bytes: intake.MinMemory, took: 5 * time.Second, err: "the source is full"},
		"freed late": {
			bytes: intake.MinMemory, free: 6 * time.Second, took: 5 * time.Second,
			err: "the source is full",
		},
		"too large": {bytes: intake.MinMemory + 1, err: intake.ErrTooLarge.Error()},
		"client gone": {
			bytes: intake.MinMemory, cancel: time.Second, took: time.Second, err: errGone.Error(),
		},
		"drained": {
			bytes: intake.MinMemory, drain: 2 * time.Second, took: 2 * time.Second,
			err: intake.ErrDraining.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, serverOptions())
				first, err := f.Admit(t.Context(), int64(intake.MinMemory/2))
				if err != nil {
					t.Fatal(err)
				}
				outer, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				for _, event := range []struct {
					at time.Duration
					do func()
				}{
					{c.cancel, func() { cancel(errGone) }}, {c.free, first.Release},
					{c.drain, f.reader.(stream.DrainingReader).Drain},
				} {
					if event.at > 0 {
						time.AfterFunc(event.at, event.do)
					}
				}
				ctx, end := f.WithDeadline(outer)
				defer end()
				start := time.Now()
				room, err := f.Admit(ctx, int64(c.bytes))
				if took := time.Since(start); took != c.took {
					t.Errorf("Admit took %v, want %v", took, c.took)
				}
				checkError(t, err, c.err)
				if err == nil {
					room.Release()
				}
				time.Sleep(10 * time.Second)
				first.Release() // it may already be released
				if held := f.Held(); held != 0 {
					t.Errorf("%d bytes are held at the end", held)
				}
			})
		})
	}
}

// TestRefusesWhileDraining checks that a request is refused from the start of a drain, and accepted
// again when the route is opened again.
func TestRefusesWhileDraining(t *testing.T) {
	f := newFixture(t, serverOptions())
	late, err := f.Admit(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	f.reader.(stream.DrainingReader).Drain()
	if _, err := f.Admit(t.Context(), 10); !errors.Is(err, intake.ErrDraining) {
		t.Errorf("Admit: %v, want %v", err, intake.ErrDraining)
	}
	_, err = late.Submit(intake.Lines([]byte("late\n")), true)
	if !errors.Is(err, intake.ErrDraining) {
		t.Errorf("Submit: %v, want %v", err, intake.ErrDraining)
	}
	if records, _, err := f.read(t.Context()); err != io.EOF || len(records) > 0 {
		t.Errorf("the draining route reads %q, %v", records, err)
	}
	if f.reader, err = f.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Resume: func(string) (stream.Mark, bool) { return f.mark, false },
	}); err != nil {
		t.Fatal(err)
	}
	room, err := f.Admit(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	room.Release()
	if held := f.Held(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}

// TestClients checks the names of authorized clients, and that other requests are counted.
func TestClients(t *testing.T) {
	for name, c := range map[string]struct {
		token  string
		tokens listen.Tokens
		header string
		client string
		ok     bool
	}{
		"none needed": {ok: false},
		"token":       {token: "12345678", header: "Bearer 12345678", ok: true},
		"wrong token": {token: "12345678", header: "Bearer 12345679"},
		"missing":     {token: "12345678"},
		"named": {
			tokens: listen.Tokens{"a": "12345678", "b": "87654321"}, header: "ApiKey 87654321",
			client: "b", ok: true,
		},
		"wrong by named": {tokens: listen.Tokens{"a": "12345678"}, header: "Bearer a"},
	} {
		t.Run(name, func(t *testing.T) {
			o := serverOptions()
			o.Token, o.Tokens = c.token, c.tokens
			f := newFixture(t, o)
			if got, want := f.HasTokens(), c.token != "" || len(c.tokens) > 0; got != want {
				t.Errorf("HasTokens = %v, want %v", got, want)
			}
			client, ok := f.Client(c.header)
			if client != c.client || ok != c.ok {
				t.Errorf("Client = %q, %v; want %q, %v", client, ok, c.client, c.ok)
			}
			if refused := f.host.Counted("requests_unauthorized") == 1; refused == c.ok {
				t.Errorf("counted as unauthorized: %v", refused)
			}
		})
	}
}

// TestRetryAfter checks the time that a refused client is told to wait. It must be the time in
// which the held bytes are settled at the measured rate.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, serverOptions())
		if after := f.RetryAfter(); after < 12*time.Second || after > 18*time.Second {
			t.Errorf("RetryAfter without a measurement = %v, want about 15s", after)
		}
		ctx, end := f.WithDeadline(t.Context())
		defer end()
		sub := f.submit(ctx, "record")
		_, b, err := f.read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		f.settle(b)
		// 100 KiB in 10s are 10 KiB/s
		if unknown, err := f.Await(ctx, sub, 100<<10); unknown || err != nil {
			t.Fatal(unknown, err)
		}
		if after := f.RetryAfter(); after != time.Second {
			t.Errorf("RetryAfter with free memory = %v, want the least, 1s", after)
		}
		room, err := f.Admit(ctx, 300<<10)
		if err != nil {
			t.Fatal(err)
		}
		defer room.Release()
		if after := f.RetryAfter(); after < 24*time.Second || after > 36*time.Second {
			t.Errorf("RetryAfter = %v, want about 30s for 300KiB at 10KiB/s", after)
		}
		more, err := f.Admit(ctx, 700<<10)
		if err != nil {
			t.Fatal(err)
		}
		defer more.Release()
		waits := make(map[time.Duration]bool)
		for range 100 {
			after := f.RetryAfter()
			if waits[after] = true; after < 40*time.Second || after > time.Minute {
				t.Errorf("RetryAfter = %v, want 40s to 1m", after)
			}
		}
		if len(waits) < 5 {
			t.Errorf("clients that wait longest all return after %v", waits)
		}
	})
}

// load sends concurrent requests with random starts and deadlines. It returns the outcome of each
// request that was admitted, by record.
func (f *fixture) load(ctx context.Context, requests int, room stream.Size) map[string]string {
	var mu sync.Mutex
	outcomes := make(map[string]string)
	request := func(i int) {
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		outer, gone := context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Millisecond)
		defer gone()
		ctx, end := f.WithDeadline(outer)
		defer end()
		room, err := f.Admit(ctx, int64(room))
		if err != nil {
			return
		}
		defer room.Release()
		record := fmt.Sprint(i)
		sub, err := room.Submit(intake.Lines([]byte(record+"\n")), true)
		if err != nil {
			f.t.Error(err)
			return
		}
		unknown, err := f.Await(ctx, sub, len(record))
		outcome := "accepted"
		if unknown {
			outcome = "unknown"
		} else if err != nil {
			outcome = "withdrawn"
		}
		mu.Lock()
		defer mu.Unlock()
		outcomes[record] = outcome
	}
	var clients sync.WaitGroup
	for i := range requests {
		clients.Go(func() { request(i) })
	}
	clients.Wait()
	return outcomes
}

// TestConcurrentRequests sends many concurrent requests to a route that settles slowly. Each
// accepted record must be read once, a withdrawn one must never be read, and all memory must be
// free at the end.
func TestConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := serverOptions()
		o.Deadline = 2 * time.Second
		f := newFixture(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		read := make(map[string]int)
		var route sync.WaitGroup
		route.Go(func() {
			for {
				records, b, err := f.read(ctx)
				if err != nil {
					return
				}
				for _, r := range records {
					read[r]++
				}
				time.Sleep(5 * time.Millisecond)
				f.settle(b)
			}
		})
		// each reserves 1/40 of the memory, so that most requests wait for room
		outcomes := f.load(ctx, 2000, o.Memory/40)
		time.Sleep(time.Minute) // the route settles the records with unknown outcomes
		cancel()
		route.Wait()
		seen := make(map[string]int64)
		for _, record := range slices.Sorted(maps.Keys(outcomes)) {
			outcome, want := outcomes[record], 1
			seen[outcome]++
			if outcome == "withdrawn" {
				want = 0
			}
			if read[record] != want {
				t.Errorf("record %s is %s and was read %d times", record, outcome, read[record])
			}
		}
		for _, outcome := range []string{"accepted", "unknown", "withdrawn"} {
			n := f.host.Counted("requests_" + outcome)
			switch {
			case seen[outcome] == 0:
				t.Errorf("no request was %s; the test misses a case: %v", outcome, seen)
			case outcome != "accepted" && n != seen[outcome]:
				t.Errorf("%d requests counted as %s, want %d", n, outcome, seen[outcome])
			}
		}
		if held := f.Held(); held != 0 {
			t.Errorf("%d bytes are held at the end", held)
		}
	})
}
