package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
)

// receive is an HTTP receiver in a process of its own: it reads bodies, counts their records, and tells the count at /count. It ends
// when its standard input does.
func receive([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var records atomic.Int64
	buffers := sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}
	mux := http.NewServeMux()
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, records.Swap(0)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		n := 0
		for {
			k, err := r.Body.Read(*buf)
			n += bytes.Count((*buf)[:k], []byte("\n"))
			if err == io.EOF {
				records.Add(int64(n))
				return
			}
			if err != nil {
				return
			}
		}
	})
	fmt.Println("http://" + l.Addr().String())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, mux)
}

// receiver is that process, seen from the harness.
type receiver struct {
	url  string
	stop func() error
}

func startReceiver() (receiver, error) {
	exe, err := os.Executable()
	if err != nil {
		return receiver{}, err
	}
	cmd := exec.Command(exe, "receive")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return receiver{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return receiver{}, err
	}
	if err := cmd.Start(); err != nil {
		return receiver{}, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return receiver{strings.TrimSpace(line), func() error { in.Close(); return cmd.Wait() }}, err
}

// count returns how many records came since it was last asked.
func (r receiver) count() (n int64, err error) {
	res, err := http.Get(r.url + "/count")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = fmt.Fscan(res.Body, &n)
	return n, err
}

// endpoints are n URLs of the receiver: for penstock each is a worker.
func (r receiver) endpoints(n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprintf("%s/%d", r.url, i))
	}
	return urls
}
