package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// kept is a Store in memory that outlives its users.
type kept struct {
	mu    sync.Mutex // guards the fields below
	texts map[uint64][]byte
	last  uint64
}

func (k *kept) Append(_ context.Context, number uint64, text []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number != k.last+1 {
		return fmt.Errorf("envelope %d after %d", number, k.last)
	}
	if k.texts == nil {
		k.texts = make(map[uint64][]byte)
	}
	k.texts[number], k.last = bytes.Clone(text), number
	return nil
}

func (k *kept) Get(_ context.Context, number uint64) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if text := k.texts[number]; text != nil {
		return bytes.Clone(text), nil
	}
	return nil, ErrMissing
}

func (k *kept) Purge(_ context.Context, below uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.texts, func(n uint64, _ []byte) bool { return n < min(below, k.last) })
	return nil
}

func (k *kept) State(context.Context) (first, last uint64, size int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first = k.last
	for n, text := range k.texts {
		first, size = min(first, n), size+int64(len(text))
	}
	return first, k.last, size, nil
}

func (*kept) Close() error { return nil }

// numbers returns the numbers of the envelopes.
func (k *kept) numbers() []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.texts))
}

// process is a buffer over a store, until stop.
type process struct {
	host *streamtest.Host
	b    *Buffer
	log  strings.Builder // of the buffer; read it when nothing runs
}

// recordedHost is a host that also records the log.
type recordedHost struct {
	*streamtest.Host
	log *slog.Logger
}

func (h *recordedHost) Log() *slog.Logger { return h.log }

func start(t *testing.T, store Store, o Options, io intake.Options) *process {
	t.Helper()
	return startAt(t, t.TempDir(), store, o, io)
}

// startAt is start with a state directory that outlives the process.
func startAt(t *testing.T, state string, store Store, o Options, io intake.Options) *process {
	t.Helper()
	p := &process{host: streamtest.NewHost(t)}
	p.host.UseState(state)
	open := func(context.Context) (Store, error) { return store, nil }
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	b, err := newBuffer(o, io, &recordedHost{p.host, log}, open)
	if err != nil {
		t.Fatal(err)
	}
	p.b = b
	return p
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.host.Stop(); err != nil {
		t.Fatal(err)
	}
}

