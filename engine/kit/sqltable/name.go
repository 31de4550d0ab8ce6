//penstock:pure

package sqltable

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote returns name as a quoted SQL identifier. The name must be valid according to CheckName or
// Usable.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// QuoteAll quotes names and joins them with commas.
func QuoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = Quote(n)
	}
	return strings.Join(quoted, ",")
}

// CheckName returns an error if name cannot be a column name in the database.
func (d *Dialect) CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty; a name has at least one character")
	case d.MaxName > 0 && len(name) > d.MaxName:
		return fmt.Errorf("has %d bytes, but the database allows names of at most %d",
			len(name), d.MaxName)
	case strings.IndexByte(name, 0) >= 0:
		return errors.New("has a NUL byte, which is not allowed in a name")
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	}
	return nil
}

// Name is the name of a table with its schema.
type Name struct{ Schema, Table string } // a Schema of "" means the database's default

// String returns the name as SQL.
func (n Name) String() string {
	if n.Schema == "" {
		return Quote(n.Table)
	}
	return Quote(n.Schema) + "." + Quote(n.Table)
}

// Beside returns the name of another table in the same schema.
func (n Name) Beside(table string) Name { return Name{n.Schema, table} }

// ParseName parses "table". If schemas is set, it also parses "schema.table". Each part may be in
// double quotes, with "" for a quote inside. Names without quotes keep their case.
func ParseName(text string, schemas bool) (Name, error) {
	var parts []string
	for rest := text; ; {
		part, after, err := namePart(rest, schemas)
		if err != nil {
			return Name{}, err
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		rest = after[1:]
	}
	switch {
	case len(parts) == 1:
		return Name{Table: parts[0]}, nil
	case len(parts) == 2 && schemas:
		return Name{parts[0], parts[1]}, nil
	}
	return Name{}, fmt.Errorf("%q has too many dots; quote a name that contains one", text)
}

func namePart(text string, schemas bool) (part, after string, err error) {
	if !strings.HasPrefix(text, `"`) {
		if i := strings.IndexByte(text, '.'); schemas && i >= 0 {
			return text[:i], text[i:], nil
		}
		return text, "", nil
	}
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '"' {
			out.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '"' {
			out.WriteByte('"')
			i++
			continue
		}
		if after = text[i+1:]; after != "" && !strings.HasPrefix(after, ".") {
			return "", "", fmt.Errorf("%q continues after the closing quote", text)
		}
		return out.String(), after, nil
	}
	return "", "", fmt.Errorf("%q has no closing quote", text)
}
