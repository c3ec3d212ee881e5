package server

// unsafe lists the settings that make the server less safe than a default start.
func (s *Settings) unsafe() []string {
	var out []string
	if s.Insecure {
		out = append(out, "insecure")
	}
	if s.InsecureNATS {
		out = append(out, "insecure-nats")
	}
	return append(out, s.looseCallers()...)
}

// unsafeSetting says of a setting that makes the server less safe what it gives up, and what
// to do instead.
type unsafeSetting struct{ why, advice string }

// unsafeSettings are all that unsafe may list.
var unsafeSettings = map[string]unsafeSetting{
	"insecure": {
		"other machines are served without authentication, and whoever is there may do everything",
		"turn authentication on with --auth-jwks, or listen on loopback addresses, and leave --insecure out",
	},
	"insecure-nats": {
		"NATS servers that do not sync what they write are taken: a power cut of several of them can lose acknowledged rows",
		"set jetstream.sync_interval to always on each of them, and leave --insecure-nats out",
	},
	"auth-jwks": {
		"the development key is trusted: whoever can read it can be anyone",
		"take the keys of an identity provider",
	},
	"auth-audience": {
		"tokens that are for other services of the issuer are good here, since it is not set",
		"set --auth-audience to what the issuer writes into tokens for Millrace",
	},
	"auth-issuer": {
		"tokens of every issuer that has these keys are good here, since it is not set",
		"set --auth-issuer to the issuer's name, as it stands in tokens (iss)",
	},
	"tls-cert": {
		"tokens can be read on their way, since other machines are served without TLS",
		"set --tls-cert and --tls-key, or listen on loopback behind something that speaks TLS",
	},
}

// authentication says in words who is asked for what.
func (s *Settings) authentication() string {
	switch {
	case s.AuthJWKS != "" && s.TLSClientCA != "":
		return "tokens or client certificates"
	case s.AuthJWKS != "":
		return "tokens"
	case s.TLSClientCA != "":
		return "client certificates"
	case s.Insecure:
		return "off: whoever can reach it may do everything"
	}
	return "off: this machine alone is served, and everybody on it may do everything"
}
