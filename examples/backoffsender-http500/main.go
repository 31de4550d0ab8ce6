// Command backoffsender-http500 reproduces the example of R. Roestenburg's BackOffSender for the
// actor library Akka. A supervised goroutine (the child) sends messages to an HTTP server, and
// crashes when the server answers 500. The server fails eight times in a row. One caller waits for
// its answer, and ten more messages wait behind its message. In the end, each caller has got an
// answer. Only the message that the child was sending at a crash is sent again.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/supervise"
)

const (
	failures = 8
	behind   = 10
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run sends the messages and prints the replies in the order of the messages.
func run(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		if n := requests.Add(1); n <= failures || err != nil {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, strings.ToUpper(string(question)))
	}))
	defer server.Close()

	crashes := 0
	sender, err := supervise.NewResender("sender", supervise.Options[int, string, string]{
		Child: supervise.Each("http", func(ctx context.Context, _ int, question string) (string,
			error) {
			return ask(ctx, server.Client(), server.URL, question)
		}),
		Backoff: compat.AkkaDefaults(), // the original's waits
		OnEvent: func(_ context.Context, e supervise.Event) {
			if e.Kind == supervise.Ended && e.Restart {
				crashes++
			}
		},
	})
	if err != nil {
		return err
	}
	defer sender.Close()
	group := supervise.NewGroup(ctx)
	group.Go("sender", sender.Serve)

	answers := make([]string, 1+behind)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			answer, err := sender.Call(ctx, i, fmt.Sprintf("question %d", i))
			if err != nil {
				answer = err.Error()
			}
			answers[i] = answer
		})
	}
	callers.Wait()
	group.Stop(nil)
	if err := group.Wait(); err != nil {
		return err
	}
	for _, answer := range answers {
		fmt.Fprintln(w, answer)
	}
	fmt.Fprintf(w, "%d crashes, %d requests for %d answers\n", crashes, requests.Load(),
		len(answers))
	return nil
}

// ask sends one question to the server at url and returns its answer. It makes no retries. If it
// returns an error, the supervised child that called it crashes and restarts.
func ask(ctx context.Context, client *http.Client, url, question string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(question))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 {
		return "", fmt.Errorf("ask %q: %s", question, resp.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return string(answer), err
}
