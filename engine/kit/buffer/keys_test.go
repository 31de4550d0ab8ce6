package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// dying is the store of a process that dies during an append. The envelope may then be stored or
// not, and the sender gets no response.
type dying struct {
	*kept
	left   int  // number of successful appends
	stores bool // whether the failing append is stored
}

var errDied = errors.New("the process died")

func (d *dying) Append(ctx context.Context, number uint64, text []byte) error {
	d.left--
	if d.left < 0 {
		if d.left == -1 && d.stores {
			_ = d.kept.Append(ctx, number, text)
		}
		return errDied
	}
	return d.kept.Append(ctx, number, text)
}

// request returns the records of an identified request. They are the same at each call.
func request(id int) (r intake.Records) {
	for _, text := range requestTexts(id) {
		r.Add([]byte(text))
	}
	return r
}

func requestTexts(id int) (texts []string) {
	rnd := rand.New(rand.NewPCG(uint64(id), 7))
	size := 1 + rnd.IntN(40)
	if rnd.IntN(4) == 0 {
		size = 200 << 10 // requests that are cut over envelopes
	}
	for k := range 1 + rnd.IntN(5) {
		text := fmt.Sprintf("%d.%d %s", id, k, strings.Repeat("x", size))
		if rnd.IntN(8) == 0 {
			text += "\nsecond line"
		}
		texts = append(texts, text)
	}
	return texts
}

// offer submits a request without waiting for it.
func (p *process) offer(t *testing.T, id string, r intake.Records) *intake.Submission {
	t.Helper()
	room, err := p.b.in.Reserve(t.Context(), int64(r.Size()))
	if err != nil {
		t.Fatal(err)
	}
	if id != "" {
		room.Identify(id)
	}
	s, err := room.Submit(r, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readAll reads everything that is stored, and returns the ids and texts of the records.
func (r *route) readAll(t *testing.T, commit bool) (ids, texts []string) {
	t.Helper()
	for r.b().stored() > 0 && r.reader.(*reader).At < positionOf(r.b().stored()+1, 0) {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 100 << 10, Records: 7})
		if err := r.reader.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Records {
			ids = append(ids, string(b.AppendRecordID(nil, i)))
			texts = append(texts, string(b.Text(i)))
		}
		if commit {
			r.commit(t, b)
		}
	}
	return ids, texts
}

func (r *route) b() *Buffer { return r.reader.(*reader).b }

// TestKeysSurvive repeats requests. They must be stored once, and their records must have the same
// ids as with `ack: delivered`. A process may die during any append, and a request may be repeated
// after its envelope was deleted. With PENSTOCK_PUSH, the test tries 150 seeds.
func TestKeysSurvive(t *testing.T) {
	seeds := uint64(8)
	if os.Getenv("PENSTOCK_PUSH") != "" {
		seeds = 150
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			store := new(kept)
			r := &route{name: streamtest.Route}
			got := make(map[string]string) // text by id
			const requests = 30
			purged := 0
			for run := range 6 {
				last := run == 5
				d := &dying{kept: store, left: 1 + rnd.IntN(12), stores: rnd.IntN(2) == 0}
				if last {
					d.left = 1 << 30
				}
				o := DefaultOptions()
				p := start(t, d, o, intake.Options{Remember: time.Hour, MaxBytes: 256 << 20})
				for i := range requests {
					if !last && rnd.IntN(3) == 0 {
						continue
					}
					p.offer(t, fmt.Sprint(i), request(i))
					if rnd.IntN(3) == 0 {
						p.offer(t, "", request(1000+run))
					}
					if rnd.IntN(2) == 0 {
						synctest.Wait() // stored in an envelope of its own
					}
				}
				synctest.Wait()
				r.open(t, p)
				ids, texts := r.readAll(t, true)
				for k, id := range ids {
					if !stream.IsRequest(id) {
						continue
					}
					if got[id] != "" {
						t.Errorf("seed %d, run %d: %s is stored twice", seed, run, id)
					}
					got[id] = texts[k]
				}
				time.Sleep(2 * purgeEvery)
				if n := store.numbers(); len(n) > 0 && n[0] > 1 {
					purged++
				}
				if err := p.host.Stop(); err != nil && !errors.Is(err, errDied) {
					t.Fatal(err)
				}
			}
			if purged == 0 && seed == 0 {
				t.Error("nothing was deleted, so that no copy of keys was read")
			}
			for i := range requests {
				end := 0
				for _, want := range requestTexts(i) {
					end += len(want) + 1
					id := fmt.Sprintf("request-%d@%d", i, end)
					if got[id] != want {
						t.Errorf("seed %d: %s is %.20q, want %.20q", seed, id, got[id], want)
					}
				}
			}
		})
	}
}

