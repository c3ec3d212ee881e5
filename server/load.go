package server

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/millrace/millrace/errs"
)

// Sources are where settings come from; later fields win.
type Sources struct {
	File  string         // path of a YAML file, "" for none
	Env   []string       // the environment, as KEY=value
	Flags map[string]any // flags that were given, by name
}

const (
	envPrefix = "MILLRACE_"
	// EnvConfig names the settings file, where no flag does.
	EnvConfig = "MILLRACE_CONFIG"
)

// clientVariables belong to the client commands, and may be set in a shell that
// starts a server.
var clientVariables = []string{"MILLRACE_SERVER", "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE", "MILLRACE_CA", EnvConfig, EnvFailpoint, EnvClock}

// Origins says where each setting's value comes from: "default", "file F",
// "environment" or "flag".
type Origins map[string]string

// Load puts the settings together and checks them. A key that is not a setting is
// an error, wherever it stands.
func Load(src Sources) (*Settings, Origins, error) {
	s := &Settings{}
	byName, origins := map[string]setting{}, Origins{}
	for _, f := range fields(s) {
		byName[f.name] = f
		origins[f.name] = "default"
		if err := f.set(f.dflt); err != nil {
			panic(fmt.Sprintf("server: default of %s: %v", f.name, err))
		}
	}
	path, env := environment(src.Env)
	if src.File != "" {
		path = src.File
	}
	layers := []struct {
		origin   string
		provider koanf.Provider
		parser   koanf.Parser
	}{
		{"environment", confmap.Provider(env, ""), nil},
		{"flag", confmap.Provider(src.Flags, ""), nil},
	}
	if path != "" {
		layers = slices.Insert(layers, 0, struct {
			origin   string
			provider koanf.Provider
			parser   koanf.Parser
		}{"file " + path, file.Provider(path), yaml.Parser()})
	}
	for _, l := range layers {
		k := koanf.New(".")
		if err := k.Load(l.provider, l.parser); err != nil {
			return nil, nil, errs.New(errs.InvalidRequest, "settings of %s: %v", l.origin, err)
		}
		values := k.All()
		for _, name := range slices.Sorted(maps.Keys(values)) {
			f, ok := byName[name]
			if !ok {
				return nil, nil, unknownSetting(l.origin, name)
			}
			if err := f.set(values[name]); err != nil {
				return nil, nil, errs.New(errs.InvalidRequest, "setting %s (%s): %v", name, l.origin, err)
			}
			origins[name] = l.origin
		}
	}
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	return s, origins, nil
}

func unknownSetting(origin, name string) error {
	spelled := name
	if origin == "environment" {
		spelled = variable(name)
	}
	return errs.New(errs.InvalidRequest, "there is no setting %s (%s); millrace serve --help lists them", spelled, origin)
}

// variable is the environment variable of a setting.
func variable(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// environment picks the settings, by name, and the path of the settings file.
func environment(env []string) (path string, settings map[string]any) {
	settings = map[string]any{}
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		switch {
		case key == EnvConfig:
			path = value
		case !strings.HasPrefix(key, envPrefix), slices.Contains(clientVariables, key), serviceLink(key):
		default:
			settings[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(key, envPrefix), "_", "-"))] = value
		}
	}
	return path, settings
}

// serviceLink says whether Kubernetes made the variable for a service that is
// named millrace: MILLRACE_SERVICE_HOST, MILLRACE_PORT_8080_TCP and so on.
func serviceLink(key string) bool {
	for _, p := range []string{"SERVICE_HOST", "SERVICE_PORT", "PORT"} {
		if rest, ok := strings.CutPrefix(key, envPrefix+p); ok && (rest == "" || rest[0] == '_') {
			return true
		}
	}
	return false
}

// setting is a field of Settings with its tags.
type setting struct {
	name, dflt, help, later string
	value                   reflect.Value
}

// fields lists the settings in s, in order.
func fields(s *Settings) []setting {
	v := reflect.ValueOf(s).Elem()
	out := make([]setting, v.NumField())
	for i := range out {
		tag := v.Type().Field(i).Tag
		out[i] = setting{name: tag.Get("name"), dflt: tag.Get("default"), help: tag.Get("help"), later: tag.Get("later"), value: v.Field(i)}
	}
	return out
}

// set takes a value as YAML, the environment or a flag give it.
func (f *setting) set(v any) error {
	switch p := f.value.Addr().Interface().(type) {
	case *string:
		switch v := v.(type) {
		case string:
			*p = v
		case int, float64:
			*p = fmt.Sprint(v)
		default:
			return fmt.Errorf("%v is not a text", v)
		}
	case *bool:
		switch v := v.(type) {
		case bool:
			*p = v
		case string:
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			*p = b
		default:
			return fmt.Errorf("%v is neither true nor false", v)
		}
	case *int:
		n, err := strconv.Atoi(strings.TrimSpace(fmt.Sprint(v)))
		if err != nil {
			return fmt.Errorf("%v is not a whole number", v)
		}
		*p = n
	case *[]string:
		list, err := textList(v)
		if err != nil {
			return err
		}
		*p = list
	default:
		panic(fmt.Sprintf("server: setting %s has type %T", f.name, p))
	}
	return nil
}

// textList takes a list, or a text with commas.
func textList(v any) ([]string, error) {
	var list []string
	switch v := v.(type) {
	case string:
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
	case []string:
		list = v
	case []any:
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not a text", e)
			}
			list = append(list, s)
		}
	default:
		return nil, fmt.Errorf("%v is not a list", v)
	}
	return list, nil
}

// text is the value as one text.
func (f *setting) text() string {
	if list, ok := reflect.TypeAssert[[]string](f.value); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(f.value.Interface())
}

// Print writes the settings as a YAML file that gives the same ones, each with
// where its value comes from.
func (s *Settings) Print(w io.Writer, origins Origins) error {
	for _, f := range fields(s) {
		value := f.text()
		switch f.name {
		case "lake-catalog-properties":
			value = withoutSecrets(value)
		case "nats-url", "nats-system-url":
			value = withoutPasswords(value)
		}
		if f.value.Kind() != reflect.Bool && f.value.Kind() != reflect.Int {
			value = strconv.Quote(value)
		}
		if _, err := fmt.Fprintf(w, "%s: %s # %s\n", f.name, value, origins[f.name]); err != nil {
			return err
		}
	}
	return nil
}
