package stream

// Grouped is an optional part of an error that is the reason of a dead letter. Group returns the
// text shared by all letters of this kind, by which they are counted, and the detail of this
// record, such as the position of the invalid byte.
type Grouped interface {
	error
	Group() (reason, detail string)
}
