// Package httpclient is the HTTP client generated from openapi.yaml. Package
// client wraps it; use that.
package httpclient
