package kafka

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// slowEngine is an engine with an Assign that blocks until the test closes finish.
type slowEngine struct {
	began, finish chan struct{}
	ignoresEnd    bool // the assignment succeeds even after its context has ended
	lost          []string
}

func (e *slowEngine) Assign(ctx context.Context, offers []stream.PartitionOffer) ([]stream.Assignment, error) {
	close(e.began)
	select {
	case <-e.finish:
	case <-ctx.Done():
		if !e.ignoresEnd {
			return nil, context.Cause(ctx)
		}
	}
	out := make([]stream.Assignment, len(offers))
	for i := range offers {
		out[i] = stream.Assignment{Number: uint32(i + 1), Mark: stream.Mark{Part: offers[i].Part}}
	}
	return out, nil
}

func (e *slowEngine) Revoke(context.Context, []string) {}

func (e *slowEngine) Lost(ids []string) { e.lost = append(e.lost, ids...) }

// TestRevokedWhileAssigned checks that a revocation during an assignment cancels the assignment and
// waits for it. If the engine assigns the partition nevertheless, the partition is revoked, too.
func TestRevokedWhileAssigned(t *testing.T) {
	for _, ignoresEnd := range []bool{false, true} {
		o := DefaultSourceOptions()
		o.Brokers, o.Topics, o.Group = []string{"a:1"}, []string{"t"}, "g"
		s, err := NewSource(*o, streamtest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		e := &slowEngine{began: make(chan struct{}), finish: make(chan struct{}), ignoresEnd: ignoresEnd}
		r := newReader(s, stream.OpenOptions{Assignments: e}, "g")
		p := &partition{key: topicPartition{"t", 0}, part: &stream.Partition{ID: "c/t/0"}}
		taken := make(chan error)
		go func() {
			_, err := r.takeOver(t.Context(), []*partition{p}, []stream.PartitionOffer{{Part: *p.part}})
			taken <- err
		}()
		<-e.began
		ids := make(chan []string)
		given := map[string][]int32{"t": {0}}
		go func() { ids <- r.withdraw(given) }()
		var want []string
		if ignoresEnd {
			want = []string{"c/t/0"}
		}
		if err := <-taken; (err == nil) != ignoresEnd {
			t.Errorf("takeOver = %v", err)
		}
		if got := <-ids; !slices.Equal(got, want) {
			t.Errorf("the engine is told to revoke %v, want %v", got, want)
		}
		r.remove(given)
		if len(r.parts) != 0 {
			t.Errorf("%d partitions are left", len(r.parts))
		}
	}
}

// TestRecreatedBetweenAssignments checks that an assignment fails, and so ends the route, if a
// topic has another id than at an earlier assignment.
func TestRecreatedBetweenAssignments(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	o := DefaultSourceOptions()
	o.Brokers, o.Topics, o.Group = fake.ListenAddrs(), []string{"t"}, "g"
	s, err := NewSource(*o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(s, stream.OpenOptions{Assignments: &slowEngine{}}, "g")
	if r.client, err = kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...)); err != nil {
		t.Fatal(err)
	}
	defer r.client.Close()
	r.admin = kadm.NewClient(r.client)
	close(r.made)
	keys := []topicPartition{{"t", 0}}
	for range 2 {
		if _, _, err := r.offersSoon(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.admin.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	r.client.PurgeTopicsFromClient("t")
	given := offsets{"t": {0: kgo.NewOffset()}}
	if _, err := r.assign(t.Context(), given); !errors.Is(err, errRecreated) {
		t.Errorf("assign returned %v, want %v", err, errRecreated)
	}
	if !errors.Is(r.err, errRecreated) {
		t.Errorf("the route's error is %v, want %v", r.err, errRecreated)
	}
}
