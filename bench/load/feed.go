package load

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Feed holds the parameters of a live load.
type Feed struct {
	Dir     string
	Files   int
	Rate    int64 // bytes a second over all files
	Records int64 // in all
}

// feedEvery is the interval of writes.
const feedEvery = 10 * time.Millisecond

// Run appends numbered lines to the files in turn, at the given rate, and returns after the last
// one.
func (f Feed) Run(b *Block) error {
	files := make([]*os.File, f.Files)
	for i := range files {
		var err error
		path := filepath.Join(f.Dir, fmt.Sprintf("live-%03d.log", i))
		if files[i], err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY,
			0o644); err != nil {
			return err
		}
		defer files[i].Close()
	}
	perSecond := float64(f.Rate) / (float64(b.Bytes()) / float64(b.Lines()))
	begun := time.Now()
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	at, turn := 0, 0
	for done := int64(0); done < f.Records; {
		now := <-tick.C
		due := min(f.Records, int64(time.Since(begun).Seconds()*perSecond))
		// Each file gets an equal share of the due lines. If few lines are due, only some of the
		// files get any.
		share := int((due-done)/int64(f.Files)) + 1
		for done < due {
			n := min(share, int(due-done), b.Lines()-at)
			if _, err := files[turn].Write(b.Number(at, at+n, done, now)); err != nil {
				return err
			}
			done += int64(n)
			at, turn = (at+n)%b.Lines(), (turn+1)%f.Files
		}
	}
	return nil
}
