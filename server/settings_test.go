package server

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/errs"
)

// clustered are settings of a cluster that are right, and others.
func clustered(others map[string]any) map[string]any {
	out := map[string]any{"nats-url": "nats://x", "remote-uri": "s3://b/r", "lake-uri": "s3://b/l"}
	maps.Copy(out, others)
	return out
}

func yamlFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "millrace.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Without anything, the settings are the contract's defaults.
func TestDefaults(t *testing.T) {
	s, origins, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	want := &Settings{
		HTTPAddr: "127.0.0.1:8080", FlightAddr: "127.0.0.1:8815", DataDir: "./millrace-data", CacheSize: "auto", ReceiveMemory: "auto",
		LakeURI: "file://<data-dir>/lake", RemoteURI: "file://<data-dir>/remote",
		Roles: []string{"front", "worker", "tier"}, AuthGroupsClaim: "groups", AuditVerbs: []string{"describe", "read", "write"}, ClusterName: "millrace", RemoteCacheSize: "256MiB", LogMaxSize: "8GiB", LogLevel: "info", LogFormat: "text",
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	for name, o := range origins {
		if o != "default" {
			t.Errorf("%s comes from %s", name, o)
		}
	}
}

// Bodies take what the setting says, or a part of the machine's memory.
func TestReceiveMemory(t *testing.T) {
	for _, c := range []struct {
		setting string
		memory  int64
		want    int64 // 0: refused
	}{
		{"auto", 0, 128 << 20},
		{"auto", 8 << 30, 512 << 20},
		{"auto", 256 << 30, 1 << 30},
		{"64MiB", 0, 64 << 20},
		{"3GiB", 0, 3 << 30},
		{"63MiB", 0, 0},
		{"", 0, 0},
		{"much", 0, 0},
	} {
		got, err := receiveBytes(c.setting, c.memory)
		if got != c.want && c.want > 0 || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

// The caches take what the setting says, or a part of the machine's memory.
func TestCacheSize(t *testing.T) {
	for _, c := range []struct {
		setting string
		memory  int64
		want    int64 // 0: refused
	}{
		{"auto", 0, 64 << 20},
		{"auto", 512 << 20, 64 << 20},
		{"auto", 4 << 30, 256 << 20},
		{"auto", 256 << 30, 1 << 30},
		{"8192KiB", 0, 8 << 20},
		{"100MiB", 1 << 20, 100 << 20},
		{"3GiB", 0, 3 << 30},
		{"", 0, 0},
		{"1", 0, 0},
		{"64", 0, 0},
		{"64MB", 0, 0},
		{"MiB", 0, 0},
		{"-64MiB", 0, 0},
		{"64 MiB", 0, 0},
		{"64MiBMiB", 0, 0},
		{"7MiB", 0, 0},
		{"1.5GiB", 0, 0},
		{"9999999GiB", 0, 0},
		{"99999999999999999999GiB", 0, 0},
		{"off", 0, 0},
	} {
		got, err := cacheBytes(c.setting, c.memory)
		if got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%q of %d: %d, %v", c.setting, c.memory, got, err)
		}
		if c.want == 0 {
			if _, _, err := Load(Sources{Flags: map[string]any{"cache-size": c.setting}}); !errs.Is(err, errs.InvalidRequest) {
				t.Errorf("%q: %v", c.setting, err)
			}
		}
	}
	if m := machineMemory(); m < 64<<20 {
		t.Errorf("this machine has %d bytes of memory", m)
	}
}

// A flag wins over the environment, that over the file, that over the default;
// each value knows where it is from.
func TestPrecedence(t *testing.T) {
	file := yamlFile(t, "http-addr: 127.0.0.1:1\nflight-addr: 127.0.0.1:1\ndata-dir: /file\nlog-level: debug\nroles: [worker, tier, front]\ninsecure: true\n")
	s, origins, err := Load(Sources{
		File:  file,
		Env:   []string{"MILLRACE_FLIGHT_ADDR=127.0.0.1:2", "MILLRACE_DATA_DIR=/env", "PATH=/bin", "MILLRACE_TOKEN=x", "MILLRACE_PORT_8080_TCP=tcp://1", "MILLRACE_SERVICE_HOST=1"},
		Flags: map[string]any{"data-dir": "/flag"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.HTTPAddr, s.FlightAddr, s.DataDir, s.LogLevel, strings.Join(s.Roles, "+"), s.LogFormat}
	if d := cmp.Diff([]string{"127.0.0.1:1", "127.0.0.1:2", "/flag", "debug", "worker+tier+front", "text"}, got); d != "" {
		t.Error(d)
	}
	if !s.Insecure {
		t.Error("insecure was not taken from the file")
	}
	for name, want := range map[string]string{"http-addr": "file " + file, "flight-addr": "environment", "data-dir": "flag", "log-format": "default"} {
		if origins[name] != want {
			t.Errorf("%s comes from %q, want %q", name, origins[name], want)
		}
	}
	// The variable that names the file gives way to the flag that does.
	s, _, err = Load(Sources{Env: []string{"MILLRACE_CONFIG=" + file}})
	if err != nil || s.HTTPAddr != "127.0.0.1:1" {
		t.Errorf("%+v, %v", s, err)
	}
	s, _, err = Load(Sources{File: yamlFile(t, ""), Env: []string{"MILLRACE_CONFIG=" + file}})
	if err != nil || s.HTTPAddr != "127.0.0.1:8080" {
		t.Errorf("%+v, %v", s, err)
	}
}

// What is wrong is refused, with the setting's name and where it came from.
func TestSettingErrors(t *testing.T) {
	for _, c := range []struct {
		yaml, env string
		flags     map[string]any
		code      errs.Code
		says      []string
	}{
		{yaml: "http-adr: x", code: errs.InvalidRequest, says: []string{"http-adr", "file "}},
		{yaml: "http:\n  addr: x", code: errs.InvalidRequest, says: []string{"http.addr"}},
		{env: "MILLRACE_HTTP_ADRR=x", code: errs.InvalidRequest, says: []string{"MILLRACE_HTTP_ADRR"}},
		{yaml: "insecure: perhaps", code: errs.InvalidRequest, says: []string{"insecure", "perhaps"}},
		{yaml: "insecure: 3", code: errs.InvalidRequest, says: []string{"insecure"}},
		{env: "MILLRACE_INSECURE=ja", code: errs.InvalidRequest, says: []string{"insecure", "environment"}},
		{yaml: "data-dir:", code: errs.InvalidRequest, says: []string{"data-dir"}},
		{yaml: "data-dir: [a]", code: errs.InvalidRequest, says: []string{"data-dir"}},
		{yaml: "roles: 7", code: errs.InvalidRequest, says: []string{"roles"}},
		{yaml: "a: [", code: errs.InvalidRequest, says: []string{"file "}},
		{env: "MILLRACE_CONFIG=/does/not/exist.yaml", code: errs.InvalidRequest, says: []string{"/does/not/exist.yaml"}},
		{flags: map[string]any{"data-dir": ""}, code: errs.InvalidRequest, says: []string{"data-dir"}},
		{flags: map[string]any{"http-addr": "8080"}, code: errs.InvalidRequest, says: []string{"http-addr", "host:port"}},
		{flags: map[string]any{"flight-addr": ""}, code: errs.InvalidRequest, says: []string{"flight-addr", "host:port"}},
		{flags: map[string]any{"advertise-flight": "here"}, code: errs.InvalidRequest, says: []string{"advertise-flight"}},
		{flags: map[string]any{"log-level": "loud"}, code: errs.InvalidRequest, says: []string{"log-level", "debug"}},
		{flags: map[string]any{"log-format": "xml"}, code: errs.InvalidRequest, says: []string{"log-format", "json"}},
		{flags: map[string]any{"roles": []string{"front", "back"}}, code: errs.InvalidRequest, says: []string{"back"}},

		{flags: map[string]any{"http-addr": ":8080"}, code: errs.InvalidRequest, says: []string{"http-addr", "--insecure"}},
		{flags: map[string]any{"http-addr": "0.0.0.0:8080"}, code: errs.InvalidRequest, says: []string{"http-addr", "--insecure"}},
		{flags: map[string]any{"flight-addr": "[::]:8815"}, code: errs.InvalidRequest, says: []string{"flight-addr", "--insecure"}},
		{flags: map[string]any{"metrics-addr": "10.0.0.1:9090"}, code: errs.InvalidRequest, says: []string{"metrics-addr", "--insecure"}},
		{flags: map[string]any{"http-addr": "example.com:80"}, code: errs.InvalidRequest, says: []string{"http-addr", "--insecure"}},

		{flags: map[string]any{"roles": []string{"front"}}, code: errs.InvalidRequest, says: []string{"roles", "worker", "nats-url"}},
		{flags: map[string]any{"nats-url": "nats://x"}, code: errs.InvalidRequest, says: []string{"remote-uri", "same place"}},
		{flags: map[string]any{"nats-url": "nats://x", "remote-uri": "s3://b/r"}, code: errs.InvalidRequest, says: []string{"lake-uri", "same place"}},
		{flags: clustered(map[string]any{"roles": []string{}}), code: errs.InvalidRequest, says: []string{"roles", "empty"}},
		{flags: clustered(map[string]any{"cluster-name": "a.b"}), code: errs.InvalidRequest, says: []string{"cluster-name", "a.b"}},
		{flags: clustered(map[string]any{"worker-name": "a>"}), code: errs.InvalidRequest, says: []string{"worker-name"}},
		{flags: clustered(map[string]any{"nats-cert": "c.pem"}), code: errs.InvalidRequest, says: []string{"nats-key"}},
		{flags: clustered(map[string]any{"http-addr": "0.0.0.0:8080", "insecure": true}), code: errs.InvalidRequest, says: []string{"advertise-http"}},
		{flags: clustered(map[string]any{"advertise-http": "host"}), code: errs.InvalidRequest, says: []string{"advertise-http", "host:port"}},
		{flags: map[string]any{"worker-name": "a"}, code: errs.InvalidRequest, says: []string{"worker-name", "nats-url"}},
		{flags: map[string]any{"log-max-size": "8"}, code: errs.InvalidRequest, says: []string{"log-max-size", "MiB"}},
		{flags: map[string]any{"shards": "-1"}, code: errs.InvalidRequest, says: []string{"shards"}},
		{flags: map[string]any{"shards": "many"}, code: errs.InvalidRequest, says: []string{"shards", "whole number"}},
		{flags: map[string]any{"lake-catalog": "glue", "lake-catalog-uri": "glue://"}, code: errs.InvalidRequest, says: []string{"lake-catalog", "Glue"}},
		{flags: map[string]any{"lake-catalog": "hive"}, code: errs.InvalidRequest, says: []string{"lake-catalog", "thrift://"}},
		{flags: map[string]any{"lake-catalog": "paper", "lake-catalog-uri": "x"}, code: errs.InvalidRequest, says: []string{"lake-catalog", "paper"}},
		{flags: map[string]any{"lake-catalog": "rest"}, code: errs.InvalidRequest, says: []string{"lake-catalog"}},
		{flags: map[string]any{"lake-catalog-uri": "http://x"}, code: errs.InvalidRequest, says: []string{"lake-catalog", "not set"}},
		{flags: map[string]any{"lake-catalog": "rest", "lake-catalog-uri": "http://x", "lake-catalog-properties": []string{"token"}}, code: errs.InvalidRequest, says: []string{"lake-catalog-properties", "key=value"}},
		{flags: map[string]any{"lake-catalog": "sql", "lake-catalog-uri": "postgres://h/db"}, code: errs.InvalidRequest, says: []string{"sqlite:///"}},
		{flags: map[string]any{"advertise-http": "h:1"}, code: errs.InvalidRequest, says: []string{"advertise-http"}},
		{flags: map[string]any{"cors-origins": []string{"*"}}, code: errs.InvalidRequest, says: []string{"cors-origins", "no authentication"}},
		{flags: map[string]any{"cors-origins": []string{"app.example.com"}}, code: errs.InvalidRequest, says: []string{"cors-origins", "app.example.com"}},
		{flags: map[string]any{"cors-origins": []string{"https://app.example.com/"}}, code: errs.InvalidRequest, says: []string{"not an origin"}},
		{flags: map[string]any{"cors-origins": []string{"null"}}, code: errs.InvalidRequest, says: []string{"not an origin"}},
		{flags: map[string]any{"cors-origins": []string{"https://u@a.example"}}, code: errs.InvalidRequest, says: []string{"not an origin"}},
		{flags: map[string]any{"max-connections": "-1"}, code: errs.InvalidRequest, says: []string{"max-connections"}},
		{flags: map[string]any{"auth-jwks": "http://id.example/keys"}, code: errs.InvalidRequest, says: []string{"auth-jwks", "plain http"}},
		{flags: map[string]any{"auth-jwks": "ldap://id.example/keys"}, code: errs.InvalidRequest, says: []string{"auth-jwks", "https"}},
		{env: "MILLRACE_AUTH_ISSUER=i", code: errs.InvalidRequest, says: []string{"auth-issuer", "auth-jwks"}},
		{env: "MILLRACE_AUTH_AUDIENCE=i", code: errs.InvalidRequest, says: []string{"auth-audience", "auth-jwks"}},
		{env: "MILLRACE_AUTH_GROUPS_CLAIM=i", code: errs.InvalidRequest, says: []string{"auth-groups-claim", "auth-jwks"}},
		{flags: map[string]any{"auth-jwks": "dev", "auth-audience": "i"}, code: errs.InvalidRequest, says: []string{"auth-audience", "development key"}},
		{flags: map[string]any{"auth-jwks": "dev", "auth-groups-claim": "i"}, code: errs.InvalidRequest, says: []string{"auth-groups-claim"}},
		{env: "MILLRACE_ADMIN_PRINCIPAL=user:i", code: errs.InvalidRequest, says: []string{"admin-principal", "off"}},
		{flags: map[string]any{"auth-jwks": "dev", "admin-principal": "i"}, code: errs.InvalidRequest, says: []string{"admin-principal", "user:"}},
		{flags: map[string]any{"auth-jwks": "dev", "admin-principal": "user:"}, code: errs.InvalidRequest, says: []string{"admin-principal", "user:"}},
		{flags: map[string]any{"auth-jwks": "dev", "admin-principal": "group:g"}, code: errs.InvalidRequest, says: []string{"admin-principal", "user:"}},
		{env: "MILLRACE_TLS_CERT=i", code: errs.InvalidRequest, says: []string{"tls-cert", "tls-key", "together"}},
		{env: "MILLRACE_TLS_KEY=i", code: errs.InvalidRequest, says: []string{"tls-cert", "tls-key", "together"}},
		{env: "MILLRACE_TLS_CA=i", code: errs.InvalidRequest, says: []string{"tls-ca", "nats-url"}},
		{env: "MILLRACE_TLS_CLIENT_CA=i", code: errs.InvalidRequest, says: []string{"tls-client-ca", "tls-cert"}},
	} {
		src := Sources{Flags: c.flags, Env: []string{c.env}}
		if c.yaml != "" {
			src.File = yamlFile(t, c.yaml)
		}
		_, _, err := Load(src)
		if errs.CodeOf(err) != c.code {
			t.Errorf("%+v: %q (%v), want %q", c, errs.CodeOf(err), err, c.code)
			continue
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %q does not say %q", c, err, says)
			}
		}
	}
	for _, ok := range []map[string]any{
		{"http-addr": "localhost:0"},
		{"http-addr": "[::1]:0"},
		{"flight-addr": "127.8.9.1:0"},
		{"metrics-addr": "127.0.0.1:0"},
		{"cors-origins": []string{"https://app.example.com", "http://localhost:3000"}},
		{"http-addr": "0.0.0.0:0", "flight-addr": ":0", "insecure": true},
		{"roles": []string{"tier", "front", "worker"}},
	} {
		if _, _, err := Load(Sources{Flags: ok}); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
}

// With authentication other machines may be served; what makes it less than it could be is
// told.
func TestUnsafeCallers(t *testing.T) {
	for _, c := range []struct {
		flags map[string]any
		want  string
	}{
		{nil, ""},
		{map[string]any{"auth-jwks": "keys.json", "auth-issuer": "i", "auth-audience": "a"}, ""},
		{map[string]any{"auth-jwks": "https://id.example/keys", "auth-issuer": "i"}, "auth-audience"},
		{map[string]any{"auth-jwks": "keys.json"}, "auth-audience auth-issuer"},
		{map[string]any{"auth-jwks": "dev"}, "auth-jwks"},
		{map[string]any{"auth-jwks": "dev", "http-addr": "0.0.0.0:8080", "admin-principal": "user:ann"}, "auth-jwks tls-cert"},
		{map[string]any{"tls-client-ca": "ca", "tls-cert": "c", "tls-key": "k", "flight-addr": "0.0.0.0:8815"}, ""},
		{map[string]any{"auth-jwks": "keys.json", "auth-issuer": "i", "auth-audience": "a", "tls-cert": "c", "tls-key": "k", "http-addr": ":1"}, ""},
	} {
		s, _, err := Load(Sources{Flags: c.flags})
		if err != nil {
			t.Errorf("%v: %v", c.flags, err)
			continue
		}
		if got := strings.Join(s.unsafe(), " "); got != c.want {
			t.Errorf("%v: %q, want %q", c.flags, got, c.want)
		}
	}
}

// Printed settings, read as a file, are the same settings.
func TestPrint(t *testing.T) {
	s, origins, err := Load(Sources{Flags: map[string]any{"data-dir": `/a "b" \c #d`, "insecure": true, "http-addr": "0.0.0.0:1"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Print(&b, origins); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "insecure: true # flag\n") {
		t.Errorf("printed:\n%s", b.String())
	}
	back, _, err := Load(Sources{File: yamlFile(t, b.String())})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, back); d != "" {
		t.Error(d)
	}
}

// Every setting has a name, a help and a type that can be set; those to come say so.
func TestSettingTags(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range fields(&Settings{}) {
		if f.name == "" || f.help == "" || seen[f.name] {
			t.Errorf("setting %+v", f)
		}
		seen[f.name] = true
		if (f.later != "") != strings.HasSuffix(f.help, "Not yet.") {
			t.Errorf("setting %s: later %q, help %q", f.name, f.later, f.help)
		}
		if err := f.set(f.dflt); err != nil {
			t.Errorf("setting %s: %v", f.name, err)
		}
	}
	if n := reflect.TypeFor[Settings]().NumField(); len(seen) != n {
		t.Errorf("%d of %d fields are settings", len(seen), n)
	}
}
