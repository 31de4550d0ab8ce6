package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// Cluster is the value of the key `state.nats`. It configures a NATS key-value bucket, in which the
// processes of a cluster share their progress. All these processes have the same pipelines. The
// zero value means no cluster.
type Cluster struct {
	// URL names the servers, separated by commas. Empty means no cluster.
	URL string `yaml:"url" required:"true" doc:"servers, such as nats://nats-1:4222; several with commas"`
	// Bucket is the name of the key-value bucket for progress and leases. It is created if missing.
	// Default penstock.
	Bucket string `yaml:"bucket" doc:"key-value bucket of progress and leases, created if missing"`
	// Replicas is the number of servers that store the bucket, 1 to 5. It is used when the bucket
	// is created. Default 3.
	Replicas int `yaml:"replicas" min:"1" max:"5" doc:"copies of a new bucket; of 3, one may be lost"`
	// Node is the name of this process in status and logs. Default: the host name.
	Node string `yaml:"node" doc:"name of this process; default: the host's name"`
	// Credentials is the path of a file with a JWT and its key (.creds).
	Credentials string `yaml:"credentials" path:"true" doc:"file with JWT and key (.creds)"`
	// User and Password are the login. Token replaces them.
	User     string `yaml:"user" doc:"name of a user"`
	Password string `yaml:"password" secret:"true" doc:"password of the user"`
	Token    string `yaml:"token" secret:"true" doc:"token, in place of user and password"`
	// TLS names the certificate files.
	TLS ClusterTLS `yaml:"tls" doc:"certificates; tls:// alone trusts the system's authorities"`
}

// ClusterTLS are the certificate files for connections to the servers of a Cluster.
type ClusterTLS struct {
	CA   string `yaml:"ca" path:"true" doc:"PEM file of the authorities to trust, not the system's"`
	Cert string `yaml:"cert" path:"true" doc:"PEM file of the client certificate"`
	Key  string `yaml:"key" path:"true" doc:"PEM file of its key"`
}

// stateForm is the value of the key `state` as a mapping. Its key nats configures the cluster.
// Without it, the mapping sets only the directory.
type stateForm struct {
	Dir  string  `yaml:"dir" path:"true" doc:"dead letters and, without nats, checkpoints"`
	NATS Cluster `yaml:"nats" doc:"bucket with the progress of shared pipelines"`
}

// DefaultCluster returns the defaults.
func DefaultCluster() Cluster { return Cluster{Bucket: "penstock", Replicas: 3} }

// On reports whether the process belongs to a cluster.
func (c *Cluster) On() bool { return c.URL != "" }

// Equal reports whether c and other are the same.
func (c *Cluster) Equal(other *Cluster) bool {
	return sameValue(reflect.ValueOf(*c), reflect.ValueOf(*other))
}

// Name returns Node, or its default.
func (c *Cluster) Name() string {
	if c.Node != "" {
		return c.Node
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

var (
	bucketForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	nodeForm   = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)
)

// Check returns an error if an option is wrong. It reads no file.
func (c *Cluster) Check() error {
	if *c == (Cluster{}) {
		return nil
	}
	if c.URL == "" {
		return errors.New("url is missing; add the servers, such as nats://nats-1:4222")
	}
	for text := range strings.SplitSeq(c.URL, ",") {
		if err := checkServer(strings.TrimSpace(text)); err != nil {
			return fmt.Errorf("url: %w", err)
		}
	}
	switch {
	case !bucketForm.MatchString(c.Bucket):
		return fmt.Errorf("bucket is %q; it is 1 to 64 letters, digits, - and _", c.Bucket)
	case !nodeForm.MatchString(c.Node):
		return fmt.Errorf("node is %q; want up to 64 letters, digits, '.', - and _", c.Node)
	case c.Replicas < 1 || c.Replicas > 5:
		return fmt.Errorf("replicas is %d; want 1 to 5; with 3 a server may fail", c.Replicas)
	case c.Password != "" && c.User == "":
		return errors.New("user is missing: add the user of password")
	case c.Credentials != "" && c.User+c.Token != "" || c.User != "" && c.Token != "":
		return errors.New("credentials, user and token exclude each other; give one of them")
	case (c.TLS.Cert == "") != (c.TLS.Key == ""):
		return errors.New("tls.cert and tls.key belong together; give both or none")
	}
	return nil
}

func checkServer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("an entry is not a URL such as nats://nats-1:4222")
	case u.User != nil:
		return errors.New("an entry has a user or password; use the options of these names")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return fmt.Errorf("the entry of %s has the scheme %s, want nats or tls", u.Host, u.Scheme)
	}
	return nil
}

// readState reads the key `state`: a directory, or a mapping with a directory and a cluster.
func readState(l *loader, n *yaml.Node, f *Config) {
	if n.Kind != yaml.MappingNode {
		l.decode(n, reflect.ValueOf(&f.State).Elem(), option{name: "state", path: true})
	} else {
		form := stateForm{Dir: f.State, NATS: DefaultCluster()}
		if !l.decode(n, reflect.ValueOf(&form).Elem(), option{name: "state"}) {
			return
		}
		f.State = form.Dir
		if valueOf(n, "nats") != nil {
			f.Cluster = form.NATS
		}
		if err := f.Cluster.Check(); err != nil {
			l.fail(n, "state.nats: %v", err)
		}
	}
	if f.State == "" {
		l.fail(n, "state is empty; name a directory, or remove the key for ./state beside this "+
			"file")
	}
}

// statePlan returns the value of the key `state` as YAML.
func (c *Config) statePlan() *yaml.Node {
	if !c.Cluster.On() {
		return text(c.State, false)
	}
	return describe(reflect.ValueOf(stateForm{Dir: c.State, NATS: c.Cluster}), false)
}

// schemaOfState describes the key `state`.
func schemaOfState() object {
	dir := textSchema().with("description", "directory of checkpoints and dead letters")
	dir = dir.with("default", "./state")
	form := schemaOf(reflect.ValueOf(stateForm{NATS: DefaultCluster()}),
		option{doc: "directory of this process, and a bucket if processes share pipelines"})
	return anyOf(dir, form)
}

// CheckShared returns an error if the source of the pipeline does not allow the processes of a
// cluster to share the pipeline. assigned means that a broker assigns the partitions of the source
// to the processes. Any such source is allowed.
func (p *Pipeline) CheckShared(source any, assigned bool) error {
	if assigned {
		return nil
	}
	shared, ok := source.(stream.SharedSource)
	reason := "its data or its progress exists on one machine only"
	if ok {
		err := shared.Shared()
		if err == nil {
			return nil
		}
		reason = err.Error()
	}
	return &Error{
		Place: p.Source.Where,
		Message: fmt.Sprintf("source %s cannot be shared with `state.nats`: %s",
			p.Source.Component.Name, reason),
		Hint: "move this pipeline to a separate config with a `state:` directory, or read from " +
			"kafka, nats, http_poll or a table of PostgreSQL or MySQL",
	}
}
