// Command cluster tests a cluster on one machine. It runs three engines and three NATS servers,
// each as a separate process, with a database. While messages are published, it alternately kills a
// random engine and a random server, and restarts it. At the end it checks that the table has each
// message exactly once.
//
//	go run ./engine/examples/cluster [-kills 12] [-seed 1] [-postgres URL]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// settings are the parameters of a run.
type settings struct {
	kills    int
	seed     uint64
	postgres string // URL; empty means SQLite
}

// longest is the maximum time for one step. A takeover takes up to 15 s.
const longest = time.Minute

func main() {
	if len(os.Args) > 1 && os.Args[1] == "nats" {
		if err := serveNATS(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "nats:", err)
			os.Exit(1)
		}
		return
	}
	if isEngine() {
		cli.Main(all.Components()...)
		return
	}
	var s settings
	flag.IntVar(&s.kills, "kills", 12, "of engines and servers, by turns")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()), "of the choice of victims")
	flag.StringVar(&s.postgres, "postgres", "", "`URL` of a database, in place of a SQLite file")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// isEngine reports whether this process is one of the engines.
func isEngine() bool { return len(os.Args) > 1 && os.Args[1] == "run" }

// run starts the cluster, kills processes and checks the table.
func run(ctx context.Context, out io.Writer, s settings) (err error) {
	fmt.Fprintf(out, "%d kills, -seed %d\n", s.kills, s.seed)
	dir, err := os.MkdirTemp("", "penstock-cluster-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, sink, err := openTable(filepath.Join(dir, "orders.db"), s.postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	servers, err := startServers(dir)
	if err != nil {
		return err
	}
	defer servers.close()
	p, err := servers.publish(ctx)
	if err != nil {
		return errors.Join(err, servers.printed())
	}
	defer p.stop()
	engines, err := startEngines(dir, servers.urls(), sink)
	if err != nil {
		return err
	}
	defer engines.close()
	printed := func(err error) error {
		return errors.Join(err, servers.printed(), engines.printed())
	}
	if _, err := db.more(ctx, 0); err != nil {
		return printed(err)
	}
	rnd := rand.New(rand.NewPCG(s.seed, 1))
	for n := range s.kills {
		group, kind := engines, "engine"
		if n%2 == 1 {
			group, kind = servers.group, "NATS server"
		}
		victim := rnd.IntN(len(group.processes))
		rows, err := db.count(ctx)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := group.processes[victim].kill(); err != nil {
			return printed(err)
		}
		if _, err := db.more(ctx, rows); err != nil {
			return printed(fmt.Errorf("%s %d was killed: %w", kind, victim+1, err))
		}
		fmt.Fprintf(out, "%s %d killed: the next row came after %.1f s\n", kind, victim+1,
			time.Since(begin).Seconds())
		if err := group.processes[victim].start(); err != nil {
			return printed(err)
		}
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		if n%2 == 1 { // wait until this server has caught up, before another is killed
			if err := servers.ready(ctx); err != nil {
				return printed(err)
			}
		}
	}
	if err := check(ctx, out, db, p.stop()); err != nil {
		return printed(err)
	}
	return nil
}

// check waits until the table has as many rows as messages were published. It returns an error
// unless each message is then in the table exactly once.
func check(ctx context.Context, out io.Writer, db *table, published int) error {
	if _, err := db.more(ctx, published-1); err != nil {
		return err
	}
	rows, err := db.count(ctx)
	if err != nil {
		return err
	}
	distinct, err := db.distinct(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d published, %d in the table, %d lost, %d twice\n", published, rows,
		published-distinct, rows-distinct)
	if distinct != published || rows != published {
		return errors.New("the table is not what was published")
	}
	return nil
}
