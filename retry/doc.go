// Package retry says whether to try again, and does it.
//
// [Do] and [Value] run an operation until it succeeds, [Loop] gives the attempts to a range statement, [Poll] asks
// until a long operation elsewhere has ended, [Hedge] asks twice and takes the first answer, [Fallback] asks somebody
// else in the end, and [Transport] does all of it under an http.Client. How long to wait between attempts is a
// backoff.Policy; this package adds everything else that decides:
//
//   - what kind of failure it was ([Classifier]: retry, fail, failover, refresh; [Permanent]; [After] and the hints of
//     an HTTP server, which jitter never shortens),
//   - the limits of one sequence (attempts, elapsed time, time spent failing, time per attempt, the caller's deadline:
//     a wait that would outlive it is not begun),
//   - the limits of all sequences together ([Budget]), and of one retry inside another (see below).
//
// # Words
//
// An attempt is one run of the operation, the first included; a retry is an attempt after the first. Only attempts
// are counted, never retries: the limit of ten lets the operation run ten times, and nine waits pass.
//
// # The operation's context
//
// The operation gets a context that knows the attempt: [FromContext] reads its number, its target and its key. The
// operation never runs with a context that has ended. A retry that runs inside another one's attempt finds that in
// its context: it makes one attempt and leaves the rest to the outer one, so that three layers of three attempts are
// three calls and not twenty-seven ([Nested] asks for the twenty-seven).
//
// # Cost
//
// The success of a first attempt allocates nothing and reads no clock where the caller's context is one that was used
// before, as in a loop; else it allocates one small value that carries the attempt. The package starts no goroutine
// but in [Hedge], whose attempts have to run side by side.
//
// Decisions are pure and stand in files of their own (plan.go, classify.go, hint.go, budget.go); the rest waits, calls
// and reports.
package retry
