package endtoend

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// This file makes the schedule of a soak test: the actions of each participant over time. The
// schedule depends only on the seed, so the seed repeats it. The results of a test also depend on
// timing.

// act is the action of one step.
type act string

const (
	actWrite act = "write" // N lines at once
	actPiece act = "piece" // a line, with a pause of N ms inside
	// Rotation by the writer's method. Unless the file is copied and truncated, the writer adds N
	// (of soakStep) more lines to the old file.
	actRotate   act = "rotate"
	actTruncate act = "truncate" // in place, after its contents were delivered
	actCompress act = "compress" // the oldest rotated file; even N: gzip, odd N: zstd
	actDelete   act = "delete"   // rotated files that were delivered
	actSpool    act = "spool"    // a complete file of N lines, created under another name
	// A file of N (of soakStep) lines, written in place with pauses. Some pauses are longer than
	// the quiet period of the config.
	actSlow   act = "slow"
	actSame   act = "same name" // a file of N lines with the name of the previous one
	actKill   act = "kill"      // SIGKILL of the program, which stays down for N ms
	actDrain  act = "drain"     // SIGTERM, and down for N ms
	actOutage act = "outage"    // the HTTP receivers answer 503 for N ms
)

// soakStep is one step of a schedule.
type soakStep struct {
	At    time.Duration
	Actor int // the writer, programActor or receiversActor
	Do    act
	N     int
}

const (
	receiversActor = -2
	programActor   = -1
	soakTailers    = 8 // writers of log files: two for each rotation method
	soakSpoolers   = 3 // writers of complete files
)

// soakAction is one kind of action with its frequency and its maximum N.
type soakAction struct {
	do    act
	every time.Duration // average interval
	most  int
}

// soakActions returns the kinds of action of a participant.
func soakActions(who int) []soakAction {
	switch {
	case who == receiversActor: // down for longer than several rotations
		return []soakAction{{actOutage, 20 * time.Second, 9000}}
	case who == programActor:
		return []soakAction{
			{actKill, 2500 * time.Millisecond, 900}, {actDrain, 20 * time.Second, 300},
		}
	case who >= soakTailers:
		all := []soakAction{{actDelete, 5 * time.Second, 1}}
		return append(all, []soakAction{
			{actSpool, 300 * time.Millisecond, 300}, {actSlow, 1200 * time.Millisecond, 60},
			{actSame, 900 * time.Millisecond, 200},
		}[who-soakTailers])
	}
	all := []soakAction{
		{actWrite, 25 * time.Millisecond, 30}, {actPiece, 700 * time.Millisecond, 80},
		{actRotate, 2500 * time.Millisecond, 5},
		{actCompress, 5 * time.Second, 2}, {actDelete, 7 * time.Second, 1},
	}
	if method := who % rotations; method == byRename || method == byCopy {
		all = append(all, soakAction{actTruncate, 8 * time.Second, 1})
	}
	return all
}

// The rotation methods; each writer has one.
const (
	byRename = iota // name, name.1, name.2, ... and a new file
	byCopy          // copied to name.1, then truncated
	byMove          // renamed out of the globs
	byDate          // continued in a file with a new name
	rotations
)

// soakSchedule returns the schedule of a seed.
func soakSchedule(seed uint64, length time.Duration) (all []soakStep) {
	for who := receiversActor; who < soakTailers+soakSpoolers; who++ {
		for i, h := range soakActions(who) {
			rnd := rand.New(rand.NewPCG(seed, uint64(100*(who+1)+i)))
			for at := time.Duration(0); ; {
				at += time.Duration((0.2 + 0.8*rnd.ExpFloat64()) * float64(h.every))
				n := 1 + rnd.IntN(h.most)
				if at >= length {
					break
				}
				all = append(all, soakStep{at, who, h.do, n})
			}
		}
	}
	slices.SortFunc(all, func(a, b soakStep) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Actor, b.Actor),
			cmp.Compare(a.Do, b.Do))
	})
	return all
}

// of returns the steps of one participant.
func of(all []soakStep, who int) []soakStep {
	return slices.DeleteFunc(slices.Clone(all), func(s soakStep) bool { return s.Actor != who })
}

// TestSoakSchedule checks that a seed determines the schedule, that a longer schedule begins like a
// shorter one, and that each schedule contains all actions.
func TestSoakSchedule(t *testing.T) {
	minute := soakSchedule(7, time.Minute)
	if !reflect.DeepEqual(minute, soakSchedule(7, time.Minute)) {
		t.Error("one seed gave two schedules")
	}
	if reflect.DeepEqual(minute, soakSchedule(8, time.Minute)) {
		t.Error("two seeds gave one schedule")
	}
	longer := soakSchedule(7, 2*time.Minute)
	if len(longer) <= len(minute) || !reflect.DeepEqual(minute, longer[:len(minute)]) {
		t.Error("a longer schedule does not begin as the shorter one")
	}
	seen := make(map[act]int)
	for _, s := range minute {
		seen[s.Do]++
	}
	for _, do := range []act{
		actWrite, actPiece, actRotate, actTruncate, actCompress, actDelete, actSpool, actSlow,
		actSame, actKill, actDrain, actOutage,
	} {
		if seen[do] == 0 {
			t.Errorf("a minute has no %q", do)
		}
	}
	if seen[actKill] < 10 {
		t.Errorf("a minute has %d kills, want 10 or more", seen[actKill])
	}
	t.Logf("a minute: %v", seen)
}
