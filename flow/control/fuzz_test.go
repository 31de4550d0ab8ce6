package control_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// tape is the fuzzer's input. It returns one byte after the other, and zeros after the last.
type tape struct{ b []byte }

func (t *tape) next(below int) int {
	if len(t.b) == 0 {
		return 0
	}
	x := int(t.b[0]) % below
	t.b = t.b[1:]
	return x
}

// newFuzzModel returns a model with a configuration and lanes chosen by the tape.
func newFuzzModel(t *testing.T, in *tape) *model {
	size := 1 + in.next(4)
	cfg := control.Config{
		Seed:     uint64(in.next(256)),
		Dispatch: []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{}, dispatch.Hash{}}[in.next(3)],
		Timeout:  []time.Duration{0, 50 * time.Millisecond, -1}[in.next(3)],
		Replay:   []int64{0, 0, 60, 500}[in.next(4)],
		Breaker:  control.Breaker{Failures: []int{0, 0, 1, -1}[in.next(4)]},
		Retry:    backoff.Exponential(50*ms, 2, sec).Full(),
	}
	cfg.Budget = []control.Budget{{}, {Share: 0.01, PerSecond: 1, Burst: 1}, {Share: -1}}[in.next(3)]
	cfg.Poison = []control.Poison{{}, {Deaths: 1, Failures: 1}, {Failures: 2, Refuse: true},
		{Deaths: -1, Failures: -1}}[in.next(4)]
	cfg.Hedge.Share = []float64{0, 0.02, 1, 1}[in.next(4)]
	if cfg.Window = (window.Fixed{Size: size}); in.next(2) == 1 {
		cfg.Window, size = window.Linear{Initial: size}, 0
	}
	w := newModel(t, cfg, size)
	ordered := in.next(3)
	for i := range 1 + in.next(5) {
		w.lane(int32(i), true, control.Limits{InFlight: in.next(4), Ordered: ordered == 1 || ordered == 2 && i == 0})
	}
	if cfg.Hedge.Share == 1 {
		w.warm(25 * len(w.lanes)) // hedges need enough known round trips of each lane
	}
	return w
}

// play passes events to the model, as chosen by the bytes of the tape, until the tape ends.
func play(w *model, in *tape) {
	outcomes := []control.Outcome{
		control.Delivered, control.Delivered, control.Delivered, control.Delivered,
		control.Retryable, control.Retryable,
		control.Throttled, control.Rejected, control.Misconfigured, control.Split, control.TimedOut,
	}
	keys := in.next(3)
	for len(in.b) > 0 {
		switch in.next(11) {
		case 0, 1, 2:
			w.offer(float64(1+in.next(3)), int64(10*in.next(4)), pickKeys(in, keys)...)
		case 3, 4, 5, 6:
			if tries := w.running(); len(tries) > 0 {
				x, o := tries[in.next(len(tries))], outcomes[in.next(len(outcomes))]
				var pieces []control.Outcome
				if o == control.Split {
					for range in.next(4) {
						pieces = append(pieces,
							[]control.Outcome{control.Retryable, control.Delivered, control.Rejected}[in.next(3)])
					}
				}
				w.died = in.next(4) == 0
				w.answer(x, o, time.Duration(in.next(4))*200*time.Millisecond, pieces...)
			}
		case 7:
			w.pass(time.Duration(in.next(256)) * time.Duration(in.next(20)) * time.Millisecond)
		case 8:
			if len(w.asked) > 0 {
				w.reply(in.next(len(w.asked)), in.next(4))
			} else if w.unsaved > 0 {
				n := min(w.unsaved, int64(in.next(256)))
				w.unsaved -= n
				w.step(control.Event{Kind: control.Saved, Bytes: n})
			}
		case 9:
			num := int32(in.next(len(w.lanes)))
			l := w.lanes[num]
			w.lane(num, in.next(2) == 1 || !l.up, l.limits)
		case 10:
			if n := len(w.order); n > 0 {
				w.withdraw(in.next(n), in.next(2) == 1)
			}
		}
	}
	for num, l := range w.lanes {
		if !l.up && num == 0 {
			w.lane(num, true, l.limits)
		}
	}
	w.drain()
}

// pickKeys returns the keys of an item: none in mode 0, one in mode 1, and up to three in mode 2.
func pickKeys(in *tape, mode int) []uint32 {
	switch mode {
	case 1:
		return []uint32{uint32(in.next(3))}
	case 2:
		var k []uint32
		for range in.next(4) {
			k = append(k, uint32(in.next(4)))
		}
		return k
	}
	return nil
}

func FuzzMachine(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomTape(seed, 200).b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &tape{b}
		play(newFuzzModel(t, in), in)
	})
}

func randomTape(seed uint64, n int) *tape {
	rnd := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return &tape{b}
}

// TestMachineAtRandom checks the fuzzer's property with fixed seeds, and with longer tapes than the
// fuzzer usually tries.
func TestMachineAtRandom(t *testing.T) {
	hedged, withdrawn := uint64(0), uint64(0)
	for seed := range uint64(400) {
		in := randomTape(seed, 600)
		w := newFuzzModel(t, in)
		play(w, in)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		hedged += w.hedged
		withdrawn += w.withdrawn
	}
	if t.Logf("%d hedges, %d withdrawn", hedged, withdrawn); withdrawn < 400 {
		t.Errorf("only %d items were withdrawn", withdrawn)
	}
	if hedged < 5 {
		t.Errorf("only %d hedges were sent", hedged)
	}
}
