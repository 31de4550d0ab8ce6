package intake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

func quiet() *streamtest.Quiet {
	return streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
}

func newIntake(t *testing.T, o intake.Options, h stream.Host) *intake.Intake {
	t.Helper()
	in, err := intake.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// route is one route's reader of an intake, with the records that it has read and settled.
type route struct {
	t      *testing.T
	name   string
	marks  map[string]stream.Mark
	reader stream.Reader
	limits stream.BatchLimits
}

func open(t *testing.T, in *intake.Intake, name string, marks map[string]stream.Mark) *route {
	t.Helper()
	r := &route{t: t, name: name, marks: marks, limits: stream.BatchLimits{Bytes: 64, Records: 4}}
	if r.marks == nil {
		r.marks = make(map[string]stream.Mark)
	}
	reader, err := in.Open(t.Context(), stream.OpenOptions{Route: name, Resume: func(id string) (stream.Mark, bool) {
		m, ok := r.marks[id]
		return m, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.reader = reader
	return r
}

// read returns the texts of the next batch.
func (r *route) read() (texts []string, b *stream.Batch) {
	r.t.Helper()
	b = stream.NewBatch(r.limits)
	if err := r.reader.Read(r.t.Context(), b); err != nil {
		r.t.Fatal(err)
	}
	b.Split()
	for i := range b.Records {
		texts = append(texts, string(b.Text(i)))
	}
	return texts, b
}

// settle reports the batches as settled by the route, in the given order.
func (r *route) settle(batches ...*stream.Batch) {
	for _, b := range batches {
		for _, s := range b.Spans {
			r.settleSpan(s)
		}
	}
}

func (r *route) settleSpan(s stream.Span) {
	m := r.marks[s.Part.ID]
	m.Part = *s.Part
	m.Above = append(slices.Clone(m.Above), s.Range)
	slices.SortFunc(m.Above, func(a, b stream.Range) int { return a.From.Compare(b.From) })
	for len(m.Above) > 0 && m.Above[0].From == m.Watermark {
		m.Watermark, m.Above = m.Above[0].To, m.Above[1:]
	}
	r.marks[s.Part.ID] = m
	r.reader.(stream.SettledReader).Settled([]stream.Mark{m})
}

func lines(texts ...string) intake.Records {
	return intake.Lines([]byte(strings.Join(texts, "\n") + "\n"))
}

func submit(t *testing.T, in *intake.Intake, r intake.Records) *intake.Submission {
	t.Helper()
	room, err := in.Reserve(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := room.Submit(r, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func settled(s *intake.Submission) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return s.Wait(ctx) == nil
}

// TestSettledByEveryRoute checks that a submission ends and frees its bytes when all routes have
// settled it, even if earlier submissions are not settled yet.
func TestSettledByEveryRoute(t *testing.T) {
	h := quiet()
	h.SetRoutes("p/a", "p/b")
	in := newIntake(t, intake.Options{}, h)
	a, b := open(t, in, "p/a", nil), open(t, in, "p/b", nil)
	a.limits.Records, b.limits.Records = 2, 2
	first, second := submit(t, in, lines("1", "2")), submit(t, in, lines("3", "4"))
	held := in.Held()
	_, a1 := a.read()
	_, a2 := a.read()
	got, b1 := b.read()
	_, b2 := b.read()
	if fmt.Sprint(got) != "[1 2]" {
		t.Fatalf("b read %v", got)
	}
	a.settle(a2)
	b.settle(b2)
	if settled(first) || !settled(second) {
		t.Errorf("settled: first %v, second %v; want only the second", settled(first), settled(second))
	}
	a.settle(a1)
	if settled(first) {
		t.Error("settled before route b had settled it")
	}
	if now := in.Held(); now != held/2 {
		t.Errorf("held %d of %d bytes, want half", now, held)
	}
	b.settle(b1)
	if !settled(first) || in.Held() != 0 {
		t.Errorf("settled %v, %d bytes held", settled(first), in.Held())
	}
}

// TestRestartReadsAgain checks that a reopened route reads its unsettled records again, cut at the
// same positions.
func TestRestartReadsAgain(t *testing.T) {
	h := quiet()
	in := newIntake(t, intake.Options{}, h)
	r := open(t, in, streamtest.Route, nil)
	for i := range 10 {
		submit(t, in, lines(fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i), fmt.Sprintf("%d-c", i)))
	}
	var batches []*stream.Batch
	var texts [][]string
	for n := 0; n < 30; {
		got, b := r.read()
		batches, texts, n = append(batches, b), append(texts, got), n+len(got)
	}
	r.settle(batches[0], batches[2], batches[3])
	again := open(t, in, streamtest.Route, r.marks)
	for i := range batches {
		if i == 0 || i == 2 || i == 3 {
			continue
		}
		got, b := again.read()
		if fmt.Sprint(got) != fmt.Sprint(texts[i]) || b.ID() != batches[i].ID() {
			t.Errorf("batch %d is %v, id %s; want %v, %s", i, got, b.ID(), texts[i], batches[i].ID())
		}
		again.settle(b)
	}
	if in.Held() != 0 {
		t.Errorf("%d bytes held", in.Held())
	}
}

// TestLateRoute checks a route that joins later. It must read the records that the other route has
// not settled yet. For settled records, it must get a span without data.
func TestLateRoute(t *testing.T) {
	h := quiet()
	in := newIntake(t, intake.Options{}, h)
	a := open(t, in, streamtest.Route, nil)
	a.limits.Records = 1
	for _, text := range []string{"1", "2", "3"} {
		submit(t, in, lines(text))
	}
	_, b1 := a.read()
	_, b2 := a.read()
	_, b3 := a.read()
	a.settle(b1, b3)
	h.SetRoutes(streamtest.Route, "p/late")
	late := open(t, in, "p/late", nil)
	var got []string
	var to int64
	for to < b3.Spans[0].From.Num { // nothing is held behind it
		texts, b := late.read()
		got = append(got, texts...)
		if b.Spans[0].From.Num != to {
			t.Fatalf("a span begins at %d, want %d", b.Spans[0].From.Num, to)
		}
		to = b.Spans[0].To.Num
	}
	if fmt.Sprint(got) != "[2]" {
		t.Errorf("the late route read %v, want what was held, 2", got)
	}
	a.settle(b2)
}

// TestWithdraw checks that data can be withdrawn until a route has read it.
func TestWithdraw(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	r := open(t, in, streamtest.Route, nil)
	r.limits.Records = 1
	one, two, three := submit(t, in, lines("1")), submit(t, in, lines("2")), submit(t, in, lines("3"))
	_, b1 := r.read()
	for _, s := range []*intake.Submission{one, two, two} {
		s.Withdraw(t.Context())
	}
	if err := two.Wait(t.Context()); !errors.Is(err, intake.ErrWithdrawn) {
		t.Errorf("Wait of withdrawn data = %v", err)
	}
	got, b3 := r.read()
	if fmt.Sprint(got) != "[3]" || b3.Spans[0].From != b1.Spans[0].To {
		t.Errorf("read %v at %v behind %v", got, b3.Spans[0].From, b1.Spans[0].To)
	}
	r.settle(b1, b3)
	if !settled(one) || settled(two) || !settled(three) || in.Held() != 0 {
		t.Errorf("settled %v %v %v, %d bytes held", settled(one), settled(two), settled(three), in.Held())
	}
}

// TestOddRecords checks that records with and without line ends can be mixed.
func TestOddRecords(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	r := open(t, in, streamtest.Route, nil)
	r.limits = stream.BatchLimits{Bytes: 1 << 20, Records: 100}
	want := []string{"plain", "two\nlines", "carriage\r", "", "last"}
	submit(t, in, lines("before"))
	var odd intake.Records
	for _, text := range want {
		odd.Add([]byte(text))
	}
	submit(t, in, odd)
	submit(t, in, lines("behind"))
	got, b := r.read()
	want = append(append([]string{"before"}, want...), "behind")
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("read %q, want %q", got, want)
	}
	if last := b.Records[len(b.Records)-1].Origin; last != b.Spans[0].To {
		t.Errorf("the last record is at %v, its span ends at %v", last, b.Spans[0].To)
	}
}

// TestObjects checks that members become typed fields, and that the last of several equal keys is
// used.
func TestObjects(t *testing.T) {
	in := newIntake(t, intake.Options{Objects: true}, quiet())
	r := open(t, in, streamtest.Route, nil)
	submit(t, in, lines(`{"a":1,"b":"x\ny","a":2.50,"c":{"d":[1]},"e":null,"f":true}`, `{}`, `[1]`))
	_, b := r.read()
	var got strings.Builder
	for _, f := range b.FieldsOf(0) {
		fmt.Fprintf(&got, "%s=%d:%s ", b.Names[f.Name], f.Kind, b.Value(f))
	}
	if want := "a=1:2.50 b=0:x\ny c=4:{\"d\":[1]} e=3: f=2:true "; got.String() != want {
		t.Errorf("fields %q, want %q", got.String(), want)
	}
	if !b.Records[1].Parsed || b.Records[1].NumFields != 0 {
		t.Errorf("the empty object is %+v", b.Records[1])
	}
	if b.Records[2].State != stream.Dead || b.Reason(2) == nil {
		t.Errorf("a record that is no object is %+v", b.Records[2])
	}
}

// TestObjectsOfOneBatch checks that the fields of a record do not depend on the keys of the records
// before it.
func TestObjectsOfOneBatch(t *testing.T) {
	fields := func(b *stream.Batch, i int) (out []string) {
		for _, f := range b.FieldsOf(i) {
			out = append(out, fmt.Sprintf("%s=%d:%s", b.Names[f.Name], f.Kind, b.Value(f)))
		}
		return append(out, fmt.Sprint(b.Records[i].Parsed, b.Reason(i)))
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var o intake.Objects // of all batches, as in a reader
	values := []string{"1", "2.5", `"x"`, `"x\n"`, " null", "[1]", "true", "bad"}
	for range 200 {
		records := make([]string, 1+rnd.IntN(8))
		for k := range records {
			var members []string
			for _, key := range []string{"a", "b", `\u0061`, "ab", "a"} {
				if rnd.IntN(4) > 0 {
					value := values[rnd.IntN(len(values))]
					members = append(members, `"`+key+`":`+value)
				}
			}
			records[k] = "{" + strings.Join(members, ",") + "}"
		}
		b := streamtest.Lines(records...)
		o.Set(b)
		for k, record := range records {
			single := streamtest.Lines(record)
			new(intake.Objects).Set(single)
			if got, want := fields(b, k), fields(single, 0); !slices.Equal(got, want) {
				t.Fatalf("%q: record %d has %q, want %q", records, k, got, want)
			}
		}
	}
}

// TestFull checks that reservations wait in order, and that the end of a submission makes room for
// the next reservation.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake(t, intake.Options{MaxBytes: 100}, quiet())
		r := open(t, in, streamtest.Route, nil)
		if _, err := in.Reserve(t.Context(), 101); !errors.Is(err, intake.ErrTooLarge) {
			t.Errorf("reserved more than there is: %v", err)
		}
		room, err := in.Reserve(t.Context(), 80)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards order
		var order []int
		for i, n := range []int64{50, 60} {
			go func() {
				room, err := in.Reserve(t.Context(), n)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				room.Release()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := in.Reserve(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third one overtook the first: %v", err)
		}
		s, err := room.Submit(lines(strings.Repeat("x", 60)), true)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("order %v while 77 of 100 bytes are held and 50 are next", order)
		}
		_, b := r.read()
		r.settle(b)
		synctest.Wait()
		if fmt.Sprint(order) != "[0 1]" || !settled(s) || in.Held() != 0 {
			t.Errorf("order %v, settled %v, %d bytes held", order, settled(s), in.Held())
		}
	})
}

// TestGrowing checks that several growing reservations do not block each other.
func TestGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake(t, intake.Options{MaxBytes: 100}, quiet())
		var mu sync.Mutex // guards the fields below
		var most int64
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				room, err := in.Reserve(t.Context(), 20)
				if err != nil {
					t.Error(err)
					return
				}
				defer room.Release()
				for range 5 {
					time.Sleep(time.Millisecond) // the others come as far
					if err := room.Grow(t.Context(), 20); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					most = max(most, in.Held())
					mu.Unlock()
				}
			})
		}
		group.Wait()
		if in.Held() != 0 || most > 220 { // one of 120 bytes beside others that fit
			t.Errorf("%d bytes held, %d at most", in.Held(), most)
		}
	})
}

