package tokentest

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Broken is a way to show no good token.
type Broken struct {
	Name string
	// Authorization are the headers.
	Authorization []string
}

// Ring is the keys of an issuer, some of them in its set.
type Ring struct {
	RSA, PSS, EC, Ed *Key // in the set
	Enc              *Key // in the set, for encryption
	Gone             *Key // was in the set
	Stranger         *Key // of another issuer
}

// NewRing makes the keys.
func NewRing() *Ring {
	return &Ring{
		RSA: NewKey("rsa", "RS256"), PSS: NewKey("pss", "PS256"), EC: NewKey("ec", "ES256"), Ed: NewKey("ed", "EdDSA"),
		Enc: NewKey("enc", "RS256"), Gone: NewKey("gone", "ES256"), Stranger: NewKey("stranger", "RS256"),
	}
}

// Set is the issuer's set of keys.
func (r *Ring) Set() []byte {
	enc := r.Enc.JWK()
	enc["use"] = "enc"
	return Set(r.RSA, r.PSS, r.EC, r.Ed, enc)
}

// Broken are ways to break a token of the issuer, at a time.
func (r *Ring) Broken(now time.Time) []Broken {
	good := r.RSA.Token(now, nil)
	out := slices.Concat(headers(good), r.algorithms(now), r.names(now), r.embedded(now), r.claims(now), r.forms(now), r.headerMembers(now))
	seen := map[string]bool{}
	for _, b := range out {
		if seen[b.Name] {
			panic("two broken tokens are named " + b.Name)
		}
		seen[b.Name] = true
	}
	return out
}

func of(name, token string) Broken { return Broken{name, []string{"Bearer " + token}} }

func headers(good string) []Broken {
	return []Broken{
		{"nothing", nil},
		{"an empty header", []string{""}},
		{"the scheme alone", []string{"Bearer"}},
		{"the scheme and a space", []string{"Bearer "}},
		{"the scheme Basic", []string{"Basic " + base64.StdEncoding.EncodeToString([]byte("ann:secret"))}},
		{"the scheme Token", []string{"Token " + good}},
		{"the scheme DPoP", []string{"DPoP " + good}},
		{"no scheme", []string{good}},
		{"the scheme twice", []string{"Bearer Bearer " + good}},
		{"two headers", []string{"Bearer " + good, "Bearer " + good}},
		{"two tokens", []string{"Bearer " + good + ", Bearer " + good}},
		{"something after the token", []string{"Bearer " + good + " x"}},
		{"a tab", []string{"Bearer\t" + good}},
	}
}

// algorithms are tokens that say another algorithm than their key has.
func (r *Ring) algorithms(now time.Time) []Broken {
	var out []Broken
	claims := string(Marshal(Claims(now, nil)))
	for _, none := range []string{"none", "None", "NONE", "nOnE", ""} {
		text := Text(Marshal(r.RSA.Header(Obj{"alg": none}))) + "." + Text([]byte(claims))
		out = append(out, of(fmt.Sprintf("alg %q without a signature", none), text+"."), of(fmt.Sprintf("alg %q with one", none), text+"."+Text(r.RSA.signature(text))))
	}
	public := r.RSA.Public().(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	must(err)
	secrets := map[string][]byte{
		"PKIX PEM":   pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"PKCS 1 PEM": pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(public)}),
		"DER":        der,
		"modulus":    public.N.Bytes(),
		"JWK":        Marshal(r.RSA.JWK()),
		"set":        r.Set(),
		"nothing":    {},
	}
	for _, what := range slices.Sorted(maps.Keys(secrets)) {
		out = append(out, of("HS256 with the public key as "+what, hmacToken(secrets[what], r.RSA.Header(Obj{"alg": "HS256"}), claims)))
	}
	for _, alg := range []any{"RS384", "RS512", "PS256", "PS384", "ES256", "ES256K", "ES512", "EdDSA", "HS384", "rs256", "RS256 ", "RSA", 256, []string{"RS256"}, nil} {
		out = append(out, of(fmt.Sprintf("alg %v of an RS256 key", alg), r.RSA.Sign(string(Marshal(r.RSA.Header(Obj{"alg": alg}))), claims)))
	}
	return append(out,
		of("RS256 of a PS256 key", r.PSS.Named("pss", "RS256").Token(now, nil)),
		of("PS256 of an RS256 key", r.RSA.Named("rsa", "PS256").Token(now, nil)),
		of("an ECDSA signature of zeros", unsigned(r.EC, claims)+Text(make([]byte, 64))),
		of("an ECDSA signature in DER", derToken(r.EC, claims)),
		of("an Ed25519 signature of zeros", unsigned(r.Ed, claims)+Text(make([]byte, 64))),
		of("an RSA signature of zeros", unsigned(r.RSA, claims)+Text(make([]byte, 256))),
		of("an RSA signature of one", unsigned(r.RSA, claims)+Text(append(make([]byte, 255), 1))),
	)
}

