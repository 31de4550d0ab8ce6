package exec_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// childArg makes this test binary run as a child: `BINARY exec-child MODE FILE`.
const childArg = "exec-child"

func TestMain(m *testing.M) {
	if len(os.Args) >= 4 && os.Args[1] == childArg {
		// not os.Exit, which takes a second under the race detector
		syscall.Exit(beChild(os.Args[2], os.Args[3]))
	}
	os.Exit(connectortest.RunWaiting(m))
}

// command returns the command of a child in the given mode, which stores its records in file.
func command(t testing.TB, mode, file string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, childArg, mode, file}
}

func beChild(mode, file string) int {
	switch mode {
	case "ndjson":
		return ndjsonChild(file)
	case "credit":
		return creditChild(file)
	case "storm":
		return stormChild(file)
	}
	fmt.Fprintln(os.Stderr, "no such mode:", mode)
	return exUsage
}

const exUsage = 64

// ownFile returns the suffix of this process's output file. It begins with the start time, so that
// names sort by start.
var ownFile = sync.OnceValue(func() string {
	return fmt.Sprintf("-%d-%d", time.Now().UnixNano(), os.Getpid())
})

// keep appends text to the output file of this process, whose name is file with a suffix
// (ownFile). A kill of the process does not remove text that was written. Each process has a file
// of its own, because a kill can cut a write short: in a shared file, the next process would then
// continue in the middle of a line.
func keep(file string, text []byte) error {
	f, err := os.OpenFile(file+ownFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Close()
}

type childRecord struct{ Message string }

type childBatch struct {
	ID      uint64
	Attempt int
	Batch   string
	Records []childRecord
}

// ndjsonChild stores the records of each batch and answers it. In a batch of one record, a known
// first word makes the child misbehave.
func ndjsonChild(file string) int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var b childBatch
		if err := json.Unmarshal(line, &b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		var text strings.Builder
		said := ""
		for _, r := range b.Records {
			text.WriteString(r.Message + "\n")
			if word, rest, ok := strings.Cut(r.Message, "!"); ok {
				if end, code := obey(word); end {
					return code
				}
				if word == "say" {
					said = rest
				}
			}
		}
		if err := keep(file, []byte(text.String())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if said == "" {
			said = fmt.Sprintf(`{"id":%d,"delivered":true}`, b.ID)
		}
		fmt.Println(strings.ReplaceAll(said, "ID", fmt.Sprint(b.ID)))
	}
}

// obey performs the action that a record asks for.
func obey(word string) (end bool, code int) {
	switch word {
	case "exit":
		fmt.Fprintln(os.Stderr, "told to exit")
		return true, 3
	case "kill":
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
	case "hang":
		<-time.After(time.Hour)
	case "noise":
		for n := range 1000 {
			fmt.Fprintln(os.Stderr, "noise", n)
		}
	}
	return false, 0
}
