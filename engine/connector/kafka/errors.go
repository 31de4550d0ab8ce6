package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokerError returns err, the error of a failed connection, with the addresses of the brokers and,
// for known causes, a remedy.
func brokerError(err error, brokers []string) error {
	where := strings.Join(brokers, ", ")
	network, ok := errors.AsType[*net.OpError](err)
	isDial := ok && network.Op == "dial"
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("brokers %s refuse the login: check sasl: %w", where, err)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Errorf("brokers %s do not offer this mechanism: check sasl.mechanism: %w", where, err)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("brokers %s: the user may not do this: grant it in the cluster's ACLs: %w", where, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("brokers %s close the connection: check tls and sasl: %w", where, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no broker of %s answers: check the addresses, tls and sasl: %w", where, err)
	case isDial:
		return fmt.Errorf("brokers %s cannot be reached: check the addresses: %w", where, err)
	}
	return fmt.Errorf("brokers %s: %w", where, err)
}

// topicError adds a remedy to an error that concerns one topic.
func topicError(topic string, err error) error {
	switch {
	case isUnknownTopic(err):
		return fmt.Errorf("topic %q does not exist: create it, or correct its name: %w", topic, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("topic %q: the user may not read it: grant Read and Describe on the topic: %w", topic, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("topic %q: the brokers refuse the name: %w", topic, err)
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}

var errRecreated = errors.New("was deleted or created again while it was read")

// recreatedError returns an error that ends the route. The topic was deleted, and perhaps created
// again under the same name, but the route's client keeps the id of the deleted topic. When the
// route restarts, its new client has the new id.
func recreatedError(topic string) error { return fmt.Errorf("topic %q %w", topic, errRecreated) }

// groupError adds a remedy to an error that concerns the group.
func groupError(group string, err error) error {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("group %q: the user may not use it: grant Read on the group: %w", group, err)
	case errors.Is(err, kerr.FencedInstanceID):
		return fmt.Errorf("group %q: another process has the same instance: give each process a "+
			"name of its own: %w", group, err)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("group %q: the brokers do not allow this session_timeout: "+
			"see group.min.session.timeout.ms and group.max.session.timeout.ms: %w", group, err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("group %q: its other members do not use cooperative-sticky assignment: "+
			"give penstock a group of its own: %w", group, err)
	case errors.Is(err, kerr.GroupMaxSizeReached):
		return fmt.Errorf("group %q: it has as many members as the brokers allow: %w", group, err)
	}
	return fmt.Errorf("group %q: %w", group, err)
}

// reaction is the consequence of a fetch error.
type reaction uint8

const (
	retryFetch    reaction = iota // the client library tries again by itself
	verifyTopic                   // the topic may have been deleted or created again
	stopPartition                 // the partition's offset does not exist any more
	failRoute                     // a restart or an operator is needed
)

// reactionTo classifies a fetch error.
func reactionTo(err error) reaction {
	if _, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		return stopPartition
	}
	_, session := errors.AsType[*kgo.ErrGroupSession](err)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return stopPartition
	case isUnknownTopic(err):
		return verifyTopic
	case isFatal(err):
		return failRoute
	case session, kerr.IsRetriable(err), kgo.IsRetryableBrokerErr(err), errors.Is(err, context.DeadlineExceeded):
		return retryFetch
	}
	return failRoute
}

// isUnknownTopic reports whether err means that a broker does not know the topic. The error may be
// temporary: a broker may learn of a new topic later than other brokers.
func isUnknownTopic(err error) bool {
	return isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID)
}

// isAny reports whether errors.Is reports true for err and any of targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// isFatal reports whether retries do not help, because an operator must remove the cause of err.
// The client library calls some of these errors retryable.
func isFatal(err error) bool {
	return isAny(err,
		kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.FencedInstanceID, kerr.InvalidSessionTimeout, kerr.InconsistentGroupProtocol,
		kerr.InvalidGroupID, kerr.GroupMaxSizeReached, kerr.UnsupportedVersion)
}

// fetchError adds the topic or the group to a fetch error.
func fetchError(group string, at topicPartition, err error) error {
	if _, session := errors.AsType[*kgo.ErrGroupSession](err); session || at.topic == "" {
		return groupError(group, err)
	}
	return topicError(at.topic, err)
}

// stoppedError returns the error that is logged for a partition that is no longer read.
func stoppedError(name string, next int64, err error) error {
	return fmt.Errorf("partition %q is no longer read: its offset %d does not exist, since "+
		"the log was truncated or retention "+
		"has deleted the records; restart with truncated: earliest, or reset the group's offset: %w", name, next, err)
}
