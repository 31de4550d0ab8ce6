// Package memory connects a program with an engine that it embeds. The program pushes records into
// a [Source]. A [Sink] passes records to a function or to a loop.
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
// dead-lettered or dropped. While the process lives, nothing is lost. A failed route reads again
// from its own position, and a restarted pipeline finds the same records. When the process ends,
// unsettled records are lost, because they exist nowhere else. A program that must not lose them
// keeps its own copy until [Source.Send] or [Source.Settled] has returned, and pushes it again
// after a crash. The receivers may then get it twice.
//
// Neither component is in connector/all. Only a program that holds the value can use them; a config
// file alone cannot.
package memory
