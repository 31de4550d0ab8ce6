// Package penstock is the front page of a module that delivers data at the pace its receivers can
// bear, and loses none of it.
//
//	err := retry.Do(ctx, op)                                       // with backoff and full jitter
//	client, err := httpclient.New(httpclient.Options{})            // retries, breaks circuits, limits
//	limiter, err := limit.New(limit.Options{})                     // adapts to the server's speed
//	s, err := supervise.New("root", supervise.Spec{}, children...) // restarts goroutines
//
// The package itself holds no code. Each library in the module can be used alone, requires only the
// standard library, and runs under testing/synctest. The libraries answer these questions:
//
//   - [github.com/penstock-io/penstock/backoff]: how long to wait before the next attempt.
//   - [github.com/penstock-io/penstock/retry]: whether to make another attempt.
//   - [github.com/penstock-io/penstock/limit]: how many calls to run at once.
//   - [github.com/penstock-io/penstock/breaker]: when to stop calling a server that fails.
//   - [github.com/penstock-io/penstock/rate]: how many calls to make per second, minute or hour.
//   - [github.com/penstock-io/penstock/httpclient]: all of these and hedging in one http.Client.
//   - [github.com/penstock-io/penstock/inbox]: how to accept each webhook once.
//   - [github.com/penstock-io/penstock/supervise]: which goroutines to restart, when and how often.
//   - [github.com/penstock-io/penstock/flow]: how much to send at once and to which worker, with
//     redelivery and resume.
//   - [github.com/penstock-io/penstock/fileid]: whether a file is the one that was read before.
//
// The engine is a program and a package of its own, in the module
// github.com/penstock-io/penstock/engine. It moves records from files, tables, brokers, programs
// and network clients into files, HTTP services, databases, brokers and programs. One YAML file
// describes the pipelines:
//
//	go run github.com/penstock-io/penstock/engine/cmd/penstock run penstock.yaml
//
// Package [github.com/penstock-io/penstock/engine] runs the same pipelines inside a Go program.
//
// Sources, processors and sinks implement the interfaces of
// [github.com/penstock-io/penstock/stream].
package penstock
