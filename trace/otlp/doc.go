// Package otlp exports spans to an OpenTelemetry collector, by OTLP over gRPC or HTTP.
//
// It leaves to others what is traced (package trace and who uses it). Which requests are
// sampled, and headers that the collector wants, OpenTelemetry's own variables say
// (OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS …); without them every request is
// traced whose caller does not say otherwise.
//
// Invariants:
//
//	O1  Nothing waits for the collector: spans that it does not take in time are dropped, and
//	    counted.
//	O2  At most 2,048 spans wait to be exported.
//
// An Exporter may be used from any goroutine.
package otlp
