package httpsink

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// sized counts the writes to a connection.
type sized struct {
	net.Conn
	got    bytes.Buffer
	writes int
}

func (c *sized) Write(p []byte) (int, error) {
	c.writes++
	return c.got.Write(p)
}

// TestBodyIsWrittenAtOnce checks that each ReadFrom writes the unsent bytes of a body to the
// connection in a single write. net/http passes the body in an io.LimitedReader. ReadFrom must not
// write more than this reader allows.
func TestBodyIsWrittenAtOnce(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcde\n"), 16<<10)
	r := newBody(data)
	to := &sized{}
	to.got.Grow(len(data))
	c := &conn{Conn: to}
	if n, err := c.ReadFrom(io.LimitReader(r, 100)); n != 100 || err != nil || to.writes != 1 {
		t.Errorf("ReadFrom of 100 bytes = %d, %v in %d writes, want 100, nil in 1", n, err,
			to.writes)
	}
	rest := io.LimitReader(r, int64(len(data))-100)
	if n, err := c.ReadFrom(rest); n != int64(len(data))-100 || err != nil || to.writes != 2 {
		t.Errorf("ReadFrom of the rest = %d, %v after %d writes, want %d, nil after 2", n, err,
			to.writes, len(data)-100)
	}
	if !bytes.Equal(to.got.Bytes(), data) {
		t.Error("what was written is not the body")
	}
	if n, err := io.Copy(io.Discard, r); n != 0 || err != nil {
		t.Errorf("behind the body came %d bytes, %v", n, err)
	}
	if n, err := c.ReadFrom(bytes.NewReader(data[:10])); n != 10 || err != nil {
		t.Errorf("ReadFrom of another reader = %d, %v, want 10, nil", n, err)
	}
	if allocs := testing.AllocsPerRun(100, func() {
		to.got.Reset()
		l := io.LimitedReader{R: &body{wake: r.wake, data: data}, N: int64(len(data))}
		if n, _ := c.ReadFrom(&l); n != int64(len(data)) {
			t.Errorf("%d bytes were written", n)
		}
	}); allocs > 2 { // the reader and its limit
		t.Errorf("a body takes %v allocations, want 2", allocs)
	}
}

// TestHangingWriteIsEnded checks that release ends a hanging write before it returns, because the
// body's memory may be reused afterwards.
func TestHangingWriteIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // nobody reads
		defer far.Close()
		r := newBody(make([]byte, 1<<10))
		returned, ended := false, make(chan struct{})
		go func() {
			defer close(ended)
			_, err := (&conn{Conn: near}).ReadFrom(io.LimitReader(r, 1<<10))
			if err == nil {
				t.Error("the write was not ended")
			}
			time.Sleep(time.Second) // net/http closes the body late
			_ = r.Close()
		}()
		synctest.Wait()
		cancelled := false
		r.release(func() { cancelled = true })
		r.mu.Lock()
		returned = r.writer == nil
		r.mu.Unlock()
		if !cancelled || !returned {
			t.Errorf("release returned, cancelled: %v, the write has returned: %v, want both",
				cancelled, returned)
		}
		if _, err := (&conn{Conn: near}).ReadFrom(io.LimitReader(r, 1<<10)); !errors.Is(err,
			errReleased) {
			t.Errorf("a write after the end: %v, want %v", err, errReleased)
		}
		<-ended
	})
}
