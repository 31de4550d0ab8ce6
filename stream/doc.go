// Package stream is the contract between the engine and its connectors: the sources, processors and
// sinks. A connector imports this package and no internal package of the engine. So a third-party
// connector can do everything that a built-in one can.
//
// The package contains the types of the data ([Batch], [Record], [Span], [Mark]) and the interfaces
// that connectors implement ([Source], [Processor], [Sink], [Component]). The engine creates the
// instances and calls them. The outcomes of a delivery ([Throttled], [Rejected], [Misconfigured])
// are aliases of types in package flow.
//
// # Terms
//
// A route delivers the data of one source to one sink. A partition is a part of a source with an
// order of its own, such as a file, and a position is a place in it. A span is the range of a
// partition that a batch covers. A record is settled when it was delivered, dead-lettered or
// dropped. A mark is the settled progress of one route in one partition. A ledger is the progress
// that a sink stores in the transaction of the data.
//
// # Capabilities
//
// The following interfaces are optional. A component that implements an interface has the
// capability, unless a method such as Encodes or Finishes reports otherwise because of its options:
//
//	Sink    Encoder            encodes batches before they are dispatched
//	        AppendSink         appends to an output that has an end, and may sync later than
//	                           it acknowledges
//	        TransactionalSink  stores positions in the transaction of the data
//	        PartitionLedger    also fences off other processes, for each partition
//	        DeadLetterSink     also stores dead letters in that transaction
//	        ParkingSink        delivers records later, from a store of its own
//	        SourceBoundSink    stores positions in the store of the source, with the data
//	        AuditedSink        lets its contents be counted
//	Source  Finisher           renames or deletes partitions that are delivered
//	        Holder             keeps deleted data until all routes have read it
//	        RetryingSource     retries by itself, and reports why it gets no data
//	        AssignedSource     has partitions that a broker assigns and revokes, and stores
//	                           positions in the broker
//	        RequestSource      has requests that several processes may get
//	        SharedSource       can be read by the processes of a cluster, one at a time
//	Reader  AssignedReader     knows which partitions it owns; for an AssignedSource
//	        Estimator          knows how much is left
//	        InputReader        notices that its input changes while nothing reads it
//	        PartitionTracker   recognizes partitions after a restart, and knows which are deleted
//	        RangeReader        reads again the data of batches that wait for a retry
//	        SettledReader      answers its senders when their data is settled
//	        WithdrawingReader  takes data back that no worker has got
//	        DrainingReader     returns the data that it has taken when its route drains
//	options Shaper             knows the fields of the records that its component passes on
//	        Preferred          knows at which batch size its sink is fast
//	        EnvironmentUser    depends on variables of the environment
//	        ExclusiveUser      needs a resource alone, such as a port
//	        FileReader         knows which files its source reads
//	        FileWriter         knows the output file of its sink
//	        Noticer            has remarks on valid options
//	        Composite          is a list of sinks
//	        BufferingOptions   opens the buffer of a source for commands of operators
//	        ParkingOptions     opens the store of a ParkingSink for commands of operators
//	        RequestOptions     knows how long a RequestSource keeps requests
//	        ObjectOptions      knows that the fields of records are in their text
//	        Rereadable         describes how its source can be read a second time
//	errors  Grouped            has a reason by which dead letters are counted
//
// # Ownership of a batch
//
// A [Reader] fills a batch from a [Pool], then the processors change it. So far, the batch has one
// owner. Once the engine has given the batch to a worker, the batch is read-only, and each attempt
// to deliver it holds it by Retain. The last Release returns its memory to the pool.
//
// The package holds no policy, starts no goroutine, reads no clock and runs under testing/synctest.
package stream
