package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/engine/status"
)

// maxResponse is the maximum number of bytes of a response that are read.
const maxResponse = 16 << 20

// Ask reads the status of the process that listens at address (host:port).
func Ask(ctx context.Context, address, token string) (*status.Status, error) {
	var s status.Status
	code, err := call(ctx, http.MethodGet, address, apiStatus, token, &s)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK || s.Version == 0 {
		return nil, fmt.Errorf("%s responds, but is not penstock", address)
	}
	return &s, nil
}

// Reload makes the process that listens at address (host:port) reload its configuration, and
// returns the result. An error means that there is no result: no penstock listens at the address,
// the process has refused the request, or the connection has failed. In the last case, the reload
// may have happened.
func Reload(ctx context.Context, address, token string) (*status.Reload, error) {
	var r status.Reload
	if _, err := call(ctx, http.MethodPost, address, apiReload, token, &r); err != nil {
		return nil, err
	}
	if !r.OK && r.Error == "" {
		return nil, fmt.Errorf("%s responds, but is not penstock", address)
	}
	return &r, nil
}

// call sends a request and decodes the JSON response into v. code is the status of the response. A
// status other than 200 and 422 is an error.
func call(ctx context.Context, method, address, path, token string, v any) (code int, err error) {
	res, err := request(ctx, method, address, path, token)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", address, err)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusUnprocessableEntity {
		return 0, refused(address, res, text)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return 0, fmt.Errorf("%s responds, but is not penstock", address)
	}
	return res.StatusCode, nil
}

// client opens a new connection for each request.
var client = http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func request(ctx context.Context, method, address, path, token string) (*http.Response, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		const notListening = "nothing listens at %s: no penstock is running with this config, " +
			"or its admin: is off"
		return nil, fmt.Errorf(notListening, address)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s has not responded within the time limit; --timeout raises it: "+
			"%w", address, context.DeadlineExceeded)
	}
	return res, err
}

func refused(address string, res *http.Response, text []byte) error {
	return fmt.Errorf("%s answered %s: %.200q", address, res.Status, strings.TrimSpace(string(text)))
}

// Frames gets a live.Frame (the status of the engine) each second from the process that listens at
// address, and calls take with it. Frames returns when take returns an error, ctx is done, or the
// process ends.
func Frames(ctx context.Context, address, token string, take func(*live.Frame) error) error {
	return lines(ctx, address, apiEvents, token, func(line []byte) error {
		text, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			return nil
		}
		f := new(live.Frame)
		if err := json.Unmarshal(text, f); err != nil {
			return fmt.Errorf("%s responds, but is not penstock", address)
		}
		return take(f)
	})
}

// Tap gets sampled records from the process that listens at address, and calls take with each. A
// sample is a JSON object. route is "pipeline/route", stage selects the stages (see
// tap.Stage.Matches), and rate is the maximum number of samples per second and stage. Tap returns
// when take returns an error, ctx is done, or the process ends.
func Tap(
	ctx context.Context, address, token, route, stage string, rate int, take func(sample []byte) error,
) error {
	query := url.Values{"route": {route}, "stage": {stage}, "rate": {strconv.Itoa(rate)}}
	return lines(ctx, address, apiTap+"?"+query.Encode(), token, take)
}

// maxLine is the maximum length of a line of a response. Even a live.Frame (the status of the
// engine) with several thousand workers is shorter.
const maxLine = 16 << 20

// lines calls take with each non-empty line of a response.
func lines(ctx context.Context, address, path, token string, take func([]byte) error) error {
	res, err := request(ctx, http.MethodGet, address, path, token)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1024)) // the text is optional
		return refused(address, res, text)
	}
	scanner := bufio.NewScanner(res.Body)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		if len(scanner.Bytes()) == 0 {
			continue
		}
		if err := take(scanner.Bytes()); err != nil {
			return err
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}
