// Package supervise runs goroutines that have a name, an owner and a bounded shutdown, and restarts
// them when they fail.
//
//   - A [Group] runs named goroutines with one context. The first failure stops all, and Wait
//     returns it.
//   - A [Supervisor] restarts its children when they end, with backoff, escalation and supervision
//     trees as in Erlang/OTP. A Supervisor is a [Service], so it can be a child of another one.
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
// Decisions (restart order, delays, limits, which messages are sent again) are in pure files that
// take the time as a parameter. The other files start goroutines and wait. The package logs only
// through [LogTo]; see also [Supervisor.Status]. It needs no real time: everything runs under
// testing/synctest, with exact delays.
package supervise
