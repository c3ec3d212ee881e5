// Package trace is what a request is known by on its way through doors, processes and
// shards: its id, for logs and answers, the code of the error it ended with, and the
// spans of OpenTelemetry that tell where its time went.
//
// A door gives each request a [Request] in its context ([With]); everything below takes
// it from there ([Of], [ID]). [Handler] writes the id into every line of the log that is
// logged with such a context, so that nobody else needs to.
//
// A [Tracer] begins spans at the doors; below a request [Start] and [Call] do, when there
// is one above, so that without a Tracer they cost a look at the context. Package
// trace/otlp exports them.
//
// Between processes id and trace go along with a call ([Inject], [Extract]); what it goes
// along by (headers of HTTP, of NATS) is the caller's.
//
// Invariants:
//
//	Q1  A line that is logged with the context of a request carries its id, in the process
//	    that was asked and in those it asked.
//	Q2  What comes from elsewhere is taken only when it can stand in logs and headers.
//	Q3  Spans hold names, numbers of things and codes; no values, filters, tokens or texts
//	    of errors.
//	Q4  A panic is told of by the runtime's own message or by its type ([PanicText]), not by
//	    its value.
//
// A Request may be used from any goroutine.
package trace
