//go:build !no_nats

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DevServer is a NATS server within this process, on a loopback address. It is used to try out a
// cluster on one machine. It has a stream with the name DevStream.
type DevServer struct {
	server *server.Server
	conn   *natsgo.Conn
	js     jetstream.JetStream
	sent   int
}

// DevStream is the name of the DevServer's stream of messages, and the subject to which Publish
// publishes them.
const DevStream = "orders"

// StartDevServer starts a server that stores its data in dir.
func StartDevServer(ctx context.Context, dir string) (*DevServer, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "dev", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true,
		StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	s.Start()
	d := &DevServer{server: s}
	if err := d.connect(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	return d, nil
}

func (d *DevServer) connect(ctx context.Context) (err error) {
	if !d.server.ReadyForConnections(connectWithin) {
		return fmt.Errorf("it is not ready after %v", connectWithin)
	}
	if d.conn, err = natsgo.Connect("", natsgo.InProcessServer(d.server)); err != nil {
		return err
	}
	if d.js, err = jetstream.New(d.conn); err != nil {
		return err
	}
	_, err = d.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: DevStream, Subjects: []string{DevStream},
	})
	return err
}

// URL returns the address for clients.
func (d *DevServer) URL() string { return d.server.ClientURL() }

// Publish publishes the next numbered message, and returns the number of published messages.
func (d *DevServer) Publish(ctx context.Context) (int, error) {
	text := fmt.Appendf(nil, `{"id":%d}`, d.sent)
	_, err := d.js.Publish(ctx, DevStream, text, jetstream.WithMsgID(strconv.Itoa(d.sent)))
	if err == nil {
		d.sent++
	}
	return d.sent, err
}

// Owners returns the owner of each lease in a bucket, by pipeline. A lease that has expired still
// has its last owner. Leases that were given back are omitted. The result is empty if the bucket
// does not exist yet.
func (d *DevServer) Owners(ctx context.Context, bucket string) (map[string]string, error) {
	kv, err := d.js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	keys, err := kv.ListKeysFiltered(ctx, "lease.*")
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string)
	for key := range keys.Keys() {
		e, err := kv.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		var v Value
		if err := json.Unmarshal(e.Value(), &v); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		if node, _, ok := strings.Cut(v.Owner, ownerMark); ok {
			owners[strings.TrimPrefix(key, "lease.")] = node
		}
	}
	return owners, nil
}

// Close stops the server. Its data remains in the directory.
func (d *DevServer) Close() {
	if d.conn != nil {
		d.conn.Close()
	}
	d.server.Shutdown()
	d.server.WaitForShutdown()
}
