package exec_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// stormMessage is a message to a bolt: the handshake, a tuple or a heartbeat.
type stormMessage struct {
	PIDDir string
	ID     string
	Stream string
	Tuple  []string
}

// hear reads one message. ok is false at the end of the input.
func hear(in *bufio.Reader) (m stormMessage, ok bool) {
	var text strings.Builder
	for {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return m, false
		case line == "end\n":
			return m, json.Unmarshal([]byte(text.String()), &m) == nil
		}
		text.WriteString(line)
	}
}

func say(m map[string]any) {
	text, err := json.Marshal(m)
	if err != nil {
		text = []byte(err.Error())
	}
	_, _ = io.WriteString(os.Stdout, string(text)+"\nend\n")
}

// stormChild is a bolt that stores and acks each tuple. A word at the beginning of a text can
// select another action. With the word fail, the bolt fails the first attempt of a tuple and acks
// the second one.
func stormChild(file string) int {
	in := bufio.NewReader(os.Stdin)
	m, ok := hear(in)
	if !ok || os.WriteFile(filepath.Join(m.PIDDir, fmt.Sprint(os.Getpid())), nil, 0o600) != nil {
		return 1
	}
	say(map[string]any{"pid": os.Getpid()})
	failed := make(map[string]bool)
	for {
		if m, ok = hear(in); !ok {
			return 0
		}
		if m.Stream == "__heartbeat" {
			say(map[string]any{"command": "sync"})
			continue
		}
		word, rest, _ := strings.Cut(m.Tuple[0], "!")
		if end, code := obey(word); end {
			return code
		}
		if word == "fail" && !failed[rest] {
			failed[rest] = true
			say(map[string]any{"command": "emit", "anchors": []string{m.ID},
				"tuple": []any{"of a failed one"}, "need_task_ids": false})
			say(map[string]any{"command": "fail", "id": m.ID})
			continue
		}
		if word == "emit" {
			say(map[string]any{"command": "emit", "anchors": []string{m.ID}, "tuple": []any{1},
				"need_task_ids": false})
			say(map[string]any{"command": "emit", "tuple": []any{"unanchored"},
				"need_task_ids": false})
		}
		if keep(file, []byte(m.Tuple[0]+"\n")) != nil {
			return 1
		}
		say(map[string]any{"command": "ack", "id": m.ID})
	}
}

func storm(t *testing.T) (file string, o *exec.Options) {
	file = filepath.Join(t.TempDir(), "received")
	o = exec.DefaultOptions()
	o.Command, o.Protocol = command(t, exec.Storm, file), exec.Storm
	return file, o
}

// TestStormSink checks that acked records are delivered, that only failed records are retried, and
// that emitted tuples are discarded and counted.
func TestStormSink(t *testing.T) {
	file, o := storm(t)
	h, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := deliver(ctx, lanes[0], streamtest.Lines("a", "emit!1", "b", "emit!2")); err != nil {
		t.Fatal(err)
	}
	if n := h.Counted("tuples_emitted"); n != 4 {
		t.Errorf("%d tuples count as emitted, want 4", n)
	}
	_, err := deliver(ctx, lanes[0], streamtest.Lines("c", "fail!1", "d", "fail!2"))
	s, ok := errors.AsType[*stream.Split](err)
	if !ok || len(s.Refused) > 0 || is[*stream.Died](err) {
		t.Fatalf("two of four failed: %v", err)
	}
	if !slices.Equal(texts(s.Done), []string{"c", "d"}) ||
		!slices.Equal(texts(s.Rest), []string{"fail!1", "fail!2"}) {
		t.Errorf("%q done, %q to be sent again", texts(s.Done), texts(s.Rest))
	}
	if _, err := deliver(ctx, lanes[0], s.Rest[0].Value); err != nil {
		t.Errorf("sent again: %v", err)
	}
	_, err = deliver(ctx, lanes[0], streamtest.Lines("fail!3"))
	if err == nil || is[*stream.Split](err) || is[*stream.Died](err) {
		t.Errorf("all of one failed: %v, want a plain retryable error", err)
	}
	if got := received(t, file); !slices.Equal(got,
		[]string{"a", "emit!1", "b", "emit!2", "c", "d", "fail!1", "fail!2"}) {
		t.Errorf("received %q", got)
	}
}

// TestStormDeaths checks a batch during which the bolt dies: acked tuples are delivered, the tuple
// in progress is blamed, and the others are sent again to the next bolt without blame.
func TestStormDeaths(t *testing.T) {
	file, o := storm(t)
	_, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, word := range []string{"exit!", "kill!"} {
		_, err := deliver(ctx, lanes[0], streamtest.Lines("before "+word, word, "behind "+word))
		s, ok := errors.AsType[*stream.Split](err)
		if !ok || !is[*stream.Died](err) || s.Died < 1 || s.Died > len(s.Rest) {
			t.Fatalf("%s: %v, want a death of one of the rest", word, err)
		}
		blamed := texts(s.Rest[s.Died-1 : s.Died])
		if !slices.Equal(blamed, []string{word}) ||
			!slices.Equal(texts(s.Done), []string{"before " + word}) {
			t.Errorf("%s: %q is blamed, %q done", word, blamed, texts(s.Done))
		}
		if rest := texts(s.Rest); !slices.Contains(rest, word) ||
			!slices.Contains(rest, "behind "+word) || len(rest) != 2 {
			t.Errorf("%s: %q are sent again", word, rest)
		}
		if _, err := deliverToNext(ctx, lanes[0], streamtest.Lines("behind "+word)); err != nil {
			t.Errorf("after %s: %v", word, err)
		}
	}
	if got := received(t, file); !slices.Equal(got,
		[]string{"before exit!", "behind exit!", "before kill!", "behind kill!"}) {
		t.Errorf("received %q", got)
	}
}
