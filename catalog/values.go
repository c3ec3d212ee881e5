package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	millrace "github.com/millrace/millrace"
)

// The values of properties: each function returns the normal spelling, or an
// error that says what a value looks like.

func text(v string) (string, error) {
	if v == "" {
		return "", errors.New("not empty")
	}
	return v, nil
}

func boolean(v string) (string, error) {
	if l := strings.ToLower(v); l == "true" || l == "false" {
		return l, nil
	}
	return "", errors.New("true or false")
}

func number(v string) (string, error) {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return "", errors.New("a whole number from 0")
	}
	return strconv.FormatUint(n, 10), nil
}

func duration(v string) (string, error) {
	d, err := millrace.ParseDuration(v)
	if err != nil {
		return "", errors.New("a duration such as 30s, 5min, 12h or 7d")
	}
	return millrace.FormatDuration(d), nil
}

// durationWithin takes durations from one to another.
func durationWithin(least, most time.Duration) func(string) (string, error) {
	return func(v string) (string, error) {
		d, err := millrace.ParseDuration(v)
		if err != nil || d < least || d > most {
			return "", fmt.Errorf("a duration from %s to %s", millrace.FormatDuration(least), millrace.FormatDuration(most))
		}
		return millrace.FormatDuration(d), nil
	}
}

// sizeWithin takes numbers of bytes from one to another.
func sizeWithin(least, most int64) func(string) (string, error) {
	return func(v string) (string, error) {
		n, err := millrace.ParseSize(v)
		if err != nil || n < least || n > most {
			return "", fmt.Errorf("a size from %s to %s, such as 128MiB", millrace.FormatSize(least), millrace.FormatSize(most))
		}
		return millrace.FormatSize(n), nil
	}
}

// oneOf takes the given words, in any case.
func oneOf(words ...string) func(string) (string, error) {
	return func(v string) (string, error) {
		for _, w := range words {
			if strings.EqualFold(v, w) {
				return w, nil
			}
		}
		return "", errors.New("one of " + strings.Join(words, ", "))
	}
}

func aggregateName(v string) (string, error) {
	return oneOf("sum", "product", "min", "max", "last_value", "last_value_ignore_nulls", "first_value",
		"first_value_ignore_nulls", "listagg", "bool_and", "bool_or")(v)
}
