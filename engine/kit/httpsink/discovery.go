package httpsink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/engine/kit/registry"
	"github.com/penstock-io/penstock/stream"
)

// Endpoint is one item of the option `endpoints`: a URL, or a name that stands for several
// addresses. Each address of a name is a worker of its own. In a config, an endpoint is a string
// (the URL) or a mapping.
type Endpoint struct {
	// URL is http://host:port/path. Empty means that DNS, SRV or NATS is set.
	URL string `yaml:"url" doc:"http://host:port/path; the text alone means the same"`
	// DNS is a host name. Each of its IPv4 and IPv6 addresses is a worker.
	DNS string `yaml:"dns" doc:"host name; each of its addresses is a worker"`
	// SRV is the whole name of SRV records. Each address of each target is a worker.
	SRV string `yaml:"srv" doc:"name of SRV records, such as _penstock._tcp.workers.internal"`
	// NATS is a NATS subject. Workers that listen on it answer with their addresses, and each
	// address is a worker.
	NATS string `yaml:"nats" doc:"subject at which workers register, see discovery.nats"`
	// Port is the port of all workers of the option DNS. It is required with DNS and forbidden
	// otherwise, because URLs, SRV records and the answers at a NATS subject contain the port.
	Port int `yaml:"port" min:"0" max:"65535" doc:"port, for dns"`
	// Scheme is http or https. Empty means http. With https, certificates must be valid for the
	// name of the option DNS or SRV or, with NATS, for the address of the worker. The option
	// `tls.server_name` replaces both.
	Scheme string `yaml:"scheme" enum:"http,https" doc:"scheme for dns, srv and nats; default http"`
	// Path is the URL path of the requests. Empty means /.
	Path string `yaml:"path" doc:"URL path, for dns, srv and nats, such as /in"`
}

// UnmarshalText sets the endpoint to the URL in text.
func (e *Endpoint) UnmarshalText(text []byte) error {
	*e = Endpoint{URL: string(text)}
	return nil
}

// MarshalText returns the URL. It returns nil if the endpoint is a name.
func (e Endpoint) MarshalText() ([]byte, error) {
	if e.URL == "" {
		return nil, nil
	}
	return []byte(e.URL), nil
}

// target returns the endpoint as a URL. If the endpoint is a name, the host of this URL is the
// name.
func (e *Endpoint) target() string {
	if e.URL != "" {
		return e.URL
	}
	host := cmp.Or(e.SRV, e.NATS, e.DNS+":"+strconv.Itoa(e.Port))
	return cmp.Or(e.Scheme, "http") + "://" + host + "/" + strings.TrimPrefix(e.Path, "/")
}

// check returns an error for options that contradict each other.
func (e *Endpoint) check() error {
	given := 0
	for _, text := range []string{e.URL, e.DNS, e.SRV, e.NATS} {
		if text != "" {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("write one of a URL, dns, srv and nats")
	case e.URL != "" && (e.Port != 0 || e.Scheme != "" || e.Path != ""):
		return errors.New("port, scheme and path need dns, srv or nats; write them into the URL")
	case e.DNS != "" && e.Port == 0:
		return errors.New("dns needs the port")
	case e.SRV != "" && e.Port != 0:
		return errors.New("the records of srv have the port; remove it")
	case e.NATS != "" && e.Port != 0:
		return errors.New("workers at nats register their ports; remove it")
	case e.NATS != "":
		if err := registry.CheckSubject(e.NATS); err != nil {
			return fmt.Errorf("nats %w", err)
		}
	}
	return nil
}

// DiscoveryOptions are the parameters of lookups in DNS and at NATS servers.
type DiscoveryOptions struct {
	// Interval is the time between two lookups of a name, from 100ms to 1h. It does not follow the
	// time to live of DNS records, which the system's resolver does not report.
	Interval time.Duration `yaml:"interval" doc:"time between two lookups"`
	// Resolver is the host:port of a DNS server. Empty means the DNS servers of the system.
	Resolver string `yaml:"resolver" doc:"HOST:PORT of a DNS server; default: those of the system"`
	// NATS has the NATS servers for endpoints with the option NATS.
	NATS natsaccess.Options `yaml:"nats" doc:"NATS servers, for endpoints with nats"`
}

func (o *DiscoveryOptions) validate() error {
	if o.Interval < 100*time.Millisecond || o.Interval > time.Hour {
		return stream.OptionErrorf("discovery.interval", "is %v; write 100ms to 1h", o.Interval)
	}
	if o.Resolver == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.Resolver); err != nil {
		return stream.OptionErrorf("discovery.resolver", "%q is not HOST:PORT", o.Resolver)
	}
	return nil
}

// resolver returns the configured resolver.
func (o *DiscoveryOptions) resolver() *net.Resolver {
	if o.Resolver == "" {
		return net.DefaultResolver
	}
	return &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, o.Resolver)
		}}
}

