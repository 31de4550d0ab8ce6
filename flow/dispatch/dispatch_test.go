package dispatch

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func source(seed uint64) rand.Source { return rand.NewPCG(seed, 0) }

// three returns three free and known lanes: fast, middling, slow.
func three() []Candidate {
	return []Candidate{
		{Lane: 0, Free: true, Known: true, Mean: 1, Rate: 100, Service: 20 * ms},
		{Lane: 1, Free: true, Known: true, Mean: 1, Rate: 50, Service: 30 * ms},
		{Lane: 2, Free: true, Known: true, Mean: 1, Rate: 5, Service: 210 * ms},
	}
}

func TestLeastCompletion(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(c []Candidate)
		want int
	}{
		{"idle: the fastest", func([]Candidate) {}, 0},
		{"second in line at the fast one beats the idle slow one", func(c []Candidate) {
			c[0].Work, c[1].Free = 5, false
		}, 0},
		{"a full lane is passed", func(c []Candidate) { c[0].Free = false }, 1},
		{"work counts at the lane's rate", func(c []Candidate) { c[0].Work = 2 }, 1},
		{"failures push it back", func(c []Candidate) { c[0].Failures = 0.2 }, 1},
		{"unused for long", func(c []Candidate) { c[2].LastStart = -10 * time.Second }, 2},
		{"unused for less than 20 round trips", func(c []Candidate) {
			c[2].LastStart = -3 * time.Second
		}, 0},
		{"unused but busy", func(c []Candidate) {
			c[2].LastStart, c[2].InFlight = -10*time.Second, 1
		}, 0},
		{"unknown takes the median", func(c []Candidate) { c[0].Known = false }, 1},
		{"unknown beats what is slower than the median", func(c []Candidate) {
			c[0].Known, c[1].Free = false, false
		}, 0},
		{"unknown with one out waits", func(c []Candidate) {
			c[0].Known, c[0].InFlight, c[1].Free = false, 1, false
		}, 2},
		{"none free", func(c []Candidate) {
			c[0].Free, c[1].Free, c[2].Free = false, false, false
		}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			lanes := three()
			c.edit(lanes)
			if got := (LeastCompletion{}).New(source(1)).Choose(0, 1, 0, lanes); got != c.want {
				t.Errorf("chose %d, want %d", got, c.want)
			}
		})
	}
}

func TestLeastCompletionTies(t *testing.T) {
	lanes := three()
	lanes[1] = Candidate{Lane: 1, Free: true, Known: true, Mean: 1, Rate: 200, Service: 20 * ms}
	ch := LeastCompletion{}.New(source(1))
	if got := ch.Choose(0, 1, 0, lanes); got != 1 {
		t.Errorf("of two equals chose %d, want the faster, 1", got)
	}
	lanes[1].Rate = 100
	var n [3]int
	for range 1000 {
		n[ch.Choose(0, 1, 0, lanes)]++
	}
	if n[0] < 400 || n[1] < 400 || n[2] > 0 {
		t.Errorf("of two alike chose %v, want about even", n)
	}
}

// TestLeastCompletionMetamorphic checks that a lane that gets worse is never chosen more often.
func TestLeastCompletionMetamorphic(t *testing.T) {
	rnd := rand.New(source(3))
	for range 5000 {
		lanes := make([]Candidate, 2+rnd.IntN(8))
		for i := range lanes {
			lanes[i] = Candidate{
				Lane: int32(i), Free: rnd.IntN(5) > 0, Known: true, Mean: 1, InFlight: rnd.IntN(4),
				Work: float64(rnd.IntN(9)),
				Rate: 1 + 100*rnd.Float64(), Service: time.Duration(1+rnd.IntN(200)) * ms,
				Failures: max(0, rnd.Float64()-0.5),
			}
		}
		seed := rnd.Uint64()
		before := LeastCompletion{}.New(source(seed)).Choose(0, 1, 0, lanes)
		i := rnd.IntN(len(lanes))
		switch rnd.IntN(4) {
		case 0:
			lanes[i].Work += 1 + 10*rnd.Float64()
		case 1:
			lanes[i].Service *= 2
		case 2:
			lanes[i].Failures += 0.1
		case 3:
			lanes[i].Rate /= 2
			lanes[i].Work++ // the rate matters if there is a queue
		}
		after := LeastCompletion{}.New(source(seed)).Choose(0, 1, 0, lanes)
		if after == i && before != i {
			t.Fatalf("lane %d was made worse and is chosen instead of %d: %+v", i, before, lanes)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	lanes := three()
	ch := RoundRobin{}.New(nil)
	var got []int
	for i := range 7 {
		lanes[1].Free = i != 1 && i != 2
		got = append(got, ch.Choose(0, 1, 0, lanes))
	}
	want := []int{0, 2, 0, 1, 2, 0, 1}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("asked %v, want %v", got, want)
		}
	}
	lanes[0].Free, lanes[1].Free, lanes[2].Free = false, false, false
	if i := ch.Choose(0, 1, 0, lanes); i != -1 {
		t.Errorf("all are full and it chose %d", i)
	}
}

func TestHash(t *testing.T) {
	lanes := make([]Candidate, 12)
	for i := range lanes {
		lanes[i] = Candidate{Lane: int32(i), Free: true}
	}
	ch := Hash{}.New(nil)
	const keys = 12_000
	bound := make([]int, keys)
	n := make([]int, len(lanes))
	for k := range bound {
		bound[k] = ch.Choose(0, 1, uint64(k), lanes)
		n[bound[k]]++
	}
	for i, x := range n {
		if x < 800 || x > 1200 {
			t.Errorf("lane %d has %d of %d keys", i, x, keys)
		}
	}
	lanes[3].Free = false
	fewer := append(append([]Candidate{}, lanes[:3]...), lanes[4:]...)
	for k, was := range bound {
		switch got := ch.Choose(0, 1, uint64(k), lanes); {
		case was == 3 && got != -1:
			t.Fatalf("key %d is bound to lane 3, which is full, and went to %d", k, got)
		case was != 3 && got != was:
			t.Fatalf("key %d went to %d, was bound to %d", k, got, was)
		}
		if i := ch.Choose(0, 1, uint64(k), fewer); was != 3 &&
			(i < 0 || fewer[i].Lane != int32(was)) {
			t.Fatalf("key %d moved although its lane %d is still there", k, was)
		}
	}
}

func BenchmarkLeastCompletion(b *testing.B) {
	lanes := make([]Candidate, 1000)
	for i := range lanes {
		lanes[i] = Candidate{Lane: int32(i), Free: true, Known: true, Mean: 1,
			Rate: float64(1 + i%100), Work: float64(i % 7)}
		lanes[i].Service = time.Duration(1+i%200) * ms
	}
	ch := LeastCompletion{}.New(source(1))
	b.ReportAllocs()
	for b.Loop() {
		ch.Choose(0, 1, 0, lanes)
	}
}