// add stores records as one envelope.
func (p *process) add(t *testing.T, records ...string) {
	t.Helper()
	var r intake.Records
	for _, text := range records {
		r.Add([]byte(text))
	}
	room, err := p.b.in.Reserve(t.Context(), int64(r.Size()))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := room.Submit(r, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// route is one route with its durable progress.
type route struct {
	name   string
	mark   stream.Mark
	reader stream.Reader
}

func (r *route) open(t *testing.T, p *process) {
	t.Helper()
	var err error
	r.reader, err = p.b.Open(t.Context(), stream.OpenOptions{
		Route: r.name,
		Resume: func(id string) (stream.Mark, bool) {
			return r.mark, id == r.mark.Part.ID
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the records of the next batch.
func (r *route) read(t *testing.T) (texts []string, b *stream.Batch, err error) {
	t.Helper()
	b = stream.NewBatch(stream.BatchLimits{Bytes: 1000, Records: 3})
	err = r.reader.Read(t.Context(), b)
	for i := range b.Records {
		texts = append(texts, string(b.Text(i)))
	}
	return texts, b, err
}

// commit makes the progress up to the end of a batch durable.
func (r *route) commit(t *testing.T, b *stream.Batch) {
	t.Helper()
	r.mark = stream.Mark{Part: *b.Spans[0].Part, Watermark: b.Spans[0].To}
	if err := r.reader.Commit(t.Context(), []stream.Mark{r.mark}); err != nil {
		t.Fatal(err)
	}
}

func (r *route) want(t *testing.T, want ...string) *stream.Batch {
	t.Helper()
	got, b, err := r.read(t)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%s read %q, %v; want %q", r.name, got, err, want)
	}
	return b
}

// TestRoutes checks that two routes read at their own positions, and that each route resumes after
// a restart in the middle of an envelope. Envelopes are deleted only after both routes have
// committed them.
func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		p := start(t, store, DefaultOptions(), intake.Options{Name: "test"})
		p.host.SetRoutes("quick", "slow")
		p.add(t, "1", "2", "with\nline end", "4")
		p.add(t, "5")
		p.add(t, "6")
		quick, slow := &route{name: "quick"}, &route{name: "slow"}
		quick.open(t, p)
		slow.open(t, p)
		quick.commit(t, quick.want(t, "1", "2", "with\nline end"))
		quick.commit(t, quick.want(t, "4", "5", "6"))
		slow.commit(t, slow.want(t, "1", "2", "with\nline end"))
		time.Sleep(2 * purgeEvery)
		if got := store.numbers(); !slices.Equal(got, []uint64{1, 2, 3}) {
			t.Errorf("envelopes %d are left, want all", got)
		}
		p.stop(t)

		p = start(t, store, DefaultOptions(), intake.Options{Name: "test"})
		p.host.SetRoutes("quick", "slow")
		p.add(t, "7")
		quick.open(t, p)
		slow.open(t, p)
		quick.want(t, "7")
		slow.commit(t, slow.want(t, "4", "5", "6"))
		time.Sleep(2 * purgeEvery)
		if got := store.numbers(); !slices.Equal(got, []uint64{4}) {
			t.Errorf("envelopes %d are left, want 4", got)
		}
		p.stop(t)
	})
}

// TestCorrupt checks that a route stops at an envelope that is missing, is damaged, or contains
// another checksum than that of the preceding envelope. The error must contain the envelope's
// number. The route may continue only after the operator has decided to skip the envelope.
func TestCorrupt(t *testing.T) {
	for name, damage := range map[string]func(*kept){
		"missing": func(k *kept) { delete(k.texts, 2) },
		"bit":     func(k *kept) { k.texts[2][headerSize] ^= 1 },
		"chain": func(k *kept) {
			e, _ := decode(k.texts[2])
			e.previous++
			k.texts[2] = e.encode(nil)
		},
		"exchanged": func(k *kept) { k.texts[2] = k.texts[3] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(kept)
				p := start(t, store, DefaultOptions(), intake.Options{})
				for _, text := range []string{"1", "2", "3", "4"} {
					p.add(t, text)
				}
				p.stop(t)
				damage(store)
				o := DefaultOptions()
				p = start(t, store, o, intake.Options{})
				r := &route{name: streamtest.Route}
				r.open(t, p)
				r.want(t, "1")
				for range 2 {
					_, _, err := r.read(t)
					if err == nil || !strings.Contains(err.Error(), `envelope 2 of the buffer is corrupt`) ||
						!strings.Contains(err.Error(), "skip CONFIG 2`") {
						t.Fatalf("Read = %v", err)
					}
				}
				p.add(t, "5") // the others go on
				p.stop(t)
				o.Skip = "2"
				p = start(t, store, o, intake.Options{})
				r.open(t, p)
				r.want(t, "1", "3", "4")
				r.want(t, "5")
				if n := p.host.Counted("buffer_skipped"); n != 1 {
					t.Errorf("%d envelopes were skipped, want 1", n)
				}
				p.stop(t)
			})
		})
	}
}

// TestTailIsLost checks a store that ends before the position up to which a route has settled its
// data. An error must be reported.
func TestTailIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		p := start(t, store, DefaultOptions(), intake.Options{})
		p.add(t, "1")
		p.add(t, "2")
		r := &route{name: streamtest.Route}
		r.open(t, p)
		r.commit(t, r.want(t, "1", "2"))
		p.stop(t)
		delete(store.texts, 2)
		store.last = 1
		p = start(t, store, DefaultOptions(), intake.Options{})
		_, err := p.b.Open(t.Context(), stream.OpenOptions{
			Route: r.name, Resume: func(id string) (stream.Mark, bool) { return r.mark, id == r.mark.Part.ID },
		})
		if err == nil || !strings.Contains(err.Error(), "it lost data") {
			t.Errorf("Open = %v", err)
		}
		p.stop(t)
	})
}

