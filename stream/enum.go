package stream

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// CheckEnums checks the values of the options that have a tag `enum`, which lists the allowed
// words. options is a pointer to a struct as returned by [Component].Options. Embedded structs are
// included. An empty text is an error unless its key is in optional. The error is an [OptionError],
// or joins one for each wrong option. The engine calls CheckEnums for the options in a config. For
// options that are set in Go, call it in Validate.
func CheckEnums(options any, optional ...string) error {
	v := reflect.ValueOf(options).Elem()
	var errs []error
	for _, f := range reflect.VisibleFields(v.Type()) {
		words, ok := f.Tag.Lookup("enum")
		if !ok || f.Type.Kind() != reflect.String {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		got, known := v.FieldByIndex(f.Index).String(), strings.Split(words, ",")
		if slices.Contains(known, got) || got == "" && slices.Contains(optional, key) {
			continue
		}
		last := len(known) - 1
		errs = append(errs, &OptionError{
			Key: key, Err: fmt.Errorf("is %q, want %s or %s", got, strings.Join(known[:last], ", "),
				known[last]),
		})
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
