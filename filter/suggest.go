package filter

import (
	"strings"

	millrace "github.com/millrace/millrace"
)

// nearest finds the column that a misspelt name most likely means.
func nearest(name string, cols []millrace.Column) (string, bool) {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = c.Name
	}
	return Nearest(name, names)
}

// Nearest finds which of some words a misspelt one most likely means.
func Nearest(word string, among []string) (string, bool) {
	if len(word) > millrace.MaxNameBytes {
		return "", false
	}
	best, found := min(2, len(word)/2)+1, ""
	for _, w := range among {
		if strings.EqualFold(w, word) {
			return w, true
		}
		if d := editDistance(word, w, best); d < best {
			best, found = d, w
		}
	}
	return found, found != ""
}

// editDistance is the number of letters to insert, remove or replace, or limit
// if it is that or more.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
