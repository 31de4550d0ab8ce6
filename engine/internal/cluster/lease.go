//penstock:pure

package cluster

import "time"

// times are the intervals of a lease.
type times struct {
	renew  time.Duration // interval of renewals (by the owner) and reads (by others)
	expire time.Duration // time without a renewal until another process takes over
	stop   time.Duration // time after its last renewal at which the owner stops working
}

var defaultTimes = times{renew: time.Second, expire: 8 * time.Second, stop: 6 * time.Second}

// Value is the value that the owner of a lease stores under its key.
type Value struct {
	Owner string `json:"owner"`           // a session of a process; "" if the lease was given back
	Epoch uint64 `json:"epoch,omitempty"` // revision of the key before the takeover, plus 1
	Count uint64 `json:"count"`           // number of the owner's writes
}

// Entry is the result of reading a lease. Revision is the revision of the key or, if the key does
// not exist, the last revision of the whole bucket. A process that takes a lease uses Revision plus
// 1 as its epoch. So each epoch is higher than all earlier ones, even if the key was deleted.
type Entry struct {
	Found    bool
	Revision uint64
	Value    Value
}

// Kind is the kind of a command.
type Kind uint8

// The kinds of a command.
const (
	Wait   Kind = iota // do nothing until Command.At
	Read               // read the key from the leader of its stream
	Create             // write Command.Value if the key does not exist
	Update             // write Command.Value if the key has Command.Revision
)

// Command is the next request of a lease.
type Command struct {
	Kind     Kind
	At       time.Duration
	Revision uint64
	Value    Value
}

// Result is the outcome of a request of a lease.
type Result uint8

// Values of Result.
const (
	Done     Result = iota
	Conflict        // the key exists, or has another revision
	Unknown         // another error: a write may have taken effect, or may do so later
)

// phase is the phase of a process in the life of a lease:
//
//	watching ──expired, given back or missing──▶ taking ──done──▶ owning ──▶ (renews)
//	    ▲                                           │               │
//	    │                                  conflict, other error   conflict, other error
//	    │                                           ▼               ▼
//	    └──── not owned by this process ──────── checking ──owned by this one──▶ owning
//
// In the phase owning, the last successful renewal may be older than times.stop. The process must
// then not act as the owner. But it continues to renew: if no other process has taken the lease, a
// renewal still succeeds.
type phase uint8

const (
	watching phase = iota
	taking
	owning
	checking
)

// Lease is the knowledge of one process about one lease. Its methods get the present time as an
// argument, as the time since some fixed moment. The caller's clock should also run while the
// system is suspended. A Lease is not safe for concurrent use.
type Lease struct {
	owner string
	times times
	phase phase
	at    time.Duration // time of the next request
	sent  time.Duration // time of the last request

	revision uint64 // revision of the entry that was last read or written
	held     Value  // value of that entry
	count    uint64 // number of writes
	written  Value  // value of the last write; attempt has the time of sending
	attempt  time.Duration
	epoch    uint64

	valid   bool          // this process is the owner by the time renewed
	renewed time.Duration // time when the last successful renewal was sent

	seen      bool // an entry was read since the last change of the phase to watching
	found     bool
	givenBack bool          // the last owner has given the lease back
	unchanged time.Duration // measured time without a change of the entry
	counts    bool          // unchanged may count the time since answered: no read failed since
	answered  time.Duration
}

// NewLease returns a lease whose owner is not known yet. The argument owner names this process. It
// must be different for each start of the process: otherwise a restarted process would take the
// lease of its predecessor for its own.
func NewLease(owner string) *Lease { return &Lease{owner: owner, times: defaultTimes} }

// Owns reports whether the process may act as the owner at the time now.
func (l *Lease) Owns(now time.Duration) bool {
	return l.valid && now-l.renewed < l.times.stop
}

// OwnedUntil returns the time at which the process must stop acting as the owner if no renewal
// succeeds before. It returns false if the process does not own the lease.
func (l *Lease) OwnedUntil() (time.Duration, bool) { return l.renewed + l.times.stop, l.valid }

// Renewed returns the time at which the last successful renewal was sent. It returns false if the
// process does not own the lease.
func (l *Lease) Renewed() (time.Duration, bool) { return l.renewed, l.valid }

// Held returns the last known value of the lease.
func (l *Lease) Held() Value { return l.held }

// RenewNow makes the next renewal due immediately if the process owns the lease.
func (l *Lease) RenewNow() {
	if l.phase == owning {
		l.at = l.sent
	}
}

