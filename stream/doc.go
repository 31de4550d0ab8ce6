// Package stream is the contract between the engine and its sources, processors and sinks.
//
// It holds the types that travel ([Batch], [Record], [Span], [Mark]) and the interfaces that
// sources, processors and sinks implement ([Source], [Processor], [Sink], [Component]). The engine
// owns their instances and calls them. A connector imports this package and nothing of the engine,
// so a third-party connector can do whatever a built-in one can. The outcomes of a delivery
// ([Throttled], [Rejected], [Misconfigured]) are those of package flow, under aliases.
//
// # Ownership of a batch, in one line
//
// pool → Reader fills → processors (one owner) → Retain for each attempt, read-only → last Release
// → pool.
//
// The package holds no policy, starts no goroutine and reads no clock.
package stream
