package follow

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// scanSpacing bounds the cost of listings. After a listing, an idle reader waits at least
// scanSpacing times as long as the listing took. It waits less if a notification comes, if a file
// is due, or if a reader with Once has read everything.
const scanSpacing = 10

const (
	// wakeSpacing is the minimum wait between two listings.
	wakeSpacing = 5 * time.Millisecond
	// wakePerFile is the minimum wait between two listings for each file in which the last listing
	// has found data. These waits add up, to at most wakeMost. A read costs several system calls
	// even if a file has grown little. With many growing files, longer waits lead to fewer and
	// larger reads.
	wakePerFile = 200 * time.Microsecond
	wakeMost    = 20 * time.Millisecond
)

// pace decides when a reader lists its files again. Times are monotonic and count from the creation
// of the catalogue.
type pace struct {
	listed  time.Duration // end of the last listing
	took    time.Duration // its duration
	found   int           // files that it found to be read
	idle    backoff.State
	idleFor time.Duration
	due     time.Duration // when something has to be looked at; 0 if nothing has
}

// dueAt schedules a listing at a time, or as early as possible if that time is past.
func (p *pace) dueAt(at time.Duration) {
	if p.due == 0 || at < p.due {
		p.due = max(at, 1)
	}
}

// soon schedules a listing as early as possible.
func (p *pace) soon() { p.dueAt(1) }

// spacing returns the minimum wait between the last listing and the next one.
func (p *pace) spacing() time.Duration {
	return max(wakeSpacing, 2*p.took, min(time.Duration(p.found)*wakePerFile, wakeMost))
}

// next returns the time at which an idle reader lists again if no notification comes before. atEnd
// reports whether a reader with Once has read everything, so that the next listing may end the run.
func (p *pace) next(atEnd bool) time.Duration {
	at := p.listed + max(p.idleFor, scanSpacing*p.took, p.spacing())
	if p.due > 0 {
		at = min(at, max(p.due, p.listed+p.spacing()))
	}
	if atEnd {
		at = min(at, p.listed+p.spacing())
	}
	return at
}

// record records a listing, and the number of files with bytes to read that it has found. While
// listings find none, the wait between them doubles. Its minimum is the parameter first, and its
// maximum is most.
func (p *pace) record(begun, ended time.Duration, found int, first, most time.Duration) {
	p.listed, p.took, p.found = ended, ended-begun, found
	if found > 0 {
		p.idle, p.idleFor = backoff.State{}, 0
		return
	}
	p.idleFor, p.idle, _ = backoff.Exponential(first, 2, most).Next(p.idle, nil)
}
