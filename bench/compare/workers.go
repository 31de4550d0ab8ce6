package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"

	cenkalti "github.com/cenkalti/backoff/v7"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/checkpoint"
	"github.com/penstock-io/penstock/flow/ledger"
)

// line is a line of a file. Its position is its number.
type line struct {
	number int64
	text   []byte
}

// lines returns a function that reads the lines of a file after the line with the given number.
func lines(r io.Reader, behind int64) func(context.Context) (line, error) {
	scanner, n := bufio.NewScanner(r), int64(0)
	return func(context.Context) (line, error) {
		for scanner.Scan() {
			if n++; n > behind {
				return line{n, bytes.Clone(scanner.Bytes())}, nil
			}
		}
		return line{}, errors.Join(scanner.Err(), io.EOF)
	}
}

// post sends a body to url.
func post(ctx context.Context, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// oursWorkers posts the lines of a file to five servers. A fast server gets more lines than a slow
// one. If the program is restarted, it resumes at the saved position.
func oursWorkers(ctx context.Context, file io.Reader, urls [5]string) error {
	saved, err := checkpoint.Open("progress")
	if err != nil {
		return err
	}
	defer saved.Close()
	lanes := make([]flow.Lane[[]line], len(urls))
	for i, url := range urls {
		lanes[i] = flow.Lane[[]line]{Name: url, Worker: oursWorkersPost(url)}
	}
	book, err := flow.OpenBook(ctx, flow.BookOptions[line]{
		Checkpoint: saved,
		At:         func(l line) ledger.Position { return ledger.Position{Num: l.number} },
		Unique:     true,
		Pack:       flow.PackOptions[line]{Rows: 1},
		Sender:     flow.Options[[]line]{Lanes: lanes},
	})
	if err != nil {
		return err
	}
	progress, _ := book.Progress()
	return book.Run(ctx, lines(file, progress.Num))
}

func oursWorkersPost(url string) flow.WorkerFunc[[]line] {
	return func(ctx context.Context, a flow.Attempt[[]line]) (flow.Report, error) {
		resp, err := post(ctx, url, a.Value[0].text)
		if err != nil {
			return flow.Report{}, err
		}
		defer resp.Body.Close()
		return flow.Report{}, flow.HTTPOutcome(resp)
	}
}

// theirsWorkers posts the lines of a file to five servers with errgroup and cenkalti/backoff. It
// keeps its progress in a file, to resume after a restart. Each server gets one line at a time.
func theirsWorkers(ctx context.Context, file io.Reader, urls [5]string) error {
	progress := theirsWorkersProgress{done: make(map[int64]bool)}
	if saved, err := os.ReadFile("progress"); err == nil {
		if progress.watermark, err = strconv.ParseInt(string(saved), 10, 64); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := lines(file, progress.watermark)
	group, ctx := errgroup.WithContext(ctx)
	queue := make(chan line)
	group.Go(func() error {
		defer close(queue)
		for {
			l, err := next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			select {
			case queue <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for _, url := range urls {
		group.Go(func() error {
			for l := range queue {
				if _, err := cenkalti.Retry(ctx, func() (any, error) {
					resp, err := post(ctx, url, l.text)
					if err != nil {
						return nil, err
					}
					defer resp.Body.Close()
					if resp.StatusCode >= 300 {
						return nil, fmt.Errorf("post line %d to %s: %s", l.number, url, resp.Status)
					}
					return nil, nil
				}); err != nil {
					return err
				}
				if err := progress.settle(l.number); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

type theirsWorkersProgress struct {
	mu        sync.Mutex
	watermark int64
	done      map[int64]bool // lines after the watermark
}

func (p *theirsWorkersProgress) settle(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[n] = true
	for p.done[p.watermark+1] {
		p.watermark++
		delete(p.done, p.watermark)
	}
	if err := os.WriteFile("progress.new", strconv.AppendInt(nil, p.watermark, 10),
		0o600); err != nil {
		return err
	}
	return os.Rename("progress.new", "progress")
}
