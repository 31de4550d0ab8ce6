package stream

// Grouped is an optional interface of an error that is the reason of a dead letter. Group returns
// the reason that all dead letters of this kind share and are counted by, and the detail of this
// record, such as the position of the invalid byte.
type Grouped interface {
	error
	Group() (reason, detail string)
}
