// Package parked stores deliveries on disk until their next attempt is due. It is for deliveries
// with retries over hours or days, such as webhooks: a parked delivery is not in flight, and the
// source's progress can move past its record.
//
// [Schedule] and [Progress] decide when an attempt is due and how its outcome changes the delivery.
// They do no I/O. A [Store] is the file with the deliveries; it starts no goroutine.
// docs/formats/parked.md describes the format, and docs/adr/0024-parked-deliveries.md the reasons
// for the design.
package parked
