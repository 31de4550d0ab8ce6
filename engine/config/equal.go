package config

import (
	"reflect"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// Equal reports whether r and other configure the same route. It compares names, components and all
// options, including secrets. It ignores positions in the file. Constructors of components cannot
// be compared, so two components count as the same if they have the same role and name.
func (r *Route) Equal(other *Route) bool {
	return r.Name == other.Name && r.Sink.Equal(other.Sink) &&
		slices.EqualFunc(r.Processors, other.Processors, Use.Equal) &&
		r.Batch == other.Batch && r.Flow == other.Flow && r.Retry == other.Retry &&
		r.DeadLetters == other.DeadLetters && r.Guard == other.Guard &&
		r.Checkpoint == other.Checkpoint &&
		r.Memory == other.Memory && r.Drain == other.Drain
}

// Equal reports whether u and other are the same component with the same options, as [Route.Equal]
// does.
func (u Use) Equal(other Use) bool {
	if _, ok := u.Options.(stream.Composite); ok {
		return u.Component.Name == other.Component.Name &&
			slices.EqualFunc(u.ends(), other.ends(), Use.Equal)
	}
	return u.Component.Role == other.Component.Role && u.Component.Name == other.Component.Name &&
		sameValue(reflect.ValueOf(u.Options), reflect.ValueOf(other.Options))
}

// Equal reports whether a and other have the same address and settings.
func (a *Admin) Equal(other *Admin) bool {
	return a.On() == other.On() &&
		(!a.On() || sameValue(reflect.ValueOf(*a), reflect.ValueOf(*other)))
}

// sameValue reports whether two values of an option are equal. It compares their descriptions, and
// thus ignores fields that a config cannot set. These are derived from the other fields and may
// differ although the options are equal, for example two compilations of the same expression. A
// struct without fields that a config can set is compared as a whole.
func sameValue(a, b reflect.Value) bool {
	switch {
	case !a.IsValid() || !b.IsValid():
		return a.IsValid() == b.IsValid()
	case a.Type() != b.Type():
		return false
	case a.Kind() == reflect.Pointer && (a.IsNil() || b.IsNil()):
		return a.IsNil() == b.IsNil()
	case a.Kind() == reflect.Pointer:
		return sameValue(a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct && !hasOptions(a.Type()) && !a.Type().Implements(marshalerType):
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
	return reflect.DeepEqual(describe(a, maskNone), describe(b, maskNone))
}
