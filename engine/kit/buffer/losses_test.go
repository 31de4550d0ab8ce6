//go:build !no_nats

package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// The tests of this file cover the ways in which a JetStream stream can lose acknowledged data
// without an error. Each uses the real embedded server.

// real is a buffer over the embedded server, in a directory that outlives it.
type real struct {
	*process
	appended chan error // the results of appends
}

// watched is a Store that reports its appends.
type watched struct {
	Store
	appended chan error
}

func (w *watched) Append(ctx context.Context, number uint64, text []byte) error {
	err := w.Store.Append(ctx, number, text)
	w.appended <- err
	return err
}

// startReal starts a buffer in a directory. If state is not empty, it is the state directory of an
// earlier buffer, and the new buffer begins with a copy of it.
func startReal(t *testing.T, dir, state string, o Options) *real {
	t.Helper()
	r := &real{&process{host: streamtest.NewHost(t)}, make(chan error, 100)}
	open := func(ctx context.Context) (Store, error) {
		if state != "" {
			d, err := r.host.State()
			if err == nil {
				err = os.CopyFS(d.Path(), os.DirFS(state))
			}
			if err != nil {
				return nil, err
			}
		}
		store, err := OpenStore(ctx, dir, o, slog.New(slog.DiscardHandler))
		return &watched{store, r.appended}, err
	}
	var err error
	if r.b, err = newBuffer(o, intake.Options{Name: "test"}, r.host, open); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *real) js() *jetStream {
	<-r.b.opened
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.b.store.(*watched).Store.(*jetStream)
}

// state returns the path of the state directory.
func (r *real) state(t *testing.T) string {
	t.Helper()
	d, err := r.host.State()
	if err != nil {
		t.Fatal(err)
	}
	return d.Path()
}

// TestLossByAge checks that data is delivered however old it is: the buffer sets no max_age for its
// stream. With max_age, the server would delete data that no route has read.
func TestLossByAge(t *testing.T) {
	o := DefaultOptions()
	o.Age = time.Nanosecond // everything is old
	r := startReal(t, t.TempDir(), "", o)
	r.add(t, "old")
	info, err := r.js().stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := &info.Config; c.MaxAge != 0 || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 ||
		c.Discard != jetstream.DiscardNew {
		t.Errorf("the stream deletes by itself: %+v", c)
	}
	one := &route{name: streamtest.Route}
	one.open(t, r.process)
	one.want(t, "old")
	r.stop(t)
}

// TestLossByInterest checks that a route that opens late reads everything. A stream with interest
// retention would drop data that is stored before a route has a consumer.
func TestLossByInterest(t *testing.T) {
	dir := t.TempDir()
	r := startReal(t, dir, "", DefaultOptions())
	r.host.SetRoutes("first", "late")
	r.add(t, "1")
	r.add(t, "2")
	first := &route{name: "first"}
	first.open(t, r.process)
	first.commit(t, first.want(t, "1", "2"))
	r.stop(t)
	r = startReal(t, dir, "", DefaultOptions())
	r.host.SetRoutes("first", "late")
	late := &route{name: "late"}
	late.open(t, r.process)
	late.want(t, "1", "2")
	r.stop(t)
}

// TestLossByConsumer checks that positions do not depend on consumers. If the state of a consumer
// is corrupt, JetStream deletes the consumer, and its position with it. The buffer stores positions
// in the checkpoint instead.
func TestLossByConsumer(t *testing.T) {
	dir := t.TempDir()
	r := startReal(t, dir, "", DefaultOptions())
	r.add(t, "1")
	r.add(t, "2")
	one := &route{name: streamtest.Route}
	one.open(t, r.process)
	one.want(t, "1", "2")
	info, err := r.js().stream.Info(t.Context())
	if err != nil || info.State.Consumers != 0 {
		t.Errorf("the stream has consumers: %+v, %v", info, err)
	}
	r.stop(t)
	streams := filepath.Join(dir, "jetstream", "$G", "streams", streamName)
	if err := os.RemoveAll(filepath.Join(streams, "obs")); err != nil {
		t.Fatal(err)
	}
	r = startReal(t, dir, "", DefaultOptions())
	one.open(t, r.process)
	one.want(t, "1", "2")
	r.stop(t)
}