// Epoch returns the epoch of the last takeover by this process, or 0 if there was none. An epoch is
// a number that is higher for each new owner.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Next returns the request to send now, or Wait if none is due. The argument is the present time.
// The caller must report the result of the request with Wrote or ReadDone before it calls Next
// again.
func (l *Lease) Next(now time.Duration) Command {
	if now < l.at {
		return Command{Kind: Wait, At: l.at}
	}
	l.sent, l.at = now, now+l.times.renew
	switch {
	case l.phase == owning:
		return l.write(Update)
	case l.phase == watching && l.seen && !l.found:
		l.phase = taking
		return l.write(Create)
	case l.phase == watching && l.seen && (l.givenBack || l.unchanged >= l.times.expire):
		l.phase = taking
		return l.write(Update)
	}
	return Command{Kind: Read}
}

func (l *Lease) write(k Kind) Command {
	l.count++
	l.attempt = l.sent
	l.written = Value{Owner: l.owner, Epoch: l.epoch, Count: l.count}
	if l.phase == taking {
		l.written.Epoch = l.revision + 1
	}
	return Command{Kind: k, Revision: l.revision, Value: l.written}
}

// Wrote tells the lease the result of a Create or Update. If r is Done, revision is the new
// revision of the key. If r is Unknown, there was no response or another error: the write may have
// taken effect, or may do so later. If r is Unknown or Conflict, the next request reads the key.
func (l *Lease) Wrote(r Result, revision uint64) {
	switch r {
	case Done:
		l.adopt(Entry{Found: true, Revision: revision, Value: l.written})
	case Conflict:
		l.phase, l.valid, l.at = checking, false, l.sent
	case Unknown:
		l.phase = checking
	}
}

// ReadDone tells the lease the result of a Read. now is the present time. If r is Done, e is the
// entry that was read. If r is Unknown, the read failed.
func (l *Lease) ReadDone(now time.Duration, r Result, e Entry) {
	switch {
	case r != Done:
		l.counts = false
	case e.Found && e.Value.Owner == l.owner:
		l.adopt(e)
	default:
		l.watch(now, e)
	}
}

// adopt notes that this process owns the lease, because it has written e, the entry of the key. The
// ownership ends a fixed time after a write was sent. If e is the last write, adopt extends the
// ownership accordingly. But e may be an earlier write, and the Lease does not know when that write
// was sent. adopt then extends nothing, and makes a renewal due immediately.
func (l *Lease) adopt(e Entry) {
	l.phase, l.revision, l.epoch, l.held = owning, e.Revision, e.Value.Epoch, e.Value
	if e.Value != l.written {
		l.at = l.sent
		return
	}
	l.valid, l.renewed = true, l.attempt
}

// maxCounted bounds the time that watch counts between two reads, as a multiple of times.renew. If
// more time has passed, this process was suspended, and cannot know whether the owner was able to
// renew meanwhile. So watch does not count the excess.
const maxCounted = 2

// watch measures for how long the entry of another owner has not changed. For this it adds up the
// times between reads, from the response to a read to the start of the next read. The time of the
// reads themselves does not count. The reason is that the servers may be electing a leader while a
// read waits, and no process can renew before the election has ended.
func (l *Lease) watch(now time.Duration, e Entry) {
	same := l.phase == watching && l.seen && e.Found == l.found && e.Revision == l.revision
	switch {
	case !same:
		l.unchanged = 0
	case l.counts:
		l.unchanged += max(0, min(l.sent-l.answered, maxCounted*l.times.renew))
	}
	l.phase, l.valid = watching, false
	l.seen, l.found, l.revision, l.held = true, e.Found, e.Revision, e.Value
	l.givenBack = e.Found && e.Value.Owner == ""
	l.counts, l.answered = true, now
	if l.givenBack || !e.Found || l.unchanged >= l.times.expire {
		l.at = l.sent // take over immediately
	} else {
		l.at = min(l.at, now+l.times.expire-l.unchanged)
	}
}

// Release ends the ownership. It returns the command that gives the lease back, or Wait if this
// process does not own the lease, or is not certain to own it. After Release, Next must not be
// called.
func (l *Lease) Release() Command {
	if !l.valid || l.phase != owning {
		return Command{Kind: Wait}
	}
	l.valid = false
	return Command{Kind: Update, Revision: l.revision, Value: Value{Epoch: l.epoch, Count: l.count + 1}}
}