func unsigned(k *Key, claims string) string {
	return Text(Marshal(k.Header(nil))) + "." + Text([]byte(claims)) + "."
}

func hmacToken(secret []byte, header Obj, claims string) string {
	text := Text(Marshal(header)) + "." + Text([]byte(claims))
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(text))
	return text + "." + Text(h.Sum(nil))
}

func derToken(k *Key, claims string) string {
	text := strings.TrimSuffix(unsigned(k, claims), ".")
	sum := sha256.Sum256([]byte(text))
	sig, err := k.private.Sign(rand.Reader, sum[:], crypto.SHA256)
	must(err)
	return text + "." + Text(sig)
}

// names are tokens whose kid leads elsewhere.
func (r *Ring) names(now time.Time) []Broken {
	claims := string(Marshal(Claims(now, nil)))
	var out []Broken
	for _, kid := range []any{
		"../../../../dev/null", "/etc/passwd", "rsa\x00", "rsa\n", " rsa", "RSA", "", "' OR '1'='1", "x' UNION SELECT 'secret' --", "| sleep 10", "*", "https://evil.example/keys",
		strings.Repeat("k", 4000), 1, true,
		[]string{"rsa"},
		Obj{"kid": "rsa"},
		nil,
	} {
		name := fmt.Sprintf("kid %.40q", fmt.Sprint(kid))
		out = append(out, of(name, r.RSA.Sign(string(Marshal(r.RSA.Header(Obj{"kid": kid}))), claims)), of(name+", HS256 with an empty secret", hmacToken(nil, r.RSA.Header(Obj{"kid": kid, "alg": "HS256"}), claims)))
	}
	return append(out,
		of("kid twice", r.RSA.Sign(`{"alg":"RS256","kid":"stranger","kid":"rsa"}`, claims)),
		of("kid twice, escaped", r.RSA.Sign(`{"alg":"RS256","kid":"stranger","\u006bid":"rsa"}`, claims)),
		of("kid in other letters", r.RSA.Sign(`{"alg":"RS256","KID":"rsa"}`, claims)),
		of("the kid of another key", r.EC.Named("rsa", "ES256").Token(now, nil)),
		of("the kid of another key of that algorithm", r.Gone.Named("ec", "ES256").Token(now, nil)),
		of("a key for encryption", r.Enc.Token(now, nil)),
		of("another issuer's key", r.Stranger.Token(now, nil)),
		of("another issuer's key under our kid", r.Stranger.Named("rsa", "RS256").Token(now, nil)),
		of("a key that is gone", r.Gone.Token(now, nil)),
	)
}

// embedded are tokens that bring their key, or say where it is.
func (r *Ring) embedded(now time.Time) []Broken {
	claims := string(Marshal(Claims(now, nil)))
	der, err := x509.MarshalPKIXPublicKey(r.Stranger.Public())
	must(err)
	var out []Broken
	for _, kid := range []any{"rsa", "stranger", nil} {
		for name, member := range map[string]any{
			"jwk": r.Stranger.JWK(), "x5c": []string{base64.StdEncoding.EncodeToString(der)}, "jku": "https://evil.example/keys", "x5u": "https://evil.example/cert",
		} {
			out = append(out, of(fmt.Sprintf("%s and kid %v", name, kid), r.Stranger.Sign(string(Marshal(r.Stranger.Header(Obj{"kid": kid, name: member}))), claims)))
		}
	}
	return out
}

