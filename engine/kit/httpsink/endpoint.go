package httpsink

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"slices"
	"strconv"
)

// endpoint is the address of one worker: a parsed URL with its credentials.
type endpoint struct {
	name   string // for logs and metrics: scheme, host and path
	target *url.URL
	// address to dial instead of the URL's host; "" means the URL's host
	address string
	auth    string // value of the header Authorization; "" for none
}

// endpoints checks all configured endpoints, and returns those that are URLs. Its errors never
// contain the password or the query of a URL.
func (o *Options) endpoints(f Format) ([]endpoint, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("missing: at least one URL, such as http://host:8080/in")
	}
	var all []endpoint
	names := make(map[string]int)
	for i, written := range o.Endpoints {
		var e endpoint
		err := written.check()
		if err == nil {
			e, err = o.endpoint(written.target(), f)
		}
		if err != nil {
			return nil, fmt.Errorf("endpoint %d: %w", i+1, err)
		}
		if slices.Index(o.Endpoints, written) != i {
			return nil, fmt.Errorf("endpoint %d, %s, is given twice", i+1, e.name)
		}
		if written.URL == "" {
			continue
		}
		if names[e.name]++; names[e.name] > 1 { // the URLs differ only in parts that are not shown
			e.name = fmt.Sprintf("%s (%d)", e.name, names[e.name])
		}
		all = append(all, e)
	}
	return all, nil
}

// endpoint parses one URL, and adds the path and the query parameters of the format.
func (o *Options) endpoint(text string, f Format) (endpoint, error) {
	e, err := parseEndpoint(text)
	if err != nil {
		return e, err
	}
	if e.auth != "" && (o.Basic != nil || o.Bearer != "" || o.BearerFile != "") {
		return e, errors.New("it has a user, but basic, bearer or bearer_file gives another " +
			"one; remove one of them")
	}
	f.aim(e.target)
	e.name = shown(e.target, e.target.Host)
	return e, nil
}

// shown returns the name of an endpoint for logs and metrics: without user, password and query.
func shown(target *url.URL, host string) string {
	return (&url.URL{Scheme: target.Scheme, Host: host, Path: target.Path,
		RawPath: target.RawPath}).String()
}

func parseEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return endpoint{}, errors.New("it is not a URL; write http://host:port/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("its scheme is %q; write http:// or https://", u.Scheme)
	case u.Hostname() == "":
		return endpoint{}, errors.New("it has no host; write http://host:port/path")
	case u.Port() != "" && !isPort(u.Port()):
		return endpoint{}, fmt.Errorf("%q is not a port; write a number from 1 to 65535", u.Port())
	case u.Fragment != "":
		return endpoint{}, errors.New("it has a fragment (#...), which is never sent; remove it")
	}
	e := endpoint{target: u}
	if u.User != nil {
		password, _ := u.User.Password()
		r := nethttp.Request{Header: make(nethttp.Header)}
		r.SetBasicAuth(u.User.Username(), password)
		e.auth = r.Header.Get("Authorization")
		u.User = nil
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return e, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// aim sets the format's path and query parameters in u, unless u already has them.
func (f *Format) aim(u *url.URL) {
	if u.Path == "/" && f.Path != "" {
		u.Path = f.Path
	}
	if len(f.Query) == 0 {
		return
	}
	q := u.Query()
	for key, values := range f.Query {
		if !q.Has(key) {
			q[key] = values
		}
	}
	u.RawQuery = q.Encode()
}
