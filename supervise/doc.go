// Package supervise runs goroutines that have a name, an owner and a bounded shutdown, and restarts
// them when they fail.
//
//   - A [Group] runs named goroutines with one context. The first failure ends the context, and
//     Wait returns that failure.
//   - A [Supervisor] restarts its children when they end, with backoff, escalation and
//     supervision trees as in Erlang/OTP. A Supervisor is a [Service], so it can be a child of
//     another one.
//   - A [Resender] keeps messages for a child that may crash at any time, until the child has
//     acknowledged them.
//
// A program with three services and a log of all restarts:
//
//	tree, err := supervise.New("shop", supervise.Spec{OnEvent: supervise.LogTo(slog.Default())},
//		supervise.Child{Name: "web", Run: serveHTTP},
//		supervise.Child{Name: "mail", Run: sendMail},
//		supervise.Child{Service: cache}, // any value with Serve(ctx) error; its String method gives the name
//	)
//	if err != nil {
//		return err
//	}
//	return tree.Serve(ctx) // blocks
//
// Terms: an incarnation of a child is one run of it, from a start to its return. A child is stuck
// if it has not returned in time after its context has ended. A supervisor escalates, or gives up,
// if it stops its children and returns an error instead of restarting a child.
//
// A Resender holds a message from Send until the message is acknowledged or dead-lettered. A
// message is ready if it only waits for the child to take it. A child has a message from the time
// when it takes the message until its Ack or Nack, or until the child returns. After a Nack, the
// message is ready again after a delay, or is dead-lettered. After a crash, the child is on
// probation: it gets messages in rounds of 1, 2, 4, 8, ... messages, until it has recovered.
//
// The package logs only through [LogTo]. See also [Supervisor.Status]. Everything runs under
// testing/synctest, with exact delays. The code that decides (restart order, delays, limits, which
// messages are sent again) takes the time as a parameter. Other files start goroutines and wait.
package supervise
