package supervise

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// TestNackedProbeProvesNothing checks that after a round of the probation with a nack, the next
// round has no more messages, and the delays between restarts do not start from the beginning.
func TestNackedProbeProvesNothing(t *testing.T) {
	s := resends[int, int, int]{
		limits: Limits{Items: 10, Bytes: 10, Window: 8}, backoff: backoff.Fixed(time.Second),
		retry: backoff.Fixed(time.Second),
		src:   rand.NewPCG(1, 1), messages: map[int]*held[int, int, int]{},
	}
	for i := range 4 {
		s.accept(0, i, i, 1, nil)
	}
	s.started(0)
	if s.take(0) == nil { // the only suspect
		t.Fatal("nothing to take")
	}
	s.crashed(0, 0, errBroken)
	incarnation := s.started(0)
	h := s.take(0)
	if h == nil || h.key != 0 || s.take(0) != nil {
		t.Fatal("the probe is not the oldest message alone")
	}
	s.nack(0, h, incarnation, errBroken)
	if !s.probing || s.window != 1 || s.streak != 1 || s.state.N != 1 {
		t.Errorf("after a nacked probe: probing %v, window %d, streak %d, %+v", s.probing, s.window,
			s.streak, s.state)
	}
	s.settle(0, s.take(0)) // message 1: acked, and yet the suspect is not settled
	if !s.probing || s.window != 2 {
		t.Errorf("after an ack of another: probing %v, window %d", s.probing, s.window)
	}
	s.tick(time.Second)
	if h = s.take(time.Second); h.key != 0 || h.state.N != 2 || h.attempts != 3 {
		t.Fatalf("then comes message %d, %+v, attempt %d", h.key, h.state, h.attempts)
	}
	s.settle(time.Second, h)
	if s.probing || s.streak != 0 || s.state != (backoff.State{}) {
		t.Errorf("after the suspect's ack: probing %v, streak %d, %+v", s.probing, s.streak,
			s.state)
	}
}

// TestLateAckOfTheSuspect checks that neither a late ack of the suspect nor a nacked round ends the
// probation. The suspect is the message that the child had at a crash.
func TestLateAckOfTheSuspect(t *testing.T) {
	s := resends[int, int, int]{
		limits: Limits{Items: 10, Bytes: 10, Window: 8}, backoff: backoff.Fixed(time.Second),
		retry: backoff.Fixed(time.Second),
		src:   rand.NewPCG(1, 1), messages: map[int]*held[int, int, int]{},
	}
	for i := range 3 {
		s.accept(0, i, i, 1, nil)
	}
	s.started(0)
	first := s.take(0)
	s.crashed(0, 0, errBroken)
	incarnation := s.started(0)
	if !s.settle(0, first) || s.settle(0, first) || s.suspects != 0 || !s.probing {
		t.Fatalf("a late ack counts once and ends no probation: %d suspects, probing %v",
			s.suspects, s.probing)
	}
	s.nack(0, s.take(0), incarnation, errBroken)
	if !s.probing || s.streak != 1 {
		t.Error("a nacked round ended the probation")
	}
	s.settle(0, s.take(0))
	if s.probing || s.streak != 0 {
		t.Error("an acked round did not end it")
	}
}
