package stream

// Grouped is an optional interface of an error that is the reason of a dead letter. Group splits
// the error in two. All dead letters of one kind have the same reason, by which they are counted.
// The detail is that of this record, such as the position of the invalid byte.
type Grouped interface {
	error
	Group() (reason, detail string)
}
