// Command payment-notify runs a payment provider and three of its merchants. Paid orders are rows
// of a SQLite table. For each paid order, Penstock notifies the merchant at the merchant's URL. It
// repeats the notification on a schedule that lasts a day, until the merchant answers "success".
// The merchants receive notifications with package inbox.
//
// One merchant loses a response, one is slow, and one is down for an hour. Meanwhile Penstock is
// stopped and started again. The program gets the deliveries from the admin address. At the end, it
// prints the timelines of those with several attempts, and checks that each order was booked once.
//
// Time runs faster: an hour takes 240 ms, so that the day takes 6 seconds.
//
//	go run ./engine/examples/payment-notify [-plot FILE.svg]
package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/stream"
)

//go:embed penstock.yaml
var config string

// speedup is the factor by which time runs faster: 15 s take 1 ms, and an hour takes 240 ms.
const speedup = 15_000

// day is the schedule of a notification: 16 attempts in 24 h 4 min.
var day = []time.Duration{
	15 * time.Second, 15 * time.Second, 30 * time.Second, 3 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute, time.Hour,
	3 * time.Hour, 3 * time.Hour, 3 * time.Hour, 6 * time.Hour, 6 * time.Hour,
}

// patience is the maximum time for which await waits for a delivery. On an idle machine, all waits
// together take 6 s.
const patience = 2 * time.Minute

func main() {
	figure := flag.String("plot", "", "draw the timelines into `FILE`, an SVG or PNG")
	flag.Parse()
	if err := run(os.Stdout, *figure); err != nil {
		fmt.Fprintln(os.Stderr, "payment-notify:", err)
		os.Exit(1)
	}
}

// compressed converts a time of the schedule to real time.
func compressed(d time.Duration) time.Duration { return d / speedup }

func run(out io.Writer, figure string) (err error) {
	dir, err := os.MkdirTemp("", "payment-notify")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	merchants, err := openMerchants(dir)
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range merchants {
			err = errors.Join(err, m.close())
		}
	}()
	p, err := newProvider(dir, merchants)
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "Penstock starts. The merchant dead does not answer.")
	stop, err := p.start()
	if err != nil {
		return err
	}
	found, err := p.await("dead-1", func(d stream.Delivery) bool { return d.Last != nil })
	err = errors.Join(err, stop())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "dead-1 is %s after %d attempts; the last one: %s\n",
		found.State, len(found.Attempts), found.Last.Detail)
	fmt.Fprintln(out, "Penstock stops, and starts again.")
	if stop, err = p.start(); err != nil {
		return err
	}
	var deliveries []stream.Delivery
	for _, o := range p.orders {
		d, err := p.await(o.id, func(d stream.Delivery) bool { return !d.Ended.IsZero() })
		if err != nil {
			return errors.Join(err, stop())
		}
		deliveries = append(deliveries, d)
	}
	if err := stop(); err != nil {
		return err
	}
	for _, d := range deliveries {
		if len(d.Attempts) > 1 {
			timeline(out, d)
		}
	}
	if figure != "" {
		if err := writePlot(figure, deliveries); err != nil {
			return err
		}
	}
	return errors.Join(check(deliveries, merchants), summary(out, merchants))
}

// provider is the payment provider: it has the orders and runs penstock.
type provider struct {
	config string
	admin  string
	orders []order
}

type order struct{ id, merchant, url string }

// newProvider writes the orders, the merchants' secrets and the configuration.
func newProvider(dir string, merchants []*merchant) (*provider, error) {
	p := &provider{}
	db, err := sql.Open("sqlite", filepath.Join(dir, "provider.db"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE orders (
		n INTEGER PRIMARY KEY, id TEXT, merchant TEXT, amount TEXT, notify_url TEXT)`)
	if err != nil {
		return nil, err
	}
	var ports []string
	for _, m := range merchants {
		ports = append(ports, m.port())
		for n := range m.orders {
			id := fmt.Sprintf("%s-%d", m.name, n+1)
			p.orders = append(p.orders, order{id, m.name, m.server.URL + "/paid"})
		}
	}
	well := merchants[0]
	p.orders = append(p.orders, order{unknownOrder, well.name, well.server.URL + "/paid"})
	for _, o := range p.orders {
		_, err := db.Exec(`INSERT INTO orders (id, merchant, amount, notify_url)
			VALUES ($1, $2, '12.50', $3)`, o.id, o.merchant, o.url)
		if err != nil {
			return nil, err
		}
	}
	if err := writeKeys(filepath.Join(dir, "keys.json"), merchants); err != nil {
		return nil, err
	}
	if p.admin, err = freeAddress(); err != nil {
		return nil, err
	}
	var waits []string
	for _, wait := range day {
		waits = append(waits, compressed(wait).String())
	}
	p.config = strings.NewReplacer(
		"${DIR}", dir, "${ADMIN}", p.admin, "${TOKEN}", adminToken,
		"${PORTS}", strings.Join(ports, ", "), "${SCHEDULE}", strings.Join(waits, ", "),
	).Replace(config)
	return p, nil
}

// freeAddress returns a loopback address with a port that is not in use.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// start runs penstock until stop is called.
func (p *provider) start() (stop func() error, err error) {
	cfg, err := engine.Parse([]byte(p.config), all.Components()...)
	if err != nil {
		return nil, err
	}
	e, err := engine.New(cfg, engine.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("penstock: %w", err)
		}
		return nil
	}, nil
}
