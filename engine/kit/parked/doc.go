// Package parked stores deliveries durably until their next attempt is due. A parked delivery uses
// no place in a window and does not hold back the source's position.
//
// [Schedule] and [Progress] decide when an attempt is due and what its outcome means. They are
// pure. A [Store] is the file; it starts no goroutine. docs/formats/parked.md describes the format,
// and docs/adr/0024-parked-deliveries.md the reasons for the design.
package parked