func (r *Ring) claims(now time.Time) []Broken {
	var out []Broken
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	for _, c := range []struct {
		name  string
		claim string
		value any
	}{
		{"expired long ago", "exp", at(-time.Hour)},
		{"expired now", "exp", at(0)},
		{"no exp", "exp", nil},
		{"exp of null", "exp", rawNull{}},
		{"exp as text", "exp", fmt.Sprint(at(time.Hour))},
		{"exp as a list", "exp", []int64{at(time.Hour)}},
		{"exp of 0", "exp", 0},
		{"exp below 0", "exp", -at(time.Hour)},
		{"exp in milliseconds", "exp", at(time.Hour) * 1000},
		{"exp too far", "exp", at(24*time.Hour + time.Minute)},
		{"exp at no time", "exp", 1e300},
		{"not yet valid", "nbf", at(2 * time.Minute)},
		{"nbf as text", "nbf", "now"},
		{"made in the future", "iat", at(2 * time.Minute)},
		{"iat as text", "iat", "now"},
		{"another issuer", "iss", "https://evil.example"},
		{"an issuer that begins like ours", "iss", Issuer + ".evil.example"},
		{"an issuer in other letters", "iss", strings.ToUpper(Issuer)},
		{"no issuer", "iss", nil},
		{"a list of issuers", "iss", []string{Issuer}},
		{"another audience", "aud", "other"},
		{"other audiences", "aud", []string{"other", "millrace2"}},
		{"an audience that begins like ours", "aud", Audience + "2"},
		{"no audience", "aud", nil},
		{"an empty audience", "aud", ""},
		{"no audiences", "aud", []string{}},
		{"a number as audience", "aud", 1},
		{"no subject", "sub", nil},
		{"an empty subject", "sub", ""},
		{"a number as subject", "sub", 1},
		{"a subject with a line end", "sub", "ann\n"},
		{"a subject with a NUL", "sub", "ann\x00"},
		{"a subject with a mark of direction", "sub", "ann\u202e"},
		{"a subject that is too long", "sub", strings.Repeat("a", 1000)},
		{"groups that are none", "groups", 1},
		{"groups of numbers", "groups", []int{1}},
		{"groups as an object", "groups", Obj{"a": 1}},
		{"an empty group", "groups", []string{""}},
		{"bound to a key of its bearer's", "cnf", Obj{"jkt": "x"}},
	} {
		out = append(out, of(c.name, r.RSA.Token(now, Obj{c.claim: c.value})))
	}
	header := string(Marshal(r.RSA.Header(nil)))
	rest := fmt.Sprintf(`"iss":%q,"aud":%q,"exp":%d`, Issuer, Audience, at(time.Hour))
	return append(out,
		of("sub twice", r.RSA.Sign(header, `{"sub":"bob","sub":"ann",`+rest+`}`)),
		of("exp twice", r.RSA.Sign(header, `{"sub":"ann","exp":1,`+rest+`}`)),
		of("a nested member twice", r.RSA.Sign(header, `{"sub":"ann","x":{"a":1,"a":2},`+rest+`}`)),
		of("sub in other letters", r.RSA.Sign(header, `{"Sub":"ann",`+rest+`}`)),
		of("half a surrogate in sub", r.RSA.Sign(header, `{"sub":"ann\ud800",`+rest+`}`)),
		of("claims that are not UTF-8", r.RSA.Sign(header, "{\"sub\":\"ann\xff\","+rest+"}")),
		of("exp of a huge number", r.RSA.Sign(header, `{"sub":"ann","iss":"`+Issuer+`","aud":"`+Audience+`","exp":1e400}`)),
		of("exp of many digits", r.RSA.Sign(header, `{"sub":"ann","iss":"`+Issuer+`","aud":"`+Audience+`","exp":`+strings.Repeat("9", 2000)+`}`)),
	)
}

// rawNull is null where nil would take the claim out.
type rawNull struct{}

