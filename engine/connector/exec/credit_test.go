package exec_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// allowed is the number of records that the credit child accepts at once.
const allowed = 7

// creditChild reads batches as fast as it can and answers them slowly. Its credit is the number of
// records that it has answered, plus 7 (allowed). Before each answer, it stores the number of
// unanswered records, which should come close to 7. Until this has happened once, the child also
// waits up to 100 ms for more records before each answer.
func creditChild(file string) int {
	var mu sync.Mutex
	var has, taken int
	batches := make(chan childBatch, 1000)
	go func() {
		defer close(batches)
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			var b childBatch
			if err != nil || json.Unmarshal(line, &b) != nil {
				return
			}
			mu.Lock()
			has += len(b.Records)
			mu.Unlock()
			batches <- b
		}
	}()
	full := false
	for b := range batches {
		if b.Records[0].Message == "exit!" {
			return 3
		}
		<-time.After(3 * time.Millisecond)
		mu.Lock()
		for waits := 0; !full && has < allowed-2 && waits < 100; waits++ {
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
		}
		full = full || has >= allowed-2 && has <= allowed
		text := fmt.Sprintln(has)
		has -= len(b.Records)
		taken += len(b.Records)
		mu.Unlock()
		if err := keep(file, []byte(text)); err != nil {
			return 1
		}
		fmt.Printf(`{"id":%d,"delivered":true,"credit":%d}`+"\n", b.ID, taken+allowed)
	}
	return 0
}

// TestCredit checks that a child never has more records than its credit, with one exception: if the
// child has no batch, it gets the next one even if this is larger than the credit. The reports to
// the engine must have the number of the child as their epoch: 1 for the first child, 2 for the
// child that replaces it.
func TestCredit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "most")
	o := exec.DefaultOptions()
	o.Command, o.Protocol, o.InFlight = command(t, "credit", file), exec.NDJSON, 100
	_, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := deliver(ctx, lanes[0], streamtest.Lines("a", "b"))
	if want := (stream.Report{Epoch: 1, Credit: 2 + allowed, Taken: 2}); err != nil ||
		first != want {
		t.Fatalf("the first batch: %+v, %v, want %+v", first, err, want)
	}
	var all sync.WaitGroup
	for n := range 60 {
		b := streamtest.Lines(strings.Split(strings.Repeat("x,", n%4)+"x", ",")...)
		if n == 30 {
			// a single batch larger than the credit
			b = streamtest.Lines(strings.Split(strings.Repeat("x,", 3*allowed)+"x", ",")...)
		}
		all.Go(func() {
			if _, err := deliver(ctx, lanes[0], b); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := deliver(ctx, lanes[0], streamtest.Lines("exit!")); err == nil {
		t.Error("a dead child has delivered")
	}
	for second := (stream.Report{}); second.Epoch != 2; {
		if second, err = deliver(ctx, lanes[0], streamtest.Lines("c")); err == nil &&
			(second.Credit != 1+allowed || second.Epoch != 2) {
			t.Fatalf("the next child: %+v", second)
		}
	}
	seen := received(t, file)
	most, large := 0, 0
	for _, text := range seen {
		var n int
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		if n > allowed {
			large = n
			continue
		}
		most = max(most, n)
	}
	if most < allowed-2 || most > allowed || large != 3*allowed+1 {
		t.Errorf("it had %d records at once, and once %d; want %d, and once %d", most, large,
			allowed, 3*allowed+1)
	}
}

// TestCreditBeforeFirstAnswer checks that a child gets only one batch before its first answer, and
// so never has more records than the credit in this answer.
func TestCreditBeforeFirstAnswer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "most")
	o := exec.DefaultOptions()
	o.Command, o.Protocol, o.InFlight = command(t, "credit", file), exec.NDJSON, 100
	_, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := deliver(ctx, lanes[0], streamtest.Lines("a", "b", "c")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, text := range received(t, file) {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err != nil || n > allowed ||
			i == 0 && n != 3 {
			t.Errorf("before answer %d, the child had %s records: %v", i+1, text, err)
		}
	}
}
