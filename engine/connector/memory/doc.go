// Package memory connects a program with an engine that runs in the same process. The program
// pushes records into a [Source]. A [Sink] passes records to a function or to a loop of the
// program.
//
// The program creates the Source or Sink, adds its Component to the engine's list of components,
// and uses its name in the config:
//
//	source := memory.NewSource(memory.SourceOptions{})
//	sink := memory.NewSink(memory.SinkOptions{Deliver: deliver})
//	components := append(all.Components(), source.Component(), sink.Component())
//
//	pipelines:
//	  orders: { source: memory, sink: memory }
//
// # Lost records
//
// A pushed record stays in memory until every route of the pipeline has settled it (delivered,
// dead-lettered or dropped it). While the process runs, failures lose no records: a failed route
// continues from its own position, and a restarted pipeline finds the same records.
//
// When the process ends, unsettled records are lost. A program that must not lose them keeps a
// durable copy of each record until [Source.Send] or [Source.Settled] has returned nil, and pushes
// the record again after a crash. Receivers may then get it twice.
//
// The components are not in connector/all, because a config alone cannot use them: the program must
// have the Source or Sink.
package memory
