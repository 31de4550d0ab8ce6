package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// busy is a reading of two CPU times at one moment: that of the whole machine (all), and that of
// this command with its child processes that have ended (ours).
type busy struct {
	at         time.Time
	all, ours  float64 // in seconds
	measurable bool
}

// ticksPerSecond is USER_HZ, the unit of times in the kernel's files.
const ticksPerSecond = 100

func busyNow() busy {
	b := busy{at: time.Now()}
	f, err := os.Open("/proc/stat")
	if err != nil {
		return b
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if err != nil || len(fields) < 8 {
		return b
	}
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return b
		}
		b.all += ticks / ticksPerSecond
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return b
		}
		b.ours += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	b.measurable = true
	return b
}

// othersSince returns the average number of cores that other programs have used since b. A database
// server that is used by a workload counts as another program. The result is 0 if the CPU times
// cannot be read.
func (b busy) othersSince() float64 {
	now := busyNow()
	seconds := now.at.Sub(b.at).Seconds()
	if !b.measurable || !now.measurable || seconds <= 0 {
		return 0
	}
	return max(0, (now.all-b.all-(now.ours-b.ours))/seconds)
}
