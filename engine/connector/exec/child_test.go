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
)

// The children of the tests are this test binary: `BINARY exec-child MODE FILE`.
const childArg = "exec-child"

func TestMain(m *testing.M) {
	if len(os.Args) >= 4 && os.Args[1] == childArg {
		syscall.Exit(beChild(os.Args[2], os.Args[3])) // at once: under the race detector os.Exit takes a second
	}
	os.Exit(m.Run())
}

// command is how a child of that mode is run, which keeps its records in file.
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

// ownFile is behind the name of the file to which this process appends, in the order in which the
// processes have begun to.
var ownFile = sync.OnceValue(func() string { return fmt.Sprintf("-%d-%d", time.Now().UnixNano(), os.Getpid()) })

// keep appends text to a file of this process's own beside file, durable against its death, in one
// write. A kill can cut that short, and what another one appended would go on in the middle of a
// line.
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

// ndjsonChild keeps each batch's records and answers. A record of one batch that begins with a word
// of the tests makes it do what that says.
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

// obey does what a record's word says.
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