// TestSubmittedBeyondLimit checks that no reservation can grow while submitted data exceeds the
// limit. In this test, the records of the first submission exceed the limit. The second reservation
// must wait until these records are delivered.
func TestSubmittedBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake(t, intake.Options{MaxBytes: 100}, quiet())
		r := open(t, in, streamtest.Route, nil)
		first, err := in.Reserve(t.Context(), 20)
		if err != nil {
			t.Fatal(err)
		}
		second, err := in.Reserve(t.Context(), 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Expand(t.Context(), 20, 301); !errors.Is(err, intake.ErrTooLarge) {
			t.Errorf("a body of 20 bytes got 321: %v", err)
		}
		if err := first.Expand(t.Context(), 20, 200); err != nil {
			t.Fatal(err)
		}
		s, err := first.Submit(lines(strings.Repeat("x", 200)), true)
		if err != nil {
			t.Fatal(err)
		}
		held := in.Held()
		ended := make(chan error, 1)
		go func() { ended <- second.Expand(t.Context(), 20, 200) }()
		synctest.Wait()
		if now := in.Held(); now != held {
			t.Errorf("%d bytes are held, %d before the second reservation grew", now, held)
		}
		_, b := r.read()
		r.settle(b)
		if err := <-ended; err != nil || !settled(s) {
			t.Errorf("after the delivery: %v", err)
		}
		second.Release()
		if n := in.Held(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
}

// TestDrain checks that a draining route reads all available data. It waits for producers only if
// the intake does not refuse their data.
func TestDrain(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		t.Run(fmt.Sprintf("refuse %v", refuse), func(t *testing.T) {
			in := newIntake(t, intake.Options{Refuse: refuse}, quiet())
			r := open(t, in, streamtest.Route, nil)
			done := in.Producer()
			room, err := in.Reserve(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			submit(t, in, lines("before"))
			r.reader.(stream.DrainingReader).Drain()
			<-in.Draining()
			if _, err := in.Reserve(t.Context(), 1); (err != nil) != refuse {
				t.Errorf("Reserve: %v", err)
			}
			want := 1
			if _, err := room.Submit(lines("late"), false); (err != nil) != refuse {
				t.Errorf("Submit: %v", err)
			}
			if !refuse {
				want = 2
			}
			read := 0
			for n := 0; ; n++ {
				if n == 1 {
					done()
				}
				b := stream.NewBatch(stream.BatchLimits{Records: 1})
				err := r.reader.Read(t.Context(), b)
				read += b.Origins
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if read != want {
				t.Errorf("read %d records, want %d", read, want)
			}
			open(t, in, streamtest.Route, nil)
			if in.IsDraining() {
				t.Error("it still drains after the route has opened again")
			}
		})
	}
}

// TestRouteLeaves checks that a wait ends when the route that blocks it has left the pipeline.
func TestRouteLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := quiet()
		h.SetRoutes("p/a", "p/b")
		in := newIntake(t, intake.Options{}, h)
		a := open(t, in, "p/a", nil)
		open(t, in, "p/b", nil)
		s := submit(t, in, lines("1"))
		_, b := a.read()
		a.settle(b)
		h.SetRoutes("p/a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
}
