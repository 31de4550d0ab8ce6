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

// tailRoom is the maximum number of bytes by which the body of a request exceeds readSize. Bodies
// end at line ends, so a body includes the rest of its last line.
const tailRoom = 64 << 10

// writeBuffer is the size of a connection's write buffer. The default of net/http, 4 KiB, causes
// more system calls.
const writeBuffer = 64 << 10

// bodies splits a file into bodies of readSize or slightly more, which end at line ends.
type bodies struct {
	mu   sync.Mutex
	file *os.File
	at   int64
}

// next reads the next body into buf. It returns io.EOF with the last body or after it.
func (b *bodies) next(buf []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.file.ReadAt(buf[:readSize], b.at)
	for n >= readSize && buf[n-1] != '\n' {
		if n == len(buf) {
			return 0, fmt.Errorf("a line of more than %d bytes", tailRoom)
		}
		k, more := b.file.ReadAt(buf[n:min(n+lineStep, len(buf))], b.at+int64(n))
		if end := bytes.IndexByte(buf[n:n+k], '\n'); end >= 0 {
			n, err = n+end+1, nil
			break
		}
		if n, err = n+k, more; more != nil {
			break
		}
	}
	b.at += int64(n)
	return n, err
}

// lineStep is the size of the reads that search for the end of the last line of a body.
const lineStep = 1 << 10

// postFile posts a file with one connection for each URL.
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
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1,
				WriteBufferSize: writeBuffer}}
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
