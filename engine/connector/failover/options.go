package failover

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// maxMembers is the maximum number of members of one failover sink.
const maxMembers = 16

// Options has the members in the order of preference. The config reader decodes each member as the
// config of a sink, and then calls Add.
type Options struct {
	members []stream.Member
}

// Add appends a member, which is a sink with its decoded options.
func (o *Options) Add(m stream.Member) { o.members = append(o.members, m) }

// Members returns the members in the order of preference.
func (o *Options) Members() []stream.Member { return slices.Clone(o.members) }

// Validate returns an error if the number of members is invalid, or if a member is a failover sink
// itself.
func (o *Options) Validate() error {
	var errs []error
	if n := len(o.members); n < 2 || n > maxMembers {
		return fmt.Errorf("the number of sinks is %d, want 2 to %d, the preferred one first",
			n, maxMembers)
	}
	for i, m := range o.members {
		if _, nested := m.Options.(*Options); nested {
			errs = append(errs, stream.OptionErrorf(fmt.Sprintf("[%d]", i),
				"is a failover itself; add its sinks to this list"))
		}
	}
	return errors.Join(errs...)
}

// PreferredBatch implements stream.Preferred. It returns the limits of the first member.
func (o *Options) PreferredBatch() stream.BatchLimits {
	if len(o.members) == 0 {
		return stream.BatchLimits{}
	}
	if p, ok := o.members[0].Options.(stream.Preferred); ok {
		return p.PreferredBatch()
	}
	return stream.BatchLimits{}
}

// FromEnvironment implements stream.EnvironmentUser. It returns the settings that the members take
// from the environment, such as a proxy.
func (o *Options) FromEnvironment() (all []string) {
	for _, m := range o.members {
		if user, ok := m.Options.(stream.EnvironmentUser); ok {
			all = append(all, user.FromEnvironment()...)
		}
	}
	return all
}
