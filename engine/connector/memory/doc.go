// Package memory connects a program with an engine that it embeds: a [Source] into which the
// program pushes records, and a [Sink] that hands records to a function or to a loop.
//
// The program creates the value, puts its Component into the engine's list, and names it in the
// config:
//
//	source := memory.NewSource(memory.SourceOptions{})
//	sink := memory.NewSink(memory.SinkOptions{Deliver: deliver})
//	components := append(all.Components(), source.Component(), sink.Component())
//
//	pipelines:
//	  orders: { source: memory, sink: memory }
//
// # What is kept
//
// A pushed record stays in memory until every route of the pipeline has settled it: delivered,
// dead-lettered or dropped. While the process lives nothing is lost: a route that fails reads again
// from its own position, and a pipeline that restarts finds the same records. When the process
// ends, records that were not settled are gone, because they cannot be read again from anywhere. A
// program that must not lose them keeps its own copy until [Source.Send] or [Source.Settled] has
// returned, and pushes it again after a crash; the receivers may then get it twice.
//
// Neither component is in connector/all: a config file alone cannot use them, only a program that
// holds the value can.
package memory
