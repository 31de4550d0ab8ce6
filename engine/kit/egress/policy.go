//penstock:pure

package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Policy determines which URLs penstock may call if they come from a record or a response and not
// from the config. The zero value allows none.
type Policy struct {
	Hosts   []string `yaml:"hosts" required:"true" doc:"allowed hosts of URLs; *.example.com means any name below example.com"`
	Ports   []int    `yaml:"ports" doc:"allowed ports of URLs; default: 443, and 80 with http: true"`
	HTTP    bool     `yaml:"http" doc:"allow http:// as well as https://"`
	Private bool     `yaml:"private" doc:"allow private and loopback addresses; link-local and metadata addresses are never allowed"`
}

// RefusedError means that a policy does not allow a URL or an address. No packet was sent to the
// target.
type RefusedError struct {
	// Target is the address or the URL. A URL is shown without user, password and query. A URL that
	// cannot be parsed is not shown.
	Target string
	Reason string
}

// Error names the target and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is not allowed: %s", e.Target, e.Reason)
}

// Validate returns an error if the policy allows no URL or has a malformed entry.
func (p *Policy) Validate() error {
	if len(p.Hosts) == 0 {
		return errors.New("hosts is empty, so no URL is allowed; add the allowed names")
	}
	for _, h := range p.Hosts {
		name, wild := strings.CutPrefix(h, "*.")
		if addr, err := netip.ParseAddr(h); err == nil && addr.Zone() == "" {
			continue
		}
		if reason := checkName(name); reason != "" {
			return fmt.Errorf("hosts: %q: %s", h, reason)
		}
		if wild && !strings.Contains(name, ".") {
			return fmt.Errorf("hosts: %q allows a whole top-level domain; write *.example.com", h)
		}
	}
	for _, n := range p.Ports {
		if n < 1 || n > 65535 {
			return fmt.Errorf("ports: %d is not a port", n)
		}
	}
	return nil
}

// maxURL is the maximum length of a URL in bytes.
const maxURL = 8 << 10

// unparsed is the target of a URL that is not parsed, because it may contain a password.
const unparsed = "the URL"

// Check parses a URL and checks it against the policy. It does not resolve the host name. It
// returns the URL to request, and its host:port. Every error is a *RefusedError.
func (p *Policy) Check(raw string) (*url.URL, string, error) {
	if raw == "" {
		return nil, "", &RefusedError{unparsed, "it is empty"}
	}
	if len(raw) > maxURL {
		return nil, "", &RefusedError{unparsed, fmt.Sprintf("it is longer than %d bytes", maxURL)}
	}
	for _, c := range []byte(raw) {
		if c <= ' ' || c >= 0x7F || c == '\\' {
			return nil, "", &RefusedError{unparsed, fmt.Sprintf("it has the byte %#x; escape it", c)}
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, "", &RefusedError{unparsed, "it cannot be parsed"} // err quotes the URL
	}
	shown := u.Scheme + "://" + u.Host + u.EscapedPath()
	refuse := func(format string, args ...any) (*url.URL, string, error) {
		return nil, "", &RefusedError{shown, fmt.Sprintf(format, args...)}
	}
	switch {
	case u.Scheme == "http" && !p.HTTP:
		return refuse("http:// needs http: true in the option allow")
	case u.Scheme != "https" && u.Scheme != "http", u.Opaque != "":
		return refuse("the scheme is not https")
	case u.User != nil:
		return refuse("it holds a user")
	}
	host, reason := p.checkHost(u.Hostname())
	if reason != "" {
		return refuse("%s", reason)
	}
	port, reason := p.checkPort(u)
	if reason != "" {
		return refuse("%s", reason)
	}
	u.Host = host
	if strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	address := u.Host + ":" + port
	if port != defaultPorts[u.Scheme] {
		u.Host = address
	}
	u.Fragment, u.RawFragment = "", ""
	return u, address, nil
}

var defaultPorts = map[string]string{"https": "443", "http": "80"}

func (p *Policy) checkPort(u *url.URL) (port, reason string) {
	port = u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", "the port is empty"
		}
		port = defaultPorts[u.Scheme]
	}
	n, err := strconv.Atoi(port)
	if err != nil || strconv.Itoa(n) != port {
		return "", "the port is not a number"
	}
	if slices.Contains(p.Ports, n) || len(p.Ports) == 0 && (n == 443 || n == 80 && p.HTTP) {
		return port, ""
	}
	return "", fmt.Sprintf("port %d is not listed", n)
}

// checkHost returns the host in lower case. If the host is not allowed, the second result is the
// reason.
func (p *Policy) checkHost(host string) (string, string) {
	host = strings.ToLower(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		for _, h := range p.Hosts {
			if listed, err := netip.ParseAddr(h); err == nil && listed == addr && addr.Zone() == "" {
				return host, ""
			}
		}
		return "", "an address must be listed itself"
	}
	if reason := checkName(host); reason != "" {
		return "", reason
	}
	for _, h := range p.Hosts {
		if allows(h, host) {
			return host, ""
		}
	}
	return "", "the host is not listed"
}

