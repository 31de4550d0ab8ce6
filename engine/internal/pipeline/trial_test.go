package pipeline

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// TestTrial checks the search for records that kill processors (see trial). These records must be
// dead-lettered, together with the other records of their origins. Every other record is processed
// once, with few deaths of processors.
func TestTrial(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		origins := 1 + rng.IntN(300)
		b := lines(&stream.Partition{ID: "p"}, 0, origins, false)
		b.Split()
		for i := len(b.Records) - 1; i >= 0; i-- { // some origins are several records already
			for rng.IntN(10) == 0 {
				oneMore(b, i)
			}
		}
		kills := make(map[stream.Position]bool)
		for range rng.IntN(5) {
			kills[b.Records[rng.IntN(len(b.Records))].Origin] = true
		}
		done, deaths := try(t, b, kills)
		for _, r := range b.Records {
			switch is := done[r.Origin]; {
			case kills[r.Origin] != (r.State == stream.Dead):
				t.Fatalf("seed %d: origin %v kills %v, and its state is %v", seed, r.Origin, kills[r.Origin], r.State)
			case !kills[r.Origin] && is != 1:
				t.Fatalf("seed %d: origin %v was done %d times", seed, r.Origin, is)
			}
		}
		if most := maxDeaths + len(kills)*(maxDeaths+11); deaths > most {
			t.Fatalf("seed %d: %d deaths for %d of %d origins, want at most %d", seed, deaths,
				len(kills), origins, most)
		}
	}
}

// try runs the trial of b: it processes ranges of b until the records that kill processors are
// found (see trial). The processor dies at each range that has a record of an origin in kills. done
// counts how often each origin was processed.
func try(t *testing.T, b *stream.Batch, kills map[stream.Position]bool) (done map[stream.Position]int, deaths int) {
	t.Helper()
	var tr trial
	done = make(map[stream.Position]int)
	below := len(b.Records)
	for range 100_000 {
		s, more := tr.next()
		switch {
		case !tr.suspect:
			s = recordRange{to: len(b.Records)}
		case !more:
			return done, deaths
		case s.to > below || s.from >= s.to:
			t.Fatalf("stretch %+v after everything from %d on", s, below)
		}
		deadly := func(r stream.Record) bool { return r.State == stream.Kept && kills[r.Origin] }
		if slices.ContainsFunc(b.Records[s.from:s.to], deadly) {
			deaths++
			if deadLetter, giveUp := tr.died(b); giveUp {
				t.Fatal("it gives up")
			} else if deadLetter {
				for i := s.from; i < s.to; i++ {
					b.DeadLetter(i, errors.New("deadly"))
				}
				below = s.from
				tr.pop()
			}
			continue
		}
		seen := make(map[stream.Position]bool)
		for _, r := range b.Records[s.from:s.to] {
			if !seen[r.Origin] {
				done[r.Origin]++
			}
			seen[r.Origin] = true
		}
		if !tr.suspect {
			return done, deaths
		}
		below = s.from
		tr.pop()
	}
	t.Fatal("it does not end")
	return nil, 0
}

// TestTrialGivesUp checks a batch that kills maxDeaths processors in its last step, after all
// records were processed. The batch must fail.
func TestTrialGivesUp(t *testing.T) {
	b := lines(&stream.Partition{ID: "p"}, 0, 4, false)
	tr := trial{suspect: true}
	for n := 1; n <= maxDeaths; n++ {
		if _, giveUp := tr.died(b); giveUp != (n == maxDeaths) {
			t.Errorf("death %d: given up %v", n, giveUp)
		}
	}
}
