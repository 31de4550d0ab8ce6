package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// transactionalID returns the id of a partition's transactions. All owners of the partition use the
// same id.
func transactionalID(group string, key topicPartition) string {
	return "penstock/" + group + "/" + key.String()
}

// oldTransactions limits requests to the versions before part 2 of KIP-890. In later versions, the
// end of a transaction changes the producer's epoch. The client library learns the new epoch only
// if it ends the transaction itself. It does so only for transactions with records, but this
// package also has transactions that contain only offsets, and ends these itself.
func oldTransactions() kgo.Opt {
	v := kversion.Stable()
	for _, key := range []struct {
		key kmsg.Key
		max int16
	}{{kmsg.Produce, 11}, {kmsg.EndTxn, 4}, {kmsg.TxnOffsetCommit, 4}} {
		v.SetMaxKeyVersion(int16(key.key), key.max)
	}
	return kgo.MaxVersions(v)
}

// fencingError is an error after which the engine must take the partition again.
type fencingError struct{ err error }

// Error implements error.
func (e *fencingError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *fencingError) Unwrap() error { return e.err }

// isFencing reports whether err means that the engine must take the partition again. For example,
// another process owns the transactional id, or the id does not exist any more.
func isFencing(err error) bool {
	if _, ok := errors.AsType[*fencingError](err); ok {
		return true
	}
	return isAny(err,
		kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
		kerr.UnknownProducerID, kerr.InvalidTxnState, kerr.TransactionCoordinatorFenced, kerr.TransactionalIDNotFound)
}

// transactionError adds a remedy to an error that concerns transactions.
func transactionError(err error) error {
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return fmt.Errorf("the user may not use transactions: grant Write and Describe on "+
			"transactional ids with the prefix penstock/, and Read on the group: %w", err)
	}
	return err
}

// requestBackoff paces requests that the brokers ask to repeat.
var requestBackoff = backoff.Exponential(10*time.Millisecond, 2, 500*time.Millisecond).Full()

// persist calls f, and retries it while the brokers are still ending an earlier transaction.
func persist(ctx context.Context, f func(context.Context) error) error {
	return retry.Do(ctx, f, retry.Options{
		Policy: requestBackoff, MaxAttempts: -1, MaxElapsed: transactionTimeout,
		Classify: func(err error) retry.Action {
			if errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err,
				kerr.UnstableOffsetCommit) {
				return retry.Retry
			}
			return retry.Fail
		},
	})
}

// storedOffsets returns the group's offsets of partitions. It waits until no open transaction of
// these partitions can change the offsets any more. After about transactionTimeout, it returns an
// error instead. It does not wait for transactions of other partitions, because under load at least
// one of those is always open.
func (s *transactionalSink) storedOffsets(ctx context.Context, keys ...topicPartition) (
	storedOffsets, error) {
	out := make(storedOffsets)
	topics := topicsOf(keys)
	err := persist(kadm.RequireStable(ctx), func(ctx context.Context) error {
		all, err := kadm.NewClient(s.client).FetchOffsetsForTopics(ctx, s.group, topics...)
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		all.Each(func(o kadm.OffsetResponse) {
			key := topicPartition{o.Topic, o.Partition}
			if !slices.Contains(keys, key) {
				return
			}
			out[key] = committed{o.At, o.LeaderEpoch, o.Metadata}
			if err == nil {
				err = o.Err
			}
		})
		return err
	})
	if errors.Is(err, kerr.UnstableOffsetCommit) {
		return nil, fmt.Errorf("a transaction with offsets of group %q does not end; if this "+
			"goes on, the brokers have lost its end: see kafka-transactions find-hanging: %w",
			s.group, err)
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of group %q: %w", s.group, err)
	}
	return out, nil
}

// sendOffsets adds a commit of next, the new progress of the group in the partition, to the open
// transaction.
func (p *transactions) sendOffsets(ctx context.Context, next progress) error {
	id, epoch, err := p.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.id, id, epoch, p.s.group
	err = persist(ctx, func(ctx context.Context) error {
		res, err := add.RequestWith(ctx, p.s.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(res.ErrorCode)
	})
	if err != nil {
		return fmt.Errorf("add offsets to the transaction: %w", err)
	}
	text, _ := commitmeta.Encode(next.mark(p.part), p.limit)
	offset := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	offset.Partition, offset.Offset, offset.Metadata = p.key.num, next.watermark, &text
	offset.LeaderEpoch = p.s.source.leaderEpoch(p.s.route, p.key, next.watermark)
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = p.key.topic, append(topic.Partitions, offset)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, id, epoch, p.s.group
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(ctx, p.s.client)
	if err != nil {
		return fmt.Errorf("commit offsets in the transaction: %w", err)
	}
	for _, t := range res.Topics {
		for _, one := range t.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(one.ErrorCode))
		}
	}
	if errors.Is(err, kerr.OffsetMetadataTooLarge) && p.limit > commitmeta.MinLimit {
		p.limit = max(p.limit/2, commitmeta.MinLimit)
		p.s.host.Log().Warn("the brokers refuse the length of a commit's metadata; it is shortened",
			"bytes", p.limit)
	}
	if err != nil {
		return fmt.Errorf("commit offsets in the transaction: %w", err)
	}
	return nil
}

// commitOffsets commits next, the new progress of the group in the partition, in a transaction
// without records. After an error, it is unknown whether next was committed.
func (p *transactions) commitOffsets(ctx context.Context, next progress) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	if err := p.sendOffsets(ctx, next); err != nil {
		return err
	}
	id, epoch, err := p.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, id, epoch, true
	return persist(ctx, func(ctx context.Context) error {
		res, err := req.RequestWith(ctx, p.s.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(res.ErrorCode)
	})
}
