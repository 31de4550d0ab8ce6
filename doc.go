// Package penstock is the contract between the engine and what it delivers from and to.
//
// It holds the types that travel ([Batch], [Record], [Span], [Mark]) and the interfaces that sources,
// processors and sinks implement ([Source], [Processor], [Sink], [Component]). The engine owns their
// instances and calls them; a connector imports this package and nothing of the engine, so that an
// outsider's connector has exactly the powers of a built-in one.
//
// # Ownership of a batch, in one line
//
// pool → Reader fills → processors (one owner) → Retain for each attempt, read-only → last Release → pool.
//
// The package holds no policy, starts no goroutine and reads no clock.
package penstock
