package http

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"os"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// Values of the option proxy that are not URLs.
const (
	proxyNone = "none"
	proxyEnv  = "environment"
)

// proxy returns the function that gives net/http the proxy of a request; nil if there is none for
// any request.
func (o *Options) proxy() (func(*nethttp.Request) (*url.URL, error), error) {
	switch o.Proxy {
	case proxyNone:
		return nil, nil
	case "", proxyEnv:
		return nethttp.ProxyFromEnvironment, nil // none for localhost and loopback addresses
	}
	u, err := url.Parse(o.Proxy)
	switch {
	case err != nil, u.Host == "":
		return nil, errors.New("is neither none, environment nor a URL such as http://proxy:3128")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, errors.New("has another scheme than http://, https:// or socks5://")
	}
	return nethttp.ProxyURL(u), nil
}

// checkVariable returns an error if the first variable that is set holds no proxy: net/http would
// use none, silently.
func checkVariable(names ...string) error {
	for _, name := range names {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || u.Scheme == "" || u.Host == "" {
			u, err = url.Parse("http://" + value) // as net/http does
		}
		if err != nil || u.Hostname() == "" || strings.HasPrefix(u.Path, "//") {
			return fmt.Errorf("the variable %s is not a URL such as http://proxy:3128; correct it, or write proxy: none", name)
		}
		return nil
	}
	return nil
}

// FromEnvironment implements stream.EnvironmentUser: the proxy of each endpoint that has one.
func (o *Options) FromEnvironment() []string {
	proxy, err := o.proxy()
	endpoints, wrong := o.endpoints()
	if err != nil || wrong != nil || proxy == nil {
		return nil
	}
	var lines []string
	for _, e := range endpoints {
		if u, err := proxy(&nethttp.Request{URL: e.target}); err == nil && u != nil {
			lines = append(lines, fmt.Sprintf("%s through proxy %s", e.name, stream.MaskURLs(u.String())))
		}
	}
	return lines
}

// validateProxy checks the option, and the environment if it counts.
func (o *Options) validateProxy() error {
	_, err := o.proxy()
	if err == nil && (o.Proxy == "" || o.Proxy == proxyEnv) {
		err = errors.Join(checkVariable("HTTP_PROXY", "http_proxy"), checkVariable("HTTPS_PROXY", "https_proxy"))
	}
	if err != nil {
		return &stream.OptionError{Key: "proxy", Err: err}
	}
	return nil
}