// TestKeysAreBounded checks that envelopes are deleted although their keys are remembered, and that
// keys expire. Copies of keys in several envelopes must be read back. A restart must also restore
// the sizes (keyRecord) that decide when keys are copied.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		r := &route{name: streamtest.Route}
		p := start(t, store, DefaultOptions(), intake.Options{Remember: time.Hour})
		const count = 2*copiesEach + 10
		put := func(p *process, from, to int) {
			for i := from; i < to; i++ {
				p.offer(t, fmt.Sprint(i), intake.Lines(bytes.Repeat([]byte("0123456789\n"), 20)))
			}
			synctest.Wait()
			r.open(t, p)
			r.readAll(t, true)
			time.Sleep(2 * purgeEvery)
		}
		for i := range 20 {
			put(p, i*count/20, (i+1)*count/20)
		}
		record := p.b.keys
		p.stop(t)
		p = start(t, store, DefaultOptions(), intake.Options{Remember: time.Hour})
		synctest.Wait()
		if p.b.keys != record {
			t.Errorf("the record of keys is %+v after a restart, want %+v", p.b.keys, record)
		}
		before := store.last
		put(p, 0, count)
		if store.last > before+8 { // copies may be due
			t.Errorf("%d envelopes were stored for repeated requests", store.last-before)
		}
		if n := p.host.Counted("buffer_full"); n != 0 {
			t.Errorf("full %d times", n)
		}
		_, _, size, _ := store.State(t.Context())
		if most := int64((copiesEvery + 3) * count * keyRoom); size > most {
			t.Errorf("%d bytes stay for %d keys, want at most %d", size, count, most)
		}
		time.Sleep(2 * time.Hour)
		for range 200 {
			p.offer(t, "", intake.Lines(bytes.Repeat([]byte("0123456789\n"), 2000)))
			synctest.Wait()
		}
		r.readAll(t, true)
		time.Sleep(2 * purgeEvery)
		if n := store.numbers(); len(n) != 1 {
			t.Errorf("envelopes %d are left after all keys have expired", n)
		}
		p.stop(t)
	})
}

// held is a store. Its appends wait until release is closed.
type held struct {
	*kept
	release chan struct{}
}

func (h *held) Append(ctx context.Context, number uint64, text []byte) error {
	<-h.release
	return h.kept.Append(ctx, number, text)
}

// TestManyKeys checks that thousands of requests that wait together do not make an envelope that
// external servers refuse.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{new(kept), make(chan struct{})}
		o := DefaultOptions()
		p := start(t, store, o, intake.Options{Remember: time.Hour})
		const requests = 6000
		for i := range requests {
			p.offer(t, fmt.Sprintf("%0128d", i), intake.Lines([]byte("x\n")))
			if i == 0 {
				synctest.Wait() // until its append waits
			}
		}
		close(store.release)
		synctest.Wait()
		total := 0
		for _, n := range store.numbers() {
			e, err := decode(store.texts[n])
			if err != nil {
				t.Fatal(err)
			}
			total += len(e.keys)
			if most := o.largestEnvelope(); e.size > int(most) {
				t.Errorf("envelope %d has %d bytes, want at most %v", n, e.size, most)
			}
		}
		if total < requests {
			t.Errorf("%d requests are stored, want %d", total, requests)
		}
		p.stop(t)
	})
}

// TestKeysSmallBuffer checks that a small buffer remembers fewer keys.
func TestKeysSmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Bytes = minBytes
		p := start(t, new(kept), o, intake.Options{Remember: time.Hour})
		most := minBytes / keyShare / keyRoom
		for i := range most + 100 {
			p.offer(t, fmt.Sprint(i), intake.Lines([]byte("x\n")))
		}
		synctest.Wait()
		if n := len(p.b.in.Requests(innerRoute)); n != most {
			t.Errorf("%d keys are remembered, want %d", n, most)
		}
		p.stop(t)
	})
}

func FuzzDecodeKeys(f *testing.F) {
	e := &envelope{
		id: strings.Repeat("i", idSize), number: 7, records: 1, keysFrom: 7, data: []byte("x\n"),
		keys: []key{{id: "request-1", arrived: 5, end: 9, n: 2}},
	}
	f.Add(e.encode(nil))
	c := &envelope{id: e.id, number: 8, keysFrom: 8, keys: []key{{id: "request-1", end: 9}}}
	f.Add(c.encode(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := decode(text)
		if err != nil {
			return
		}
		if again := e.encode(nil); !bytes.Equal(again, text) {
			t.Errorf("%q was decoded and encoded as %q", text, again)
		}
		if out := e.identities(nil, 0, len(e.data)); !slices.IsSortedFunc(out,
			func(a, b stream.Identity) int { return int(a.To - b.To) }) {
			t.Errorf("identities %v are not in order", out)
		}
	})
}
