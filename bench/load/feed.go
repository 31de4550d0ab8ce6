package load

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Feed has the parameters of a load that is written while it is read.
type Feed struct {
	Dir     string
	Files   int
	Rate    int64 // bytes per second over all files
	Records int64 // total number of records
}

// feedEvery is the interval between writes.
const feedEvery = 10 * time.Millisecond

// Run appends numbered lines to the files in turn, at the given rate. It returns after the last
// line.
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
		// Each file gets about an equal share of the lines that are due. If only few lines are due,
		// some files get none.
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
