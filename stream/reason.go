package stream

// Grouped is an optional interface of an error that is the reason of a dead letter. Group splits
// the error in two: a reason that is the same for all dead letters of one kind, by which they are
// counted, and the detail of this record, such as the position of the invalid byte.
type Grouped interface {
	error
	Group() (reason, detail string)
}