// allows reports whether an entry of Hosts allows a host. The host must be in lower case.
func allows(entry, host string) bool {
	entry = strings.ToLower(entry)
	if domain, wild := strings.CutPrefix(entry, "*"); wild {
		return strings.HasSuffix(host, domain) && len(host) > len(domain)
	}
	return entry == host
}

// Patterns returns those entries of Hosts that allow all names below a domain.
func (p *Policy) Patterns() (out []string) {
	for _, h := range p.Hosts {
		if strings.HasPrefix(h, "*.") {
			out = append(out, h)
		}
	}
	return out
}

// Pattern returns the first entry of Hosts that allows the host in address, if this entry is a
// pattern such as *.example.com. Otherwise it returns "". address is a host:port as returned by
// Check.
func (p *Policy) Pattern(address string) string {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = address[:i]
	}
	for _, h := range p.Hosts {
		if allows(h, host) {
			if strings.HasPrefix(h, "*.") {
				return h
			}
			return ""
		}
	}
	return ""
}

// checkName returns the reason why a host name is malformed, or "". A name whose last part is a
// number is malformed, because resolvers treat names such as 127.1 or 0x7f000001 as addresses.
func checkName(name string) string {
	if name == "" || len(name) > 253 {
		return "the host is empty or too long"
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return "the host has an empty or too long label"
		}
		for _, c := range []byte(l) {
			if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "the host has other bytes than letters, digits, '-' and '_'; write other " +
					"names in their form xn--"
			}
		}
	}
	last := strings.ToLower(labels[len(labels)-1])
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") &&
		strings.Trim(last[2:], "0123456789abcdef") == "" {
		return "the host ends in a number, as an address does"
	}
	return ""
}

// networks that are not allowed, with the reasons, and networks that the option Private allows
var (
	never = prefixes(map[string]string{
		"0.0.0.0/8": "this network", "169.254.0.0/16": "link-local", "192.0.0.0/24": "protocol assignments",
		"192.0.2.0/24": "documentation", "192.88.99.0/24": "6to4 relay", "198.18.0.0/15": "benchmarks",
		"198.51.100.0/24": "documentation", "203.0.113.0/24": "documentation", "224.0.0.0/3": "multicast or reserved",
		"100.100.100.200/32": "metadata service", "168.63.129.16/32": "metadata service",
		"::/128": "unspecified", "::/96": "IPv4-compatible", "::ffff:0:0/96": "IPv4-mapped",
		"64:ff9b::/96": "NAT64", "64:ff9b:1::/48": "NAT64",
		"100::/64": "discard", "2001::/23": "Teredo or protocol assignments",
		"2001:db8::/32": "documentation", "2002::/16": "6to4",
		"3fff::/20": "documentation", "5f00::/16": "segment routing", "fe80::/10": "link-local",
		"fec0::/10": "site-local",
		"ff00::/8":  "multicast", "fd00:ec2::/32": "metadata service", "fd20:ce::/32": "metadata service",
	})
	private = prefixes(map[string]string{
		"10.0.0.0/8": "private", "100.64.0.0/10": "shared", "127.0.0.0/8": "loopback", "172.16.0.0/12": "private",
		"192.168.0.0/16": "private", "::1/128": "loopback", "fc00::/7": "private",
	})
)

type block struct {
	prefix netip.Prefix
	reason string
}

func prefixes(of map[string]string) (out []block) {
	for text, reason := range of {
		out = append(out, block{netip.MustParsePrefix(text), reason})
	}
	return out
}

// CheckAddress returns a *RefusedError if the policy does not allow requests to the address.
func (p *Policy) CheckAddress(a netip.Addr) error {
	refuse := func(reason string) error { return &RefusedError{"address " + a.String(), reason} }
	if a.Zone() != "" {
		return refuse("it has a zone")
	}
	for _, b := range private {
		if b.prefix.Contains(a) && p.Private && !contains(metadata, a) {
			return nil
		}
	}
	for _, list := range [][]block{never, private} {
		for _, b := range list {
			if b.prefix.Contains(a) {
				return refuse(b.reason)
			}
		}
	}
	if !a.IsGlobalUnicast() {
		return refuse("it is not a global address")
	}
	return nil
}

// metadata has the addresses of cloud metadata services that are in private networks.
var metadata = prefixes(map[string]string{"100.100.100.200/32": "", "fd00:ec2::/32": "", "fd20:ce::/32": ""})

func contains(list []block, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(b block) bool { return b.prefix.Contains(a) })
}
