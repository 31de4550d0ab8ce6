package notify

import (
	"fmt"
	nethttp "net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// probesADay is the maximum number of attempts at a down host in 24 hours. The last attempt of each
// delivery is not counted.
const probesADay = 60

// TestProbesADay checks a lane (the state of a host) with a delivery that is always due and
// attempts that all fail at once. The lane must let at most probesADay attempts through in any 24
// hours.
func TestProbesADay(t *testing.T) {
	l := newLane(parked.Host{ID: 1, Name: "dead"})
	var at []time.Duration
	id := int64(0)
	for now := time.Duration(0); now < 72*time.Hour; now += time.Second {
		isProbe := l.isDown()
		ticket, ok := l.allow(now)
		if !ok {
			continue
		}
		id++
		outcome := l.end(id, hostDown, isProbe, "connection refused", time.Unix(0, 0).Add(now))
		l.settle(now, ticket, outcome)
		at = append(at, now)
	}
	most := mostInADay(at)
	t.Logf("%d attempts in three days, at most %d in 24 hours", len(at), most)
	if len(at) < 100 || most > probesADay {
		t.Errorf("attempts at %v", at)
	}
}

// mostInADay returns the largest number of the given times within 24 hours.
func mostInADay(at []time.Duration) (most int) {
	at = slices.Sorted(slices.Values(at))
	from := 0
	for to := range at {
		for at[to]-at[from] >= 24*time.Hour {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// TestProbesOfDeadHosts checks hosts that are silent or answer 503 for two days while records
// arrive. They get at most probesADay attempts in 24 hours, plus one last attempt for each record.
func TestProbesOfDeadHosts(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(*nethttp.Request, int) (int, string, time.Duration){
		"silent": func(*nethttp.Request, int) (int, string, time.Duration) { return 0, "", time.Hour },
		"503":    func(*nethttp.Request, int) (int, string, time.Duration) { return 503, "", 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				f := newFixture(t, dir, options(), newMerchants(respond), false)
				defer f.stop()
				parkedAt := map[string]time.Duration{}
				deliver := func(order string) {
					parkedAt[order] = time.Since(f.m.start)
					if err := f.deliver("dead " + order); err != nil {
						t.Fatal(err)
					}
				}
				deliver("first-1")
				deliver("first-2")
				deliver("first-3")
				for n := range 24 {
					time.Sleep(time.Hour)
					deliver(fmt.Sprintf("order-%d", n))
				}
				time.Sleep(25 * time.Hour)
				synctest.Wait()
				var probes []time.Duration
				for order, since := range parkedAt {
					last := 0
					for _, at := range f.m.of(order) {
						if at >= since+planned[len(planned)-1] {
							last++
						} else {
							probes = append(probes, at)
						}
					}
					if last != 1 {
						t.Errorf("%s: %d last attempts, want 1", order, last)
					}
				}
				most := mostInADay(probes)
				t.Logf("at most %d probes in 24 hours, %d in all", most, len(probes))
				if most > probesADay || len(probes) < 24 {
					t.Errorf("probes at %v", slices.Sorted(slices.Values(probes)))
				}
				if len(f.letters) != len(parkedAt) {
					t.Errorf("%d dead letters, want %d", len(f.letters), len(parkedAt))
				}
			})
		})
	}
}

// TestRetryAtDownHost checks that a host is up again as soon as an operator's retry succeeds.
func TestRetryAtDownHost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dir string) {
		var up atomic.Bool
		f := newFixture(t, dir, options(), newMerchants(
			func(*nethttp.Request, int) (int, string, time.Duration) {
				if up.Load() {
					return 200, "success", 0
				}
				return 503, "", 0
			},
		), false)
		defer f.stop()
		if err := f.deliver("m1 order-1", "m1 order-2", "m1 order-3", "m1 order-4"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		up.Store(true)
		if _, err := f.Deliveries().Retry(t.Context(), "order-2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if log := f.host.Logged(); !strings.Contains(log, "host is up again") {
			t.Errorf("log %s\nwant that the host is up again", log)
		}
	})
}

// TestUnsentAttempts checks that an attempt whose request cannot be made leaves the state of its
// host as it is. The host is down for two hours. Meanwhile half of the deliveries cannot be signed,
// because their key is no longer in the keys file.
func TestUnsentAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dir string) {
		keys := filepath.Join(dir, "keys.json")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(`{"old": ["whsec_b2xk"], "new": ["whsec_bmV3"]}`)
		o := options()
		o.Sign = Sign{
			Webhooks: Webhooks{On: true}, KeysFile: keys, Key: `split(message, " ")[2]`,
		}
		f := newFixture(t, dir, o, newMerchants(
			func(*nethttp.Request, int) (int, string, time.Duration) { return 503, "", 0 },
		), false)
		defer f.stop()
		var lines []string
		for n := range 10 {
			lines = append(lines, fmt.Sprintf("dead order-%d old", n),
				fmt.Sprintf("dead order-%d new", 10+n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		write(`{"new": ["whsec_bmV3"]}`)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		log := f.host.Logged()
		if strings.Count(log, "host is down") != 1 || strings.Contains(log, "host is up again") {
			t.Errorf("log %s\nwant that the host went down once", log)
		}
	})
}
