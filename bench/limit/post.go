package limit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

// tailRoom is how much longer than readSize a body may get so that it ends with a line.
const tailRoom = 64 << 10

// bodies cuts a file into bodies of readSize and what is missing of a line.
type bodies struct {
	mu   sync.Mutex
	file *os.File
	at   int64
}

// next fills buf; io.EOF comes with the last.
func (b *bodies) next(buf []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.file.ReadAt(buf, b.at)
	if n > readSize {
		end := bytes.IndexByte(buf[readSize:n], '\n')
		if end < 0 {
			return 0, fmt.Errorf("a line of more than %d bytes", tailRoom)
		}
		n, err = readSize+end+1, nil
	}
	b.at += int64(n)
	return n, err
}

// postFile posts a file, one connection an URL.
func postFile(path string, urls []string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	all := &bodies{file: f}
	var wg sync.WaitGroup
	errs := make([]error, len(urls))
	for i, url := range urls {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			buf := make([]byte, readSize+tailRoom)
			for {
				n, err := all.next(buf)
				if err != nil && err != io.EOF {
					errs[i] = err
					return
				}
				if n == 0 {
					return
				}
				if errs[i] = post(client, url, buf[:n]); errs[i] != nil {
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
