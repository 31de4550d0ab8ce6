package intake

import (
	"github.com/penstock-io/penstock/stream"
)

// The values of the option `delimiter`, the character that ends a record.
const (
	ByNewline = "newline"
	ByNUL     = "nul"
)

// CheckDelimiter returns an error if value is not valid for the option `delimiter`. key is the
// option's key in the config.
func CheckDelimiter(key, value string) error {
	if value != ByNewline && value != ByNUL {
		return stream.OptionErrorf(key, "is %q, want %s or %s", value, ByNewline, ByNUL)
	}
	return nil
}

// Delimiter returns the byte that a valid option `delimiter` names.
func Delimiter(value string) byte {
	if value == ByNUL {
		return 0
	}
	return '\n'
}

// MinMemory is the minimum of the option `memory`, which limits the bytes of an intake. It is
// enough for one read of short records.
const MinMemory stream.Size = 8 << 20

// CheckSizes returns an error if the options `max_record` and `memory` are not valid. It is for
// sources that cut a stream into records. key is the key of the option `memory`.
func CheckSizes(key string, maxRecord, memory stream.Size) error {
	switch {
	case memory < MinMemory:
		return stream.OptionErrorf(key, "is %v, want %v or more", memory, MinMemory)
	case memory > MaxSubmission:
		return stream.OptionErrorf(key, "is %v, want less than 1GiB", memory)
	case maxRecord < 1 || maxRecord > memory/4:
		return stream.OptionErrorf("max_record", "is %v, want 1B to a quarter of %s, %v", maxRecord,
			key, memory/4)
	}
	return nil
}
