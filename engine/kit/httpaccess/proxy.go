package httpaccess

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"os"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// The values of the option proxy that are not URLs.
const (
	ProxyNone        = "none"
	ProxyEnvironment = "environment"
)

// Proxy returns the function for the field Proxy of an http.Transport, given the value of the
// option `proxy`. The function is nil if requests use no proxy.
func Proxy(option string) (func(*nethttp.Request) (*url.URL, error), error) {
	switch option {
	case ProxyNone:
		return nil, nil
	case "", ProxyEnvironment:
		return nethttp.ProxyFromEnvironment, nil // none for localhost and loopback addresses
	}
	u, err := url.Parse(option)
	switch {
	case err != nil, u.Host == "":
		return nil, errors.New("is neither none, environment nor a URL such as http://proxy:3128")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, errors.New("has another scheme than http://, https:// or socks5://")
	}
	return nethttp.ProxyURL(u), nil
}

// checkVariable checks the first of the named environment variables that is not empty. It returns
// an error if the value is neither the URL nor the host of a proxy. Without this check, net/http
// would use no proxy and report nothing.
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
			return fmt.Errorf("the variable %s is not a URL such as http://proxy:3128; correct "+
				"it, or write proxy: none", name)
		}
		return nil
	}
	return nil
}

// CheckProxy returns an error for an invalid value of the option `proxy`. If the value is empty or
// "environment", CheckProxy also checks the environment variables HTTP_PROXY and HTTPS_PROXY (or
// their names in lower case).
func CheckProxy(option string) error {
	_, err := Proxy(option)
	if err == nil && (option == "" || option == ProxyEnvironment) {
		err = errors.Join(checkVariable("HTTP_PROXY", "http_proxy"),
			checkVariable("HTTPS_PROXY", "https_proxy"))
	}
	if err != nil {
		return &stream.OptionError{Key: "proxy", Err: err}
	}
	return nil
}
