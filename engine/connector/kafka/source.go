package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/penstock-io/penstock/stream"
)

// Source returns the source's entry in the list of components.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "kafka", DefaultSourceOptions, NewSource)
}

// GroupSource reads topics as a member of a consumer group. It implements stream.AssignedSource.
type GroupSource struct {
	o    SourceOptions
	host stream.Host
	log  *clientLog

	mu            sync.Mutex         // guards the fields below
	readers       map[string]*reader // by route
	transactional map[string]bool    // by route; true if its sink commits the offsets

	// first has, for each route, the state that the topics had when the route was first opened.
	// It survives restarts of the routes. Otherwise, partitions that are created before a
	// restart, and found only after it, would not count as new (isNew).
	first map[string]map[string]topicState
}

// topicState identifies the partitions that a topic had at some time.
type topicState struct {
	id         [16]byte
	partitions int // math.MaxInt if the state is not known
}

// sourceCounters are the counters that are shown from startup.
var sourceCounters = []string{
	"rebalances", "sessions_lost", "partitions_stopped", "offsets_lost", "tombstones", "commits", "commit_ranges_cut",
}

// NewSource returns a source. It does not connect.
func NewSource(o SourceOptions, h stream.Host) (*GroupSource, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &GroupSource{o: o, host: h, log: newClientLog(h.Log()),
		readers: make(map[string]*reader), transactional: make(map[string]bool),
		first: make(map[string]map[string]topicState)}, nil
}

// HasAssignments implements stream.AssignedSource.
func (s *GroupSource) HasAssignments() bool { return true }

// Open implements stream.Source. It checks that the brokers answer and that the topics exist. Then
// it starts a client, which joins the group.
func (s *GroupSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if o.Assignments == nil {
		return nil, errors.New("the host of this source must offer OpenOptions.Assignments")
	}
	group, err := s.groupOf(o.Route)
	if err != nil {
		return nil, err
	}
	r := newReader(s, o, group)
	options, err := s.clientOptions(r)
	if err != nil {
		return nil, err
	}
	topics, err := s.check(ctx)
	if err != nil {
		return nil, err
	}
	r.first = s.firstTopics(o.Route, topics)
	life, abort := context.WithCancel(context.Background())
	if r.client, err = kgo.NewClient(append(options, kgo.WithContext(life))...); err != nil {
		abort()
		return nil, err
	}
	r.abort, r.admin = abort, kadm.NewClient(r.client)
	close(r.made)
	r.start()
	s.mu.Lock()
	s.readers[o.Route] = r
	s.mu.Unlock()
	return r, nil
}

// leaderEpoch returns the leader epoch of the last record before a position in a partition of a
// route, or -1 if the epoch is not known.
func (s *GroupSource) leaderEpoch(route string, key topicPartition, position int64) int32 {
	s.mu.Lock()
	r := s.readers[route]
	s.mu.Unlock()
	if r == nil {
		return -1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.parts[key]
	if p == nil {
		return -1
	}
	return p.epochAt(position)
}

// groupOf returns the group of a route. Each route needs a group of its own, because routes read
// independently.
func (s *GroupSource) groupOf(route string) (string, error) {
	if h, ok := s.host.(stream.SourceHost); ok && len(h.Routes()) > 1 && !strings.Contains(s.o.Group, routeMark) {
		return "", fmt.Errorf("the routes of this pipeline would share the partitions of group %q; write group: %s-%s",
			s.o.Group, s.o.Group, routeMark)
	}
	return strings.ReplaceAll(s.o.Group, routeMark, strings.ReplaceAll(route, "/", ".")), nil
}

// heartbeatsPerSession is the number of heartbeats in a session timeout. A member learns of a
// rebalance by a heartbeat, so more heartbeats make rebalances faster. More heartbeats also let a
// member pause for longer: it keeps its session if the pause is shorter than the session timeout
// minus one interval. Example: 6 s with the default timeout of 7 s.
const heartbeatsPerSession = 7

// rebalanceSlack is the part of the rebalance timeout that a revocation does not use.
const rebalanceSlack = 15 * time.Second

// fetchesInMemory is the number of fetch responses that fit into Memory. It bounds the size of a
// response, in compressed bytes, to Memory/fetchesInMemory. The client library sends the next fetch
// when the records of the last response were taken. Small responses are taken soon, so the library
// fetches while earlier records are delivered.
const fetchesInMemory = 16

// bindTransactions notes that the sink of a route commits the group's offsets in transactions. The
// client of the route then uses unstableOffsets, so that it does not wait for these transactions.
func (s *GroupSource) bindTransactions(route string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transactional[route] = true
}

// unstableOffsets limits requests for the group's offsets to the last version in which the broker
// does not wait for open transactions. If an earlier owner has died during a transaction, the wait
// would last until that transaction times out. Only the sink's Take can end the transaction at
// once, and the engine calls Take after this request. Take then reads the offset again, and the
// engine uses the offset from Take.
func unstableOffsets() kgo.Opt {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 6)
	return kgo.MaxVersions(v)
}

