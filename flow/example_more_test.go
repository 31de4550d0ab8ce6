package flow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/flow"
)

// letters is a producer of batches and a worker that accepts batches without digits.
type letters struct{ batches []string }

func (l *letters) Next(context.Context) (flow.Item[string], error) {
	if len(l.batches) == 0 {
		return flow.Item[string]{}, io.EOF
	}
	b := l.batches[0]
	l.batches = l.batches[1:]
	return flow.Item[string]{Value: b, Cost: float64(len(b))}, nil
}

func (*letters) Deliver(_ context.Context, a flow.Attempt[string]) (flow.Report, error) {
	if strings.ContainsAny(a.Value, "0123456789") {
		return flow.Report{}, &flow.Rejected{Err: errors.New("digits are not taken")}
	}
	return flow.Report{}, nil
}

// If a worker rejects a batch, the Sender cuts the batch until it has found the refused part. It
// dead-letters that part and delivers the others.
func ExampleRejected() {
	worker := &letters{batches: []string{"abcd", "ef7h", "ijkl"}}
	var delivered, deadLettered []string
	sender, err := flow.New(flow.Options[string]{
		Lanes: []flow.Lane[string]{{Name: "only", Worker: worker}},
		Bisect: func(it flow.Item[string], _ error) []flow.Item[string] {
			n := len(it.Value) / 2
			if n == 0 {
				return nil
			}
			return []flow.Item[string]{{Value: it.Value[:n], Cost: float64(n)},
				{Value: it.Value[n:], Cost: float64(len(it.Value) - n)}}
		},
		DeadLetter: func(_ context.Context, it flow.Item[string], refusal error) error {
			deadLettered = append(deadLettered,
				fmt.Sprintf("%s: %v", it.Value, errors.Unwrap(refusal)))
			return nil // durable, in a real program
		},
		Settled: func(it flow.Item[string], s flow.Settlement) {
			if !s.DeadLettered {
				delivered = append(delivered, it.Value)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sender.Run(context.Background(), worker))
	slices.Sort(delivered)
	fmt.Println("delivered", delivered)
	fmt.Println("dead letters:", deadLettered)
	// Output:
	// <nil>
	// delivered [abcd ef h ijkl]
	// dead letters: [7: digits are not taken]
}

// A server advertises its window in a header of its responses (CreditHeader). Senders that know
// this header never have more in flight than the server can soon serve.
func ExampleReceiver_Handler() {
	receiver := &flow.Receiver{Slots: 4}
	server := httptest.NewServer(
		receiver.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		})))
	defer server.Close()
	request, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader("a batch"))
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header.Set(flow.SenderHeader, "sender 1")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer.Body.Close()
	report, ok := flow.ParseGrant(answer.Header.Get(flow.CreditHeader))
	fmt.Println(ok, report.Slots, report.QueueLen, report.Taken, report.Credit > report.Taken)
	// Output: true 4 0 1 true
}