// TestHeadIsLost checks a store that has lost its first envelopes. A route that has not settled all
// of them must stop. A route without progress must begin at the first remaining envelope.
func TestHeadIsLost(t *testing.T) {
	for last, want := range map[uint64]string{
		2: "envelope 2 of the buffer is corrupt",
		4: "has lost envelopes 2-4, which the route has not settled",
	} {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(kept)
				p := start(t, store, DefaultOptions(), intake.Options{})
				for n := range 5 {
					p.add(t, fmt.Sprint(n+1))
				}
				r := &route{name: streamtest.Route}
				r.open(t, p)
				b := r.want(t, "1", "2", "3")
				r.mark = stream.Mark{Part: *b.Spans[0].Part}
				r.mark.Watermark.Num = positionOf(2, 0)
				p.stop(t)
				for n := range last {
					delete(store.texts, n+1)
				}
				o := DefaultOptions()
				p = start(t, store, o, intake.Options{})
				r.open(t, p)
				skip := fmt.Sprintf("2-%d", last)
				if last == 2 {
					skip = "2"
				}
				texts, _, err := r.read(t)
				if err == nil || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "skip CONFIG "+skip+"`") {
					t.Fatalf("Read = %q, %v", texts, err)
				}
				p.stop(t)
				o.Skip = skip
				p = start(t, store, o, intake.Options{})
				p.host.SetRoutes(streamtest.Route, "new")
				r.open(t, p)
				rest := []string{"3", "4", "5"}[last-2:]
				r.want(t, rest...)
				synctest.Wait()
				if n := strings.Count(p.log.String(), "skipped by an operator"); n != 1 {
					t.Errorf("%d lines are logged about skipped envelopes, want 1", n)
				}
				if n := p.host.Counted("buffer_skipped"); n != int64(last-1) {
					t.Errorf("%d envelopes were skipped, want %d", n, last-1)
				}
				other := &route{name: "new"}
				other.open(t, p)
				other.want(t)
				other.want(t, rest...)
				p.stop(t)
			})
		})
	}
}

// TestFull checks a buffer that is full by size or by age. It must accept no data until routes have
// settled some, and must lose none.
func TestFull(t *testing.T) {
	for name, o := range map[string]Options{
		"bytes": {Bytes: minBytes, Sync: SyncAlways},
		"age":   {Bytes: 1 << 40, Age: time.Minute, Sync: SyncAlways},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, new(kept), o, intake.Options{MaxBytes: 64 << 20})
				if name == "bytes" {
					for range 16 {
						p.add(t, strings.Repeat("x", 1<<20))
					}
				} else {
					p.add(t, "old")
					time.Sleep(time.Minute + time.Second)
				}
				var more intake.Records
				more.Add([]byte("more"))
				room, err := p.b.in.Reserve(t.Context(), int64(more.Size()))
				if err != nil {
					t.Fatal(err)
				}
				sub, err := room.Submit(more, true)
				if err != nil {
					t.Fatal(err)
				}
				stored := make(chan error, 1)
				go func() { stored <- sub.Wait(t.Context()) }()
				time.Sleep(time.Hour)
				select {
				case err := <-stored:
					t.Fatalf("a full buffer took data: %v", err)
				default:
				}
				r := &route{name: streamtest.Route}
				r.open(t, p)
				for {
					texts, b, err := r.read(t)
					if err != nil {
						t.Fatal(err)
					}
					r.commit(t, b)
					if texts[len(texts)-1] == "more" {
						break
					}
				}
				if err := <-stored; err != nil {
					t.Error(err)
				}
				if p.host.Counted("buffer_full") == 0 {
					t.Error("buffer_full is 0")
				}
				p.stop(t)
			})
		})
	}
}

