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

// whyUnsafe says what each of them gives up.
func whyUnsafe(setting string) string {
	switch setting {
	case "insecure":
		return "other machines are served without authentication, and whoever is there may do everything"
	case "insecure-nats":
		return "a power cut of several NATS servers can lose acknowledged rows"
	case "auth-jwks":
		return "whoever can read the development key can be anyone: it is for development"
	case "auth-audience":
		return "tokens that are for other services of the issuer are good here, since it is not set"
	case "auth-issuer":
		return "tokens of every issuer that has these keys are good here, since it is not set"
	case "tls-cert":
		return "tokens can be read on their way here, since it is not set"
	}
	return ""
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
