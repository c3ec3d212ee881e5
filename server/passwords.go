package server

import "strings"

// checkPasswords refuses addresses with a user or a password in them, where such are of no
// use: they would stand in logs, in errors and in what config print shows.
func (s *Settings) checkPasswords() error {
	for _, of := range []struct{ name, value, instead string }{
		{"lake-uri", s.LakeURI, "credentials are those of AWS's tools: environment, files, roles"},
		{"remote-uri", s.RemoteURI, "credentials are those of AWS's tools: environment, files, roles"},
		{"s3-endpoint", s.S3Endpoint, "credentials are those of AWS's tools: environment, files, roles"},
		{"lake-catalog-uri", s.LakeCatalogURI, "credentials are lake-catalog-properties, as token=…"},
		{"otlp-endpoint", s.OTLPEndpoint, "headers are set by OTEL_EXPORTER_OTLP_HEADERS"},
	} {
		_, rest, _ := strings.Cut(of.value, "://")
		if authority, _, _ := strings.Cut(rest, "/"); strings.Contains(authority, "@") {
			return wrong(of.name, "holds a user or a password, which would stand in logs: %s", of.instead)
		}
	}
	return nil
}
