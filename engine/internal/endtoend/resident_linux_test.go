package endtoend

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// residentEvery is the interval at which the peak memory of a process is read. When the process
// ends, the last value is at most this old. The interval is short, because a run with nothing to do
// may take only 20 ms.
const residentEvery = 2 * time.Millisecond

// watchResident watches the memory of a process. It returns a function that ends the watch and
// returns the peak memory in MiB. The rusage of the ended process cannot be used, because its
// maximum includes the memory of the test process before exec.
func watchResident(pid int) func() float64 {
	stop, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(residentEvery)
		defer tick.Stop()
		mib := 0.0
		for {
			mib = max(mib, peakOf(pid))
			select {
			case <-stop:
				most <- mib
				return
			case <-tick.C:
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-most
	}
}

// peakOf reads VmHWM; 0 means that the process has ended.
func peakOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}
