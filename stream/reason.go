package stream

// Grouped is an optional interface of an error that is the reason of a dead letter. Dead letters
// are counted by reason, so Group splits the error into a reason and a detail. The reason is the
// same for all dead letters of one kind. The detail belongs to one record, such as the position of
// an invalid byte.
type Grouped interface {
	error
	Group() (reason, detail string)
}
