// Package parked keeps deliveries until their next attempt is due: durably, without a place in a
// window and without holding back the source's position.
//
// [Schedule] and [Progress] decide when an attempt is due and what its outcome means. They are
// pure. A [Store] is the file; it starts no goroutine. docs/formats/parked.md has its form, and
// docs/adr/0024-parked-deliveries.md the reasons.
package parked
