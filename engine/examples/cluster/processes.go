package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// process is a child process: an engine or a NATS server.
type process struct {
	args, env []string
	log       string // path of its log
	cmd       *exec.Cmd
}

func (p *process) start() error {
	bin, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(bin, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	return p.cmd.Start()
}

// kill sends SIGKILL.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error reports only the kill
	p.cmd = nil
	return err
}

// group is a group of processes of one kind.
type group struct{ processes []*process }

func (g *group) close() {
	for _, p := range g.processes {
		_ = p.kill()
	}
}

// printed returns the ends of the logs of the processes, as an error.
func (g *group) printed() (all error) {
	for _, p := range g.processes {
		text, err := os.ReadFile(p.log)
		if err == nil {
			err = fmt.Errorf("%s: %s", filepath.Base(p.log), text[max(0, len(text)-2000):])
		}
		all = errors.Join(all, err)
	}
	return all
}

// servers are three NATS servers that form a cluster.
type servers struct {
	*group
	ports []int // ports for clients
	conn  *nats.Conn
	js    jetstream.JetStream
}

func startServers(dir string) (*servers, error) {
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	s := &servers{group: &group{}, ports: ports[:3]}
	var routes []string
	for _, port := range ports[3:] {
		routes = append(routes, strconv.Itoa(port))
	}
	for i := range 3 {
		name := fmt.Sprint("nats-", i+1)
		p := &process{log: filepath.Join(dir, name+".log"), args: []string{"nats", "-name", name,
			"-port", strconv.Itoa(ports[i]), "-route", routes[i],
			"-routes", strings.Join(routes, ","), "-dir", filepath.Join(dir, name)}}
		s.processes = append(s.processes, p)
		if err := p.start(); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

func (s *servers) urls() string {
	var all []string
	for _, port := range s.ports {
		all = append(all, fmt.Sprint("nats://127.0.0.1:", port))
	}
	return strings.Join(all, ",")
}

const streamName = "orders"

// maxLag is the maximum number of messages that a ready server may be behind its leader. It is not
// 0, because a server is nearly always a little behind while messages are published.
const maxLag = 1000

// ready waits until all servers run, and none is more than maxLag messages behind its leader.
func (s *servers) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		stream, err := s.stream(ctx)
		if err == nil {
			c := stream.CachedInfo().Cluster
			current := c != nil && c.Leader != "" && len(c.Replicas) == 2
			for i := 0; current && i < len(c.Replicas); i++ {
				r := c.Replicas[i]
				current = !r.Offline && r.Active < 2*time.Second && r.Lag <= maxLag
			}
			if current {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("a NATS server stays behind: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// stream asks a server for the state of the JetStream stream. The request has a timeout, because a
// server that was just killed does not respond.
func (s *servers) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return s.js.Stream(ctx, streamName)
}

// publisher publishes numbered messages.
type publisher struct {
	cancel context.CancelFunc
	ended  chan struct{}
	acked  int // valid after ended is closed
}

// publish creates the stream and starts publishing.
func (s *servers) publish(ctx context.Context) (*publisher, error) {
	begin := time.Now()
	for {
		err := s.connect(ctx)
		if err == nil {
			break
		}
		if time.Since(begin) > longest {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &publisher{cancel: cancel, ended: make(chan struct{})}
	go p.run(ctx, s.js)
	return p, s.ready(ctx)
}

func (s *servers) connect(ctx context.Context) (err error) {
	if s.conn == nil {
		if s.conn, err = nats.Connect(s.urls(), nats.MaxReconnects(-1)); err != nil {
			return err
		}
		if s.js, err = jetstream.New(s.conn); err != nil {
			return err
		}
	}
	_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{streamName}, Replicas: 3,
	})
	return err
}

func (s *servers) close() {
	if s.conn != nil {
		s.conn.Close()
	}
	s.group.close()
}

// run publishes messages until ctx is done and the last message is acknowledged. If a message gets
// no acknowledgement, run publishes it again with the same id. By this id the servers recognize the
// repetition, and store the message only once.
func (p *publisher) run(ctx context.Context, js jetstream.JetStream) {
	defer close(p.ended)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		id := strconv.Itoa(p.acked)
		_, err := js.Publish(context.WithoutCancel(ctx), streamName, []byte(id),
			jetstream.WithMsgID(id))
		if err == nil {
			p.acked++
		}
		if ctx.Err() != nil && err == nil {
			return
		}
		<-tick.C
	}
}

// stop ends the publisher and returns the number of acknowledged messages.
func (p *publisher) stop() int {
	p.cancel()
	<-p.ended
	return p.acked
}

//go:embed penstock.yaml
var engineConfig string

func startEngines(dir, urls, sink string) (*group, error) {
	config := filepath.Join(dir, "penstock.yaml")
	text := []byte(strings.ReplaceAll(engineConfig, "SINK", sink))
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, err
	}
	g := &group{}
	for i := range 3 {
		node := fmt.Sprint("engine-", i+1)
		p := &process{args: []string{"run", config}, log: filepath.Join(dir, node+".log"),
			env: []string{"NODE=" + node, "NATS=" + urls}}
		g.processes = append(g.processes, p)
		if err := p.start(); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// serveNATS is the main function of a NATS server.
func serveNATS(args []string) error {
	var name, dir, routes string
	var port, route int
	flags := flag.NewFlagSet("nats", flag.ExitOnError)
	flags.StringVar(&name, "name", "", "of the server")
	flags.StringVar(&dir, "dir", "", "of its data")
	flags.IntVar(&port, "port", 0, "of clients")
	flags.IntVar(&route, "route", 0, "port of other servers")
	flags.StringVar(&routes, "routes", "", "ports of all servers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
		Cluster: server.ClusterOpts{Name: "example", Host: "127.0.0.1", Port: route},
	}
	for text := range strings.SplitSeq(routes, ",") {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + text})
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
	return nil
}

// freePorts returns n different loopback ports that are not in use.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