// MarshalJSON implements json.Marshaler.
func (rawNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// forms are tokens that are not of the form.
func (r *Ring) forms(now time.Time) []Broken {
	good := r.RSA.Token(now, nil)
	parts := strings.Split(good, ".")
	header, claims := string(Marshal(r.RSA.Header(nil))), string(Marshal(Claims(now, nil)))
	flip := func(part, at int) string {
		p := slices.Clone(parts)
		b := []byte(p[part])
		b[at] = 'A' + (b[at]-'A'+1)%26
		p[part] = string(b)
		return strings.Join(p, ".")
	}
	resigned := func(h, c string) string {
		text := h + "." + c
		return text + "." + Text(r.RSA.signature(text))
	}
	return []Broken{
		of("too long", r.RSA.Token(now, Obj{"x": strings.Repeat("x", 8<<10)})),
		of("a megabyte", strings.Repeat("a", 60<<10)),
		of("without its signature", parts[0]+"."+parts[1]+"."),
		of("without its last part", parts[0]+"."+parts[1]),
		of("one part", parts[1]),
		of("four parts", good+"."+parts[2]),
		of("cut off", good[:len(good)-2]),
		of("cut in the middle", good[:len(good)/2]),
		of("no claims", parts[0]+".."+parts[2]),
		of("no header", "."+parts[1]+"."+parts[2]),
		of("dots", ".."),
		of("other claims", parts[0]+"."+Text(Marshal(Claims(now, Obj{"sub": "bob"})))+"."+parts[2]),
		of("a changed letter in the header", flip(0, 3)),
		of("a changed letter in the claims", flip(1, 20)),
		of("a changed letter in the signature", flip(2, 20)),
		of("padding", good+"=="),
		of("padded parts, signed", resigned(base64.URLEncoding.EncodeToString([]byte(header+" ")), base64.URLEncoding.EncodeToString([]byte(claims+" ")))),
		of("standard base64, signed", resigned(Text([]byte(header)), base64.RawStdEncoding.EncodeToString([]byte(`{"x":"`+strings.Repeat("?>~", 20)+`",`+claims[1:])))),
		of("a comma in the signature", parts[0]+"."+parts[1]+"."+parts[2][:5]+","+parts[2][6:]),
		of("percent encoding", strings.ReplaceAll(good, ".", "%2E")),
		of("header of no JSON", r.RSA.Sign("alg=RS256", claims)),
		of("header of a list", r.RSA.Sign("["+header+"]", claims)),
		of("header of null", r.RSA.Sign("null", claims)),
		of("something after the header", r.RSA.Sign(header+"{}", claims)),
		of("claims of no JSON", r.RSA.Sign(header, "sub=ann")),
		of("claims of a list", r.RSA.Sign(header, "["+claims+"]")),
		of("claims of null", r.RSA.Sign(header, "null")),
		of("claims of a text", r.RSA.Sign(header, `"ann"`)),
		of("something after the claims", r.RSA.Sign(header, claims+"{}")),
		of("deeply nested claims", r.RSA.Sign(header, `{"x":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)+","+claims[1:])),
		of("a token in a token", r.RSA.Sign(string(Marshal(r.RSA.Header(Obj{"cty": "JWT"}))), good)),
		of("a token in a token, as text", r.RSA.Sign(header, `"`+good+`"`)),
		of("an encrypted token", strings.Join([]string{Text([]byte(`{"alg":"RSA-OAEP","enc":"A256GCM","kid":"rsa"}`)), Text(make([]byte, 256)), Text(make([]byte, 12)), Text(make([]byte, 64)), Text(make([]byte, 16))}, ".")),
		of("an encrypted one in three parts", resigned(Text([]byte(`{"alg":"RS256","enc":"A256GCM","kid":"rsa"}`)), Text([]byte(claims)))),
		of("the JSON form", string(Marshal(Obj{"protected": parts[0], "payload": parts[1], "signature": parts[2]}))),
		of("a text", "let me in"),
		of("letters of other scripts", "абв.где.жзи"),
	}
}

// headerMembers are tokens whose header asks for what nobody should do.
func (r *Ring) headerMembers(now time.Time) []Broken {
	claims := string(Marshal(Claims(now, nil)))
	var out []Broken
	for _, m := range []struct {
		name  string
		value any
	}{
		{"typ", "JWE"},
		{"typ", "logout+jwt"},
		{"typ", "dpop+jwt"},
		{"typ", "secevent+jwt"},
		{"typ", ""},
		{"typ", 1},
		{"typ", []string{"JWT"}},
		{"crit", []string{"exp"}},
		{"crit", []string{"b64"}},
		{"crit", []string{}},
		{"crit", "x"},
		{"b64", false},
		{"b64", true},
		{"cty", "JWT"},
		{"zip", "DEF"},
	} {
		out = append(out, of(fmt.Sprintf("%s of %T %v", m.name, m.value, m.value), r.RSA.Sign(string(Marshal(r.RSA.Header(Obj{m.name: m.value}))), claims)))
	}
	return out
}
