// Package stream is the contract between the engine and its sources, processors and sinks.
//
// It contains the types of the data ([Batch], [Record], [Span], [Mark]) and the interfaces that
// sources, processors and sinks implement ([Source], [Processor], [Sink], [Component]). The engine
// owns their instances and calls them. A connector imports this package and no package of the
// engine, so a third-party connector can do everything that a built-in one can. The outcomes of a
// delivery ([Throttled], [Rejected], [Misconfigured]) are aliases of types in package flow.
//
// # Ownership of a batch
//
// pool → Reader fills → processors (one owner) → Retain for each attempt, read-only → last Release
// → pool.
//
// The package holds no policy, starts no goroutine, reads no clock and runs under testing/synctest.
package stream
