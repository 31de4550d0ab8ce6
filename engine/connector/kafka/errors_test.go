package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// TestReactions checks the reaction to each fetch error: the error stops its partition, causes a
// check of the topic, ends the route, or is left to the client library.
func TestReactions(t *testing.T) {
	for _, c := range []struct {
		err  error
		want reaction
	}{
		{kerr.OffsetOutOfRange, stopPartition},
		{&kgo.ErrDataLoss{Topic: "t"}, stopPartition},
		{kerr.UnknownTopicID, verifyTopic},
		{kerr.UnknownTopicOrPartition, verifyTopic},
		{kerr.NotLeaderForPartition, retryFetch},
		{kerr.LeaderNotAvailable, retryFetch},
		{context.DeadlineExceeded, retryFetch},
		{&kgo.ErrGroupSession{Err: kerr.CoordinatorNotAvailable}, retryFetch},
		{&kgo.ErrGroupSession{Err: kerr.GroupAuthorizationFailed}, failRoute},
		{&kgo.ErrGroupSession{Err: kerr.FencedInstanceID}, failRoute},
		{&kgo.ErrGroupSession{Err: kerr.GroupMaxSizeReached}, failRoute},
		{&kgo.ErrGroupSession{Err: kerr.UnsupportedVersion}, failRoute},
		{&kgo.ErrGroupSession{Err: kerr.UnknownMemberID}, retryFetch},
		{kerr.TopicAuthorizationFailed, failRoute},
		{kerr.SaslAuthenticationFailed, failRoute},
		{errors.New("a batch that cannot be decoded"), failRoute},
	} {
		if got := reactionTo(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestMessages checks that errors of brokers name the brokers, topic or group, and a remedy.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		got  error
		want string
	}{
		{brokerError(kerr.SaslAuthenticationFailed, []string{"a:1"}), "brokers a:1 refuse the login: check sasl: "},
		{
			brokerError(kerr.UnsupportedSaslMechanism, []string{"a:1"}),
			"brokers a:1 do not offer this mechanism: check sasl.mechanism: ",
		},
		{
			brokerError(kerr.ClusterAuthorizationFailed, []string{"a:1"}),
			"brokers a:1: the user may not do this: grant it in the cluster's ACLs: ",
		},
		{
			brokerError(context.DeadlineExceeded, []string{"a:1", "b:1"}),
			"no broker of a:1, b:1 answers: check the addresses, tls and sasl: ",
		},
		{
			brokerError(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, []string{"a:1"}),
			"brokers a:1 cannot be reached: check the addresses: dial: ",
		},
		{brokerError(io.EOF, []string{"a:1"}), "brokers a:1 close the connection: check tls and sasl: "},
		{
			topicError("t", kerr.TopicAuthorizationFailed),
			`topic "t": the user may not read it: grant Read and Describe on the topic: `,
		},
		{topicError("t", kerr.UnknownTopicOrPartition), `topic "t" does not exist: create it, or correct its name: `},
		{topicError("t", kerr.InvalidTopicException), `topic "t": the brokers refuse the name: `},
		{groupError("g", kerr.GroupAuthorizationFailed),
			`group "g": the user may not use it: grant Read on the group: `},
		{
			groupError("g", kerr.FencedInstanceID),
			`group "g": another process has the same instance: give each process a name of its own: `,
		},
		{
			groupError("g", kerr.InvalidSessionTimeout),
			`group "g": the brokers do not allow this session_timeout: see group.min.session.timeout.ms`,
		},
		{
			groupError("g", kerr.InconsistentGroupProtocol),
			`group "g": its other members do not use cooperative-sticky assignment: give penstock`,
		},
		{groupError("g", kerr.GroupMaxSizeReached), `group "g": it has as many members as the brokers allow: `},
		{
			stoppedError("t/0", 7, kerr.OffsetOutOfRange),
			`partition "t/0" is no longer read: its offset 7 does not exist, since the log`,
		},
	} {
		if !strings.HasPrefix(c.got.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", c.got, c.want)
		}
	}
}

// TestVerdicts checks the verdict for the error of a record.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		err            error
		fixed, byField verdict.Verdict // with a fixed topic, and with an expression
	}{
		{nil, verdict.Accepted, verdict.Accepted},
		{&messages.RecordError{Err: errors.New("key: no number")}, verdict.Refused, verdict.Refused},
		{kerr.MessageTooLarge, verdict.Refused, verdict.Refused},
		{kerr.InvalidRecord, verdict.Refused, verdict.Refused},
		{kerr.UnknownTopicOrPartition, verdict.Misconfigured, verdict.Refused},
		{kerr.UnknownTopicID, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.InvalidTopicException, verdict.Misconfigured, verdict.Refused},
		{kerr.TopicAuthorizationFailed, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.SaslAuthenticationFailed, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.TransactionalIDAuthorizationFailed, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.IllegalSaslState, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.UnsupportedCompressionType, verdict.Misconfigured, verdict.Misconfigured},
		{kerr.ThrottlingQuotaExceeded, verdict.Full, verdict.Full},
		{kerr.NotEnoughReplicas, verdict.Again, verdict.Again},
		{context.Canceled, verdict.Again, verdict.Again},
	} {
		if got := judge(c.err, false); got != c.fixed {
			t.Errorf("%v: %d, want %d", c.err, got, c.fixed)
		}
		if got := judge(fmt.Errorf("produce: %w", c.err), true); c.err != nil && got != c.byField {
			t.Errorf("%v, topic by expression: %d, want %d", c.err, got, c.byField)
		}
	}
}

