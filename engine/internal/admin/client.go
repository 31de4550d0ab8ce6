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

// maxStatus bounds a status that is read.
const maxStatus = 16 << 20

// Ask reads the status of the process that listens at address, host:port.
func Ask(ctx context.Context, address, token string) (*status.Status, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+apiStatus, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("nothing listens at %s: no penstock runs with this config, or its admin: is off", address)
	}
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %.200q", address, res.Status, strings.TrimSpace(string(text)))
	}
	var s status.Status
	if err := json.Unmarshal(text, &s); err != nil || s.Version == 0 {
		return nil, fmt.Errorf("%s answers, but not as penstock does", address)
	}
	return &s, nil
}
