//go:build unix

package endtoend

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestKillKafkaTransactions runs three programs that copy a topic of a real broker into another one
// in transactions. It alternately kills one program and suspends one. A suspension lasts until
// other programs have the partitions, and the transactions have timed out. Each record must arrive
// once.
func TestKillKafkaTransactions(t *testing.T) {
	g := startCopies(t, toKafka(true), 0)
	suspended := 5 * time.Second
	if kills(t) >= 20 {
		suspended = 15 * time.Second
	}
	midway, stops := 0, 0
	for n := range kills(t) {
		g.produceForAWhile()
		m := g.members[g.rnd.IntN(len(g.members))]
		if n%2 == 0 {
			m.kill()
			m.start()
			continue
		}
		stops++
		if g.suspend(m, midway == 0) {
			midway++
		}
		for begin := time.Now(); time.Since(begin) < suspended; {
			<-g.tick.C
			g.produce()
		}
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	g.produceForAWhile()
	repeated := g.finish()
	t.Logf("%d kills and %d suspensions of %v, %d of them in a transaction: "+
		"0 of %d records lost, %d repeated", kills(t)-stops, stops, suspended, midway, g.ids,
		repeated)
	if repeated > 0 {
		t.Errorf("%d records are there more than once", repeated)
	}
	if midway == 0 && stops >= 3 {
		t.Error("no program was suspended in a transaction: the test shows nothing of that")
	}
}

// suspend suspends a member, and reports whether the member then has an open transaction. With
// retry, a member without one continues and is suspended again, at most 20 times.
func (g *copies) suspend(m *member, retry bool) (isMidway bool) {
	g.t.Helper()
	for try := 0; ; try++ {
		if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			g.t.Fatal(err)
		}
		if isMidway = g.isTransactionStuck(); isMidway || !retry || try == 20 {
			return isMidway
		}
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			g.t.Fatal(err)
		}
		g.produceForAWhile()
	}
}

// isTransactionStuck reports whether a transaction stays open for half a second.
func (g *copies) isTransactionStuck() bool {
	g.t.Helper()
	open := func() (out []kadm.DescribedTransaction) {
		all, err := g.admin.DescribeTransactions(g.t.Context())
		if err != nil {
			g.t.Fatal(err)
		}
		for _, one := range all {
			if one.State == "Ongoing" {
				out = append(out, one)
			}
		}
		return out
	}
	first := open()
	for range 25 {
		<-g.tick.C
	}
	return slices.ContainsFunc(open(), func(now kadm.DescribedTransaction) bool {
		return slices.ContainsFunc(first, func(was kadm.DescribedTransaction) bool {
			return was.TxnID == now.TxnID && was.StartTimestamp == now.StartTimestamp
		})
	})
}