// maxDiscovered bounds the workers of one name; further addresses are not used.
const maxDiscovered = 1000

// discovered is an endpoint that is a DNS name or a NATS subject, with the workers that lookups
// have found. After Open, only the goroutine that runs lanes.run uses it.
type discovered struct {
	written Endpoint
	base    endpoint            // of its URL
	workers int                 // number of addresses in use
	failing bool                // the last lookup failed
	targets map[string][]string // addresses without port of each target of the SRV records

	directory *registry.Directory  // for a subject: the connection to the registry, once it is open
	answered  map[string]time.Time // for a subject: last response of each address
}

// silentFor is the number of intervals without a response after which a worker found through NATS
// is removed.
const silentFor = 3

// ask returns the addresses of a subject's workers that have responded within silentFor intervals.
func (d *discovered) ask(
	ctx context.Context, o *DiscoveryOptions, now time.Time, log *slog.Logger,
) (addresses []string, err error) {
	if d.directory == nil {
		if d.directory, err = registry.Open(o.NATS, d.written.NATS, log); err != nil {
			return nil, err
		}
		d.answered = make(map[string]time.Time)
	}
	heard, err := d.directory.Ask(ctx)
	if err != nil {
		return nil, err
	}
	for _, address := range heard {
		if _, _, err := net.SplitHostPort(address); err == nil {
			d.answered[address] = now
		}
	}
	maps.DeleteFunc(d.answered, func(_ string, at time.Time) bool {
		return now.Sub(at) >= silentFor*o.Interval
	})
	addresses = slices.Sorted(maps.Keys(d.answered))
	return addresses[:min(len(addresses), maxDiscovered)], nil
}

// close ends the connection to a registry.
func (d *discovered) close() {
	if d.directory != nil {
		d.directory.Close()
		d.directory = nil
	}
}

// discovered returns the names to look up. The options must be valid.
func (o *Options) discovered(f Format) (all []discovered) {
	for _, written := range o.Endpoints {
		if written.URL == "" {
			base, _ := o.endpoint(written.target(), f) // Check reports the error
			all = append(all, discovered{written: written, base: base})
		}
	}
	return all
}

// lookup returns the addresses of the name in a stable order, at most maxDiscovered of them. A name
// of SRV records can have several targets. These are host names, which lookup resolves as well. If
// the lookups of all targets fail, lookup returns only an error. If some fail, lookup returns
// addresses and an error. The addresses include the last known ones of the failed targets, unless
// DNS reports that the target does not exist.
func (d *discovered) lookup(ctx context.Context, r *net.Resolver) (addresses []string, err error) {
	targets := []*net.SRV{{Target: d.written.DNS, Port: uint16(d.written.Port)}}
	if d.written.SRV != "" {
		if _, targets, err = r.LookupSRV(ctx, "", "", d.written.SRV); err != nil {
			return nil, err
		}
	}
	before := d.targets
	d.targets = make(map[string][]string, len(targets))
	failed := 0
	for _, t := range targets {
		ips, lookupErr := r.LookupNetIP(ctx, "ip", strings.TrimSuffix(t.Target, "."))
		var found []string
		for _, ip := range ips {
			found = append(found, ip.Unmap().String())
		}
		if lookupErr != nil {
			err = lookupErr
			failed++
			if none, ok := errors.AsType[*net.DNSError](lookupErr); !ok || !none.IsNotFound {
				found = before[t.Target]
			}
		}
		d.targets[t.Target] = found
		for _, ip := range found {
			addresses = append(addresses, net.JoinHostPort(ip, strconv.Itoa(int(t.Port))))
		}
	}
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	if failed == len(targets) {
		return nil, err
	}
	return addresses[:min(len(addresses), maxDiscovered)], err
}

// endpointAt returns the endpoint of a worker that the lookup has found at address.
func (d *discovered) endpointAt(address string) endpoint {
	e := d.base
	e.address = address
	if d.written.NATS != "" { // a worker has no other name
		target := *e.target
		target.Host = address
		e.target = &target
	}
	e.name = shown(e.target, address)
	return e
}

// checkRegistry returns an error if an endpoint needs NATS servers and their options are missing or
// invalid, or if NATS servers are configured and no endpoint needs them.
func (o *Options) checkRegistry() error {
	named := slices.ContainsFunc(o.Endpoints, func(e Endpoint) bool { return e.NATS != "" })
	if named {
		return o.Discovery.NATS.Check("discovery.nats")
	}
	if o.Discovery.NATS != (natsaccess.Options{}) {
		const text = "needs an endpoint with nats; write endpoints: [{nats: SUBJECT}]"
		return stream.OptionErrorf("discovery.nats", "%s", text)
	}
	return nil
}