// TestLossByBadBlock damages the stream's files in different places. The recovery of a stream
// silently omits blocks that it cannot read. The buffer must report the damage, and deliver nothing
// after it.
func TestLossByBadBlock(t *testing.T) {
	texts := []string{"first record", "second record", "third record"}
	for at, text := range texts {
		for _, how := range []string{"flipped", "cut", "deleted index and flipped"} {
			t.Run(fmt.Sprintf("%s at %d", how, at+1), func(t *testing.T) {
				dir := t.TempDir()
				r := startReal(t, dir, "", DefaultOptions())
				for _, text := range texts {
					r.add(t, text)
				}
				state := r.state(t)
				r.stop(t)
				damage(t, dir, text, how)
				got, err := readDamaged(t, dir, state)
				if err == nil {
					t.Fatalf("read %q without an error", got)
				}
				if want := texts[:at]; len(got) > at || !slices.Equal(got, want[:len(got)]) {
					t.Errorf("read %q, want at most %q", got, want)
				}
				if !strings.Contains(err.Error(), "penstock buffer skip CONFIG") {
					t.Errorf("the error has no remedy: %v", err)
				}
			})
		}
	}
}

// damage changes a stream's block file at the position of a text.
func damage(t *testing.T, dir, text, how string) {
	t.Helper()
	msgs := filepath.Join(dir, "jetstream", "$G", "streams", streamName, "msgs")
	block := filepath.Join(msgs, "1.blk")
	data, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(data, []byte(text))
	if i < 0 {
		t.Fatalf("%q is not in the block", text)
	}
	if how == "cut" {
		data = data[:i]
	} else {
		data[i] ^= 1
	}
	if how != "flipped" {
		_ = os.Remove(filepath.Join(msgs, "index.db")) // it exists after an orderly end only
	}
	if err := os.WriteFile(block, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// readDamaged reads the records that a buffer delivers before an error.
func readDamaged(t *testing.T, dir, state string) (got []string, err error) {
	t.Helper()
	r := startReal(t, dir, state, DefaultOptions())
	defer func() { _ = r.host.Stop() }()
	reader, err := r.b.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		return nil, err
	}
	for {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 1000, Records: 3})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := reader.Read(ctx, b)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return got, nil // the data ends without an error
		}
		if err != nil {
			return got, err
		}
		for i := range b.Records {
			got = append(got, string(b.Text(i)))
		}
	}
}

// TestLossByRefusedPublish checks that data is not acknowledged to a sender if the server has
// refused it. In a burst, servers refuse messages while PublishAsyncComplete reports success. So
// the buffer waits for the acknowledgement of each envelope.
func TestLossByRefusedPublish(t *testing.T) {
	r := startReal(t, t.TempDir(), "", DefaultOptions())
	r.add(t, "stored")
	j := r.js()
	info, err := j.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	small := info.Config
	small.MaxBytes = int64(info.State.Bytes) + 10
	if _, err := j.js.UpdateStream(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	var records intake.Records
	records.Add([]byte("refused by the server"))
	room, err := r.b.in.Reserve(t.Context(), int64(records.Size()))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := room.Submit(records, true)
	if err != nil {
		t.Fatal(err)
	}
	<-r.appended // that of the first
	if err := <-r.appended; err == nil || !strings.Contains(err.Error(), "maximum bytes exceeded") {
		t.Errorf("Append = %v", err)
	}
	<-r.host.Failed() // Stop would hide an error that comes later
	if err := r.host.Stop(); err == nil {
		t.Error("the source ended without an error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := sub.Wait(ctx); err == nil {
		t.Error("the sender was told that refused data is stored")
	}
}
