package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalOfStandardOutput checks that a terminal is recognized behind the writers of stdout
// and stderr. Otherwise `penstock demo` would not draw, and `penstock status --tree` would print
// lines that are wider than the terminal.
func TestTerminalOfStandardOutput(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals: ", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 61}); err != nil {
		t.Fatal(err)
	}
	if w := widthOf(&standardOutput{w: slave}); w != 61 {
		t.Errorf("stdout: width %d, want 61", w)
	}
	if w := widthOf(newOutput(slave)); w != 61 {
		t.Errorf("stderr: width %d, want 61", w)
	}
}
