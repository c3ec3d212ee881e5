package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each setting that makes a server less safe has its reason and its advice, and no other has.
func TestUnsafeSettings(t *testing.T) {
	var listed []string
	for _, set := range []func(*Settings){
		func(s *Settings) {
			s.Insecure, s.InsecureNATS, s.AuthJWKS, s.HTTPAddr = true, true, devKeys, "0.0.0.0:1"
		},
		func(s *Settings) { s.AuthJWKS = "file:/keys" },
	} {
		s := testSettings(t, t.TempDir())
		set(s)
		listed = append(listed, s.unsafe()...)
	}
	for _, name := range listed {
		require.NotEmpty(t, unsafeSettings[name].why, name)
		require.NotEmpty(t, unsafeSettings[name].advice, name)
	}
	for name := range unsafeSettings {
		require.True(t, slices.Contains(listed, name), name)
	}
}
