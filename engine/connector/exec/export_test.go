package exec

import (
	"context"

	"github.com/penstock-io/penstock/stream"
)

// ParseForTest parses an answer about b.
func ParseForTest(line []byte, b *stream.Batch) (report stream.Report, outcome, err error) {
	a, err := parseAnswer(line)
	if err != nil {
		return report, nil, err
	}
	outcome, err = a.outcome(b)
	return a.report(1, 0), outcome, err
}

// FollowingForTest exports following.
var FollowingForTest = following

// RunForTest runs the command once. It submits the output until ctx is done.
func (s *Source) RunForTest(ctx, run context.Context) error { return s.run(ctx, run) }
