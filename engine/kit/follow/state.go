//penstock:pure

package follow

// state is the stage of a file between its first listing and its end. A file is created as listed,
// unlisted, awaiting or finished.
//
//	from      event       to        when
//	listed    renamed     listed    its inode has another listed name
//	listed    losesName   nameless  no listed name leads to it; it is read by its handle
//	listed    deleted     awaiting  the same, and it is not open
//	listed    isFinished  finished  its source renamed, moved or deleted it after its end
//	nameless  renamed     listed    it has a listed name again
//	nameless  losesName   nameless  it still has no listed name
//	nameless  deleted     awaiting  another file holds the same data, or its handle is lost
//	unlisted  renamed     listed    it has a listed name now
//	unlisted  losesName   nameless  its inode was used again; it is read by its handle
//	unlisted  deleted     awaiting  its name is gone and it is not open
//
// Every state except ended also has the event ends, which leads to ended. The reasons are: all of the
// file was read, another file continues it, or its data is unreachable.
type state uint8

const (
	listed   state = iota // a name that the source lists leads to it
	nameless              // only its open handle leads to it
	unlisted              // a name leads to it that the source does not list
	finished              // its source has finished it; it may grow nevertheless
	awaiting              // its name or data is gone from where it was; another file may have it
	ended
)

// event is a decision about one file.
type event uint8

const (
	renamed event = iota
	losesName
	deleted
	isFinished
	ends
)

// transitions has the table of [state].
var transitions = map[state]map[event]state{
	listed:   {renamed: listed, losesName: nameless, deleted: awaiting, isFinished: finished},
	nameless: {renamed: listed, losesName: nameless, deleted: awaiting},
	unlisted: {renamed: listed, losesName: nameless, deleted: awaiting},
}

// on returns the state after an event. An event that the table does not have changes nothing.
func (s state) on(e event) state {
	if e == ends {
		return ended
	}
	if to, ok := transitions[s][e]; ok {
		return to
	}
	return s
}
