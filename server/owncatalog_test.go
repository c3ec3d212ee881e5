package server

import (
	"strings"
	"testing"
)

// What a catalog's client is told may be secret, and is not printed.
func TestSecretsAreNotPrinted(t *testing.T) {
	s, origins, err := Load(Sources{Flags: map[string]any{
		"lake-catalog": "rest", "lake-catalog-uri": "http://127.0.0.1:1", "lake-catalog-properties": []string{"token=hush", "warehouse=w", "credential=a:b=c"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := s.Print(&out, origins); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "hush") || strings.Contains(text, "a:b") || !strings.Contains(text, `lake-catalog-properties: "token=***,warehouse=w,credential=***"`) {
		t.Error(text)
	}
}
