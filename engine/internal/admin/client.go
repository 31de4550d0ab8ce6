package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/penstock-io/penstock/engine/status"
)

// maxResponse bounds a response that is read.
const maxResponse = 16 << 20

// Ask reads the status of the process that listens at address, host:port.
func Ask(ctx context.Context, address, token string) (*status.Status, error) {
	var s status.Status
	code, err := call(ctx, http.MethodGet, address, apiStatus, token, &s)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK || s.Version == 0 {
		return nil, fmt.Errorf("%s answers, but not as penstock does", address)
	}
	return &s, nil
}

// Reload makes the process that listens at address, host:port, reload its configuration, and
// returns the result. An error means that the outcome is unknown or that there is no such process.
func Reload(ctx context.Context, address, token string) (*status.Reload, error) {
	var r status.Reload
	if _, err := call(ctx, http.MethodPost, address, apiReload, token, &r); err != nil {
		return nil, err
	}
	if !r.OK && r.Error == "" {
		return nil, fmt.Errorf("%s answers, but not as penstock does", address)
	}
	return &r, nil
}

// call sends a request and decodes the response, which is JSON with status 200 or 422, into v.
func call(ctx context.Context, method, address, path, token string, v any) (code int, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("admin: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return 0, fmt.Errorf("nothing listens at %s: no penstock runs with this config, or its admin: is off", address)
	}
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", address, err)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusUnprocessableEntity {
		return 0, fmt.Errorf("%s answered %s: %.200q", address, res.Status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, v); err != nil {
		return 0, fmt.Errorf("%s answers, but not as penstock does", address)
	}
	return res.StatusCode, nil
}
