package stream

// Grouped is an optional part of an error that becomes the reason of a dead letter. Group returns
// the text that all letters of this kind share, so that they can be counted, and as detail what is
// true of the one record, such as the byte at which it is wrong.
type Grouped interface {
	error
	Group() (reason, detail string)
}
