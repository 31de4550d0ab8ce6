package config

import (
	"encoding"
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

// sameValue reports whether two values of an option are equal. Of a struct with fields that a
// config can set, only these fields are compared. The other fields are derived from them and may
// differ although the options are equal, for example two compilations of the same expression. Any
// other value with a text form is compared as text.
func sameValue(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	t := a.Type()
	switch {
	case t.Kind() == reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.Pointer() == b.Pointer() {
			return a.Pointer() == b.Pointer()
		}
		return sameValue(a.Elem(), b.Elem())
	case !hasOptions(t) && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		textA, errA := a.Interface().(encoding.TextMarshaler).MarshalText()
		textB, errB := b.Interface().(encoding.TextMarshaler).MarshalText()
		return errA == nil && errB == nil && string(textA) == string(textB)
	case hasOptions(t):
		return sameFields(a, b)
	case isPairs(t):
		return a.Len() == b.Len() && all(a.Len(), func(i int) bool {
			x, y := a.Index(i), b.Index(i)
			return sameValue(x.Field(0), y.Field(0)) && sameValue(x.Field(1), y.Field(1))
		})
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return a.Len() == b.Len() && all(a.Len(), func(i int) bool {
			return sameValue(a.Index(i), b.Index(i))
		})
	case t.Kind() == reflect.Map:
		keys := a.MapKeys()
		return a.Len() == b.Len() && all(len(keys), func(i int) bool {
			return sameValue(a.MapIndex(keys[i]), b.MapIndex(keys[i]))
		})
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// sameFields compares the fields of two structs of one type that a config can set.
func sameFields(a, b reflect.Value) bool {
	keys, fields := fieldsOf(a.Type())
	return all(len(keys), func(i int) bool {
		index := fields[keys[i]].Index
		return sameValue(a.FieldByIndex(index), b.FieldByIndex(index))
	})
}

// all reports whether ok returns true for each i from 0 to n-1.
func all(n int, ok func(i int) bool) bool {
	for i := range n {
		if !ok(i) {
			return false
		}
	}
	return true
}