func (s *GroupSource) clientOptions(r *reader) ([]kgo.Opt, error) {
	out, err := s.o.Connection.options(s.log)
	if err != nil {
		return nil, err
	}
	isolation := kgo.ReadCommitted()
	if s.o.Isolation == readUncommitted {
		isolation = kgo.ReadUncommitted()
	}
	fetch := int32(s.o.Memory / fetchesInMemory)
	out = append(out,
		kgo.ConsumerGroup(r.group), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.KeepControlRecords(), kgo.KeepRetryableFetchErrors(),
		kgo.FetchIsolationLevel(isolation),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.MetadataMaxAge(30*time.Second),
		kgo.MetadataMinAge(time.Second),
		kgo.FetchMaxWait(time.Second),
		kgo.SessionTimeout(s.o.SessionTimeout), kgo.HeartbeatInterval(s.o.SessionTimeout/heartbeatsPerSession),
		kgo.RebalanceTimeout(s.o.RevokeTimeout+rebalanceSlack),
		kgo.FetchMaxBytes(fetch), kgo.FetchMaxPartitionBytes(max(fetch/4, 64<<10)), kgo.MaxConcurrentFetches(2),
		kgo.BrokerMaxReadBytes(max(4*fetch, 100<<20)), kgo.MaxDecompressBatchBytes(int(max(s.o.Memory, 64<<20))),
		kgo.WithPools(new(recordPool)), kgo.WithHooks(r.health),
		kgo.OnOffsetsFetched(r.offsetsFetched), kgo.AdjustFetchOffsetsFn(r.assign),
		kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost), kgo.OnPartitionsAssigned(r.joined),
	)
	s.mu.Lock()
	if s.transactional[r.o.Route] {
		out = append(out, unstableOffsets())
	}
	s.mu.Unlock()
	if s.o.Instance != "" {
		out = append(out, kgo.InstanceID(s.o.Instance))
	}
	if s.o.pattern != nil {
		return append(out, kgo.ConsumeRegex(), kgo.ConsumeTopics(s.o.pattern.String())), nil
	}
	return append(out, kgo.ConsumeTopics(s.o.Topics...)), nil
}

// firstTopics returns the state that the topics had when the route was first opened. topics is the
// result of the current check. The first call for a route keeps topics as this state. But if the
// state of any of these topics is unknown, the call keeps nothing, and the next call counts as the
// first one.
func (s *GroupSource) firstTopics(
	route string, topics map[string]topicState,
) map[string]topicState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.first[route]; first != nil {
		return first
	}
	for _, t := range topics {
		if t.partitions == math.MaxInt {
			return topics
		}
	}
	s.first[route] = topics
	return topics
}

// check checks that the topics exist, and returns their state. If no topic matches the pattern, it
// logs a warning.
func (s *GroupSource) check(ctx context.Context) (map[string]topicState, error) {
	m, err := s.o.metadata(ctx, s.log, s.o.Topics...)
	if err != nil {
		return nil, err
	}
	topics := make(map[string]topicState)
	for name, t := range m.Topics {
		switch {
		case !s.o.reads(name):
		case t.Err != nil: // the number is not known
			topics[name] = topicState{partitions: math.MaxInt}
		default:
			topics[name] = topicState{t.ID, len(t.Partitions)}
		}
	}
	if len(topics) == 0 {
		s.host.Log().Warn("no topic matches yet", "topic_pattern", s.o.TopicPattern)
	}
	return topics, nil
}
