package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// readSize is what penstock reads at once, so that the limit does no more or less.
const readSize = 256 << 10

// runLimit does what a limit does, in a process of its own: the same work with nothing around it.
func runLimit(args []string) error {
	switch args[0] {
	case "count":
		return limitCount(args[1])
	case "copy":
		return limitCopy(args[1], args[2], false)
	case "copy_fsync":
		return limitCopy(args[1], args[2], true)
	case "post":
		return limitPost(args[1], args[2:])
	}
	return fmt.Errorf("no limit is called %q", args[0])
}

// limitCount reads a file and counts its line ends.
func limitCount(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, readSize)
	lines := 0
	for {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte("\n"))
		if errors.Is(err, io.EOF) {
			fmt.Println(lines)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// limitCopy copies a file by reads and writes.
func limitCopy(from, to string, sync bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	buf := make([]byte, readSize)
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buf); err != nil {
		return err
	}
	if sync {
		if err := out.Sync(); err != nil {
			return err
		}
	}
	return out.Close()
}

// limitPost posts a file in bodies of readSize, one connection an URL.
func limitPost(path string, urls []string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var mu sync.Mutex
	next := func(buf []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return io.ReadFull(f, buf)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(urls))
	for i, url := range urls {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			buf := make([]byte, readSize)
			for {
				n, err := next(buf)
				if n == 0 {
					return
				}
				if errs[i] = post(client, url, buf[:n]); errs[i] != nil {
					return
				}
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func post(client *http.Client, url string, body []byte) error {
	res, err := client.Post(url, "text/plain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, res.Status)
	}
	return nil
}