// TestTokenFile checks that the token is read for each login, so that it can be replaced.
func TestTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	s := &SASL{Mechanism: mechanismOAuth, TokenFile: path}
	if _, err := s.readToken(); err == nil {
		t.Error("a missing file gave a token")
	}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.readToken(); got != want || err != nil {
			t.Errorf("token %q, %v, want %q", got, err, want)
		}
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.readToken(); err == nil || !strings.Contains(err.Error(), "want one token of at most 64 KiB") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestOwnership checks that the response to a heartbeat decides whether the member still owns its
// partitions.
func TestOwnership(t *testing.T) {
	for _, c := range []struct {
		err   *kerr.Error
		owned bool
		fails bool
	}{
		{kerr.RebalanceInProgress, true, false}, {kerr.UnknownMemberID, false, false},
		{kerr.IllegalGeneration, false, false},
		{kerr.FencedInstanceID, false, false}, {kerr.CoordinatorNotAvailable, false, true},
	} {
		if owned, err := ownership(c.err.Code); owned != c.owned || (err != nil) != c.fails {
			t.Errorf("%v: %v, %v", c.err, owned, err)
		}
	}
	if owned, err := ownership(0); !owned || err != nil {
		t.Errorf("no error: %v, %v", owned, err)
	}
}

// TestUnknownTopic checks that a topic counts as recreated only if the brokers have another id
// for it. A topic that is unknown to the brokers for a moment ends no route.
func TestUnknownTopic(t *testing.T) {
	old, fresh := kadm.TopicID{1}, kadm.TopicID{2}
	unknown := kadm.TopicDetail{Topic: "orders", Err: kerr.UnknownTopicOrPartition}
	start := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name   string
		detail kadm.TopicDetail
		after  []time.Duration // times of the checks
		want   string          // the error of the last check
	}{
		{"for a moment", unknown, []time.Duration{0, time.Second, unknownLimit}, ""},
		{"twice", unknown, []time.Duration{0, time.Minute}, ""},
		{"for too long", unknown, []time.Duration{0, 3 * time.Second, 6 * time.Second},
			`topic "orders" does not exist`},
		{"with another id", kadm.TopicDetail{Topic: "orders", ID: fresh}, []time.Duration{0},
			`topic "orders" was deleted or created again`},
		{"to one broker", kadm.TopicDetail{Topic: "orders", ID: old},
			[]time.Duration{0, time.Second}, ""},
		{"to one broker for too long", kadm.TopicDetail{Topic: "orders", ID: old},
			[]time.Duration{0, 3 * time.Second, 6 * time.Second},
			`topic "orders" was deleted or created again`},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := topicPartition{"orders", 0}
			part := &stream.Partition{ID: partitionID("c", "orders", old, 0), Name: key.String()}
			r := &reader{
				unknown: make(map[string]unknownTopic),
				parts:   map[topicPartition]*partition{key: {key: key, part: part}},
			}
			m := kadm.Metadata{Cluster: "c", Topics: kadm.TopicDetails{"orders": c.detail}}
			var err error
			for _, after := range c.after {
				if err != nil {
					t.Fatalf("before %v: %v", after, err)
				}
				err = r.checkTopics(m, []string{"orders"}, start.Add(after))
			}
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
