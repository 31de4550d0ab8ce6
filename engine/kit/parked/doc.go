// Package parked stores deliveries on disk until their next attempt is due. It is for deliveries
// with retries over hours or days, such as webhooks: the source's progress can move past a record
// as soon as its delivery is parked.
//
// [Schedule] and [Progress] decide when an attempt is due and how its outcome changes the delivery.
// They do no I/O. A [Store] is the file with the deliveries. docs/formats/parked.md describes the
// format, and docs/adr/0024-parked-deliveries.md the reasons for the design.
package parked
