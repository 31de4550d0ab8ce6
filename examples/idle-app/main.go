// Command idle-app is an app that fetches news in the background. While its user does not look at
// the news, the app fetches them less and less often. When the user looks, it fetches often again.
// The program simulates a day in virtual time.
package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// looks are the times of the day at which the user opens the app.
var looks = []time.Duration{
	7*time.Hour + 10*time.Minute, 7*time.Hour + 20*time.Minute, 12*time.Hour + 30*time.Minute,
	19 * time.Hour,
	19*time.Hour + 5*time.Minute, 19*time.Hour + 15*time.Minute, 22 * time.Hour,
}

func main() {
	pace := backoff.Adaptive{Min: time.Minute, Max: time.Hour, Grow: 1.5}
	src := rand.NewPCG(1, 1)
	const day = 24 * time.Hour
	var interval, stalest, fetched time.Duration
	fetches, next := 0, 0
	for now := time.Duration(0); now < day; {
		fetches, fetched = fetches+1, now
		// The jitter keeps a million of these apps from asking together.
		interval = pace.Next(interval, false)
		wait, _, _ := backoff.Fixed(interval).Proportional(.1).Next(backoff.State{}, src)
		until := now + wait
		for next < len(looks) && looks[next] < until {
			age := looks[next] - fetched
			stalest = max(stalest, age)
			fmt.Printf("%s  the user looks, the news are %v old, the app asked every %v\n",
				clock(looks[next]), age.Round(time.Second), interval.Round(time.Second))
			// The news were used: return to the shortest interval.
			interval = pace.Next(interval, true)
			until = looks[next] + interval
			next++
		}
		now = until
	}
	fmt.Printf("%d fetches instead of %d, and never news older than %v\n", fetches, day/pace.Min,
		stalest.Round(time.Second))
}

func clock(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute)
}