// TestFullAgain checks that a buffer logs only once a minute that it is full, even if each envelope
// fills it again.
func TestFullAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Bytes = minBytes
		p := start(t, new(kept), o, intake.Options{})
		const records = 40
		for range records {
			p.offer(t, "", intake.Lines(append(bytes.Repeat([]byte("x"), 1<<20), '\n')))
		}
		r := &route{name: streamtest.Route}
		r.open(t, p)
		for range records {
			_, b, err := r.read(t)
			if err != nil {
				t.Fatal(err)
			}
			r.commit(t, b)
			time.Sleep(time.Second)
		}
		full := p.host.Counted("buffer_full")
		p.stop(t)
		if n := strings.Count(p.log.String(), "buffer full"); n != 1 || full < 10 {
			t.Errorf("the buffer was full %d times in 40 s and logged it %d times", full, n)
		}
	})
}

// TestDrain submits records during a drain. They must be stored, and the route must read them after
// the next start.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		p := start(t, store, DefaultOptions(), intake.Options{})
		p.add(t, "1")
		r := &route{name: streamtest.Route}
		r.open(t, p)
		r.commit(t, r.want(t, "1"))
		done := p.b.in.Producer()
		r.reader.(stream.DrainingReader).Drain()
		synctest.Wait()
		p.add(t, "2") // a producer may still submit its last data
		done()
		for {
			if _, _, err := r.read(t); err != nil {
				break
			}
		}
		p.stop(t)
		p = start(t, store, DefaultOptions(), intake.Options{})
		r.open(t, p)
		r.want(t, "2")
		p.stop(t)
	})
}

func TestDecodeRefuses(t *testing.T) {
	e := &envelope{id: strings.Repeat("i", idSize), number: 7, records: 1, data: []byte("x\n")}
	good := e.encode(nil)
	if _, err := decode(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := decode(bad); err == nil {
			t.Errorf("a wrong byte %d is not noticed", i)
		}
		if _, err := decode(good[:i]); err == nil {
			t.Errorf("an end at byte %d is not noticed", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	e := &envelope{
		id: strings.Repeat("i", idSize), number: 7, records: 2, ends: []int32{2, 4}, data: []byte("x\ny\n"),
	}
	f.Add(e.encode(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decode(text)
		if err != nil {
			return
		}
		if again := e.encode(nil); !bytes.Equal(again, text) {
			t.Errorf("%q was decoded and encoded as %q", text, again)
		}
		for at := 0; at < len(e.data); {
			next := e.next(at)
			if next <= at {
				t.Fatalf("no record at %d", at)
			}
			at = next
		}
	})
}

func TestCheck(t *testing.T) {
	with := func(change func(*Options)) Options {
		o := DefaultOptions()
		change(&o)
		return o
	}
	for want, c := range map[string]struct {
		ack string
		o   Options
		max stream.Size
	}{
		"belongs to ack: buffered": {Delivered, with(func(o *Options) { o.Age = 1 }), 1},
		"want 16MiB or more":       {Buffered, with(func(o *Options) { o.Bytes = 1 }), 1},
		"want 0 or more":           {Buffered, with(func(o *Options) { o.Age = -1 }), 1},
		"max_record":               {Buffered, DefaultOptions(), 9 << 20},
		`is "3-2", want`:           {Buffered, with(func(o *Options) { o.Skip = "3-2" }), 1},
		`is "0", want`:             {Buffered, with(func(o *Options) { o.Skip = "0" }), 1},
	} {
		if err := Check(c.ack, c.o, c.max); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ok := with(func(o *Options) { o.Skip = "17-19" })
	if err := errors.Join(Check(Buffered, ok, 1<<20), Check(Delivered, DefaultOptions(), 9<<20)); err != nil {
		t.Error(err)
	}
}
