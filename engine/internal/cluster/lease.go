//penstock:pure

package cluster

import "time"

// Times are the periods of a lease. The zero value means the defaults.
type Times struct {
	Renew  time.Duration // between two renewals or reads; 0 means 1s
	Expire time.Duration // time without a change until a candidate takes over; 0 means 8s
	Stop   time.Duration // time after the last successful renewal until the owner stops; 0 means 6s
}

func (t Times) withDefaults() Times {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&t.Renew, time.Second)
	set(&t.Expire, 8*time.Second)
	set(&t.Stop, 6*time.Second)
	return t
}

// Value is the value of a lease's key.
type Value struct {
	Owner string `json:"owner"`           // a session of a process; "" if the lease was given back
	Epoch uint64 `json:"epoch,omitempty"` // the revision before the takeover, plus 1
	Count uint64 `json:"count"`           // number of the owner's writes
}

// Entry is the result of reading a lease. For a missing key, the revision is the last revision of
// the whole bucket, so that epochs grow even if the key was deleted.
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
	Read               // read the key, from the leader of its stream
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

// Result is the outcome of a request.
type Result uint8

// The results.
const (
	Done     Result = iota
	Conflict        // the key exists, or has another revision
	Unknown         // no response: the request may take effect now or later
)

// phase is the state of a lease.
//
//	watching ──expired, given back or missing──▶ taking ──done──▶ owning ──▶ (renews)
//	    ▲                                           │               │
//	    │                                  conflict, no answer   conflict, no answer
//	    │                                           ▼               ▼
//	    └───────── another's ─────────────────── checking ──ours──▶ owning
//
// An owner may not act if its last successful renewal is older than Times.Stop. It continues to
// renew, because it may still be the owner.
type phase uint8

const (
	watching phase = iota
	taking
	owning
	checking
)

// Lease is one process's view of one lease. Times are relative to any fixed moment, by a clock that
// advances while the system is suspended. It is not safe for concurrent use.
type Lease struct {
	owner string
	times Times
	phase phase
	at    time.Duration // of the next request
	sent  time.Duration // when the last request was sent

	revision uint64 // of the entry that was last read or written
	held     Value  // of that entry
	count    uint64 // number of writes
	written  Value  // value of the last write, which was sent at attempt
	attempt  time.Duration
	epoch    uint64

	valid   bool          // renewed is set, and the process knows no later owner
	renewed time.Duration // when the last answered renewal was sent

	seen      bool // an entry was read since the last change of the phase to watching
	found     bool
	givenBack bool          // the entry has no owner
	unchanged time.Duration // observed time without a change
	counts    bool          // no read has failed since the one at answered
	answered  time.Duration
}

// NewLease returns a lease whose owner is not known. owner is unique to the process and its start.
func NewLease(owner string, t Times) *Lease {
	return &Lease{owner: owner, times: t.withDefaults()}
}

// Owns reports whether the process may act as the owner at the time now.
func (l *Lease) Owns(now time.Duration) bool {
	return l.valid && now-l.renewed < l.times.Stop
}

// OwnedUntil returns the time from which Owns returns false unless the lease is renewed before. The
// second result is false if the process does not own the lease.
func (l *Lease) OwnedUntil() (time.Duration, bool) { return l.renewed + l.times.Stop, l.valid }

// Renewed returns the time at which the last successful renewal was sent. The second result is
// false if there is none.
func (l *Lease) Renewed() (time.Duration, bool) { return l.renewed, l.valid }

// Held returns the last known value of the lease.
func (l *Lease) Held() Value { return l.held }

// RenewNow makes the owner's next request due now.
func (l *Lease) RenewNow() {
	if l.phase == owning {
		l.at = l.sent
	}
}

// Epoch returns the epoch of the last takeover by this process; 0 if there was none. Each owner's
// epoch is higher than the previous owner's.
func (l *Lease) Epoch() uint64 { return l.epoch }

// Next returns the next request, or Wait, at the time now. The caller must report the result of a
// request with Wrote or ReadDone before it calls Next again.
func (l *Lease) Next(now time.Duration) Command {
	if now < l.at {
		return Command{Kind: Wait, At: l.at}
	}
	l.sent, l.at = now, now+l.times.Renew
	switch {
	case l.phase == owning:
		return l.write(Update)
	case l.phase == watching && l.seen && !l.found:
		l.phase = taking
		return l.write(Create)
	case l.phase == watching && l.seen && (l.givenBack || l.unchanged >= l.times.Expire):
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

// Wrote tells the lease the result of a Create or Update, with the new revision if the result is
// Done. A write without a response may take effect now, later or never. The next read determines
// that.
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

// ReadDone tells the lease the result of a Read, at the time now. The result is Done, or Unknown if
// there was no response.
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

// adopt records an entry that this process has written. The time of sending is known only for the
// last write. If the entry comes from an earlier write that took effect late, the process must
// renew the lease before it acts as the owner.
func (l *Lease) adopt(e Entry) {
	l.phase, l.revision, l.epoch, l.held = owning, e.Revision, e.Value.Epoch, e.Value
	if e.Value != l.written {
		l.at = l.sent
		return
	}
	l.valid, l.renewed = true, l.attempt
}

// maxCounted bounds the time counted between two reads, in periods. A process that was suspended
// does not know whether the owner could have renewed in between.
const maxCounted = 2

// watch counts the time in which the entry of another owner has not changed. It counts from the
// response to a read until the next read is sent. This excludes the network time, and elections of
// the stream's leader, during which no process can renew.
func (l *Lease) watch(now time.Duration, e Entry) {
	same := l.phase == watching && l.seen && e.Found == l.found && e.Revision == l.revision
	switch {
	case !same:
		l.unchanged = 0
	case l.counts:
		l.unchanged += max(0, min(l.sent-l.answered, maxCounted*l.times.Renew))
	}
	l.phase, l.valid = watching, false
	l.seen, l.found, l.revision, l.held = true, e.Found, e.Revision, e.Value
	l.givenBack = e.Found && e.Value.Owner == ""
	l.counts, l.answered = true, now
	if l.givenBack || !e.Found || l.unchanged >= l.times.Expire {
		l.at = l.sent // take over immediately
	} else {
		l.at = min(l.at, now+l.times.Expire-l.unchanged)
	}
}

// Release ends the ownership and returns the command that gives the lease back, or Wait if there is
// nothing to give back. No method may be called afterwards.
func (l *Lease) Release() Command {
	if !l.valid || l.phase != owning {
		return Command{Kind: Wait}
	}
	l.valid = false
	return Command{Kind: Update, Revision: l.revision, Value: Value{Epoch: l.epoch, Count: l.count + 1}}
}
