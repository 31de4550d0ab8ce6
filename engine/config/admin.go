package config

import (
	"errors"
	"fmt"
	"net"
	"reflect"

	"go.yaml.in/yaml/v4"
)

// Admin configures the HTTP server for metrics, health and status. In a config, the value of the
// key `admin` is an address, "off", or a mapping of these settings.
type Admin struct {
	// Address is host:port; port 0 uses a free port. The only host name that is allowed is
	// localhost. Without a token, the host must be localhost or a loopback address. Empty or
	// AdminOff disables the server.
	Address string `yaml:"address" required:"true" doc:"host:port, such as 127.0.0.1:7070, or off to disable the server"`
	// Token is the bearer token that requests need, except for pages without data. Empty means
	// none.
	Token string `yaml:"token" secret:"true" doc:"required bearer token; mandatory unless the address is a loopback address"`
	// DeliveryTokens is the path of a JSON file with the receivers of notifications and their
	// tokens: {"NAME": {"token": "...", "hosts": ["..."]}}. A receiver in this file may query the
	// parked deliveries to its hosts. The file is read again when it changes.
	DeliveryTokens string `yaml:"delivery_tokens" path:"true" doc:"JSON file with tokens of receivers"`
	// Hosts are the host names that a Host header may have, in addition to localhost and loopback
	// addresses. If a token is set and Hosts is empty, any host is accepted.
	Hosts []string `yaml:"hosts" doc:"accepted host names besides localhost"`
	// Pprof enables /debug/pprof.
	Pprof bool `yaml:"pprof" doc:"also serve /debug/pprof"`
}

// AdminOff is the address that disables the server.
const AdminOff = "off"

// On reports whether the server is enabled.
func (a *Admin) On() bool { return a.Address != "" && a.Address != AdminOff }

// UnmarshalText sets the address.
func (a *Admin) UnmarshalText(text []byte) error {
	a.Address = string(text)
	return nil
}

// Check returns an error if the address is not valid, or if DeliveryTokens is set without Token.
func (a *Admin) Check() error {
	if !a.On() {
		return nil
	}
	if a.DeliveryTokens != "" && a.Token == "" {
		return errors.New("delivery_tokens needs token: without it everyone can read all " +
			"deliveries")
	}
	return CheckAddress(a.Address, a.Token != "")
}

// CheckAddress returns an error if address is not host:port with a numeric port, or if the host is
// a name other than localhost. If token is false (no token is set), the host must be localhost or a
// loopback address.
func CheckAddress(address string, token bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port, such as 127.0.0.1:7070, or off", address)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || port != fmt.Sprint(n) {
		return fmt.Errorf("%q is not a port; write a number from 0 to 65535", port)
	}
	ip := net.ParseIP(host)
	switch {
	case host != "" && ip == nil && host != "localhost":
		return fmt.Errorf("%q is neither an IP address nor localhost; a name could later "+
			"resolve to another machine", host)
	case !token && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("%s can be reached from other machines; set a token, or listen on "+
			"127.0.0.1", address)
	}
	return nil
}

// plan returns the value of the key as YAML: AdminOff or a mapping.
func (a *Admin) plan() *yaml.Node {
	if !a.On() {
		return text(AdminOff, false)
	}
	return describe(reflect.ValueOf(*a), false)
}
