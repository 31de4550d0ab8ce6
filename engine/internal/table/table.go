//penstock:pure

// Package table formats rows as text with aligned columns, for the tables that commands print.
package table

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text formats rows as columns. The parameter left is the number of columns that are aligned to the
// left. The columns after them are aligned to the right. All rows must have as many cells as the
// first one.
func Text(rows [][]string, left int) string {
	return Columns(rows, strings.Repeat("l", left)+strings.Repeat("r", len(rows[0])-left))
}

// Columns formats rows as columns. sides has a letter for each column: l aligns it to the left, and
// r to the right.
func Columns(rows [][]string, sides string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if sides[i] == 'l' {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Number formats v with at most four significant digits. From 1000 on, it formats v as an integer.
func Number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
