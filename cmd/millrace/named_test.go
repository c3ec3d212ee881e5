package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/server"
)

const root = "../.."

// model is the command line as kong has it.
func model(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(&commands{}, kong.Name("millrace"))
	require.NoError(t, err)
	return k.Model
}

// flagsOf are the flags of a command, those of what it is below included; nil when
// there is no such command.
func flagsOf(n *kong.Node, words ...string) []string {
	flags := make([]string, 0, len(n.Flags))
	for _, f := range n.Flags {
		flags = append(flags, f.Name)
	}
	if len(words) == 0 {
		return flags
	}
	for _, c := range n.Children {
		if c.Name != words[0] {
			continue
		}
		rest := words[1:]
		if len(c.Children) == 0 {
			rest = nil // what follows are its arguments
		}
		return append(flags, flagsOf(c, rest...)...)
	}
	return nil
}

// allFlags are the flags of all commands.
func allFlags(n *kong.Node) []string {
	flags := flagsOf(n)
	for _, c := range n.Children {
		flags = append(flags, allFlags(c)...)
	}
	return flags
}

// texts are the files that tell people how to run Millrace, by path from the root.
func texts(t *testing.T, under ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, top := range under {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(p)
			out[filepath.ToSlash(p)[len(root)+1:]] = string(b)
			return err
		}))
	}
	return out
}

var (
	variable = regexp.MustCompile(`\bMILLRACE_[A-Z0-9_]+`)
	metric   = regexp.MustCompile(`\bmillrace_(?:server|owner|cluster|stream|shard|remote|tier|wal|objstore|router|flight|catalog|storage|keyvalue|shardrpc|auth|quota|audit|trace)_[a-z_]+`)
	flag     = regexp.MustCompile(`(?:^|[\s"'=\[` + "`" + `])--([a-z][a-z0-9-]*)`)
	command  = regexp.MustCompile(`(?m)(?:^|[|;&(]|[A-Z_]+=\S+|\b(?:do|then|nohup))\s*(?:\S*/)?millrace((?: +[a-z]+)+)([^|;&\n]*)`)
	quoted   = regexp.MustCompile("`(--[a-z][a-z0-9-]*)[^`]*`")
	fence    = regexp.MustCompile("(?m)^```.*$")
	join     = regexp.MustCompile(`\\\n\s*`)
)

// What deploy/, the guides and the README name is there: every variable is a setting or one
// of the client's, every flag of a millrace command is one that its --help lists, and every
// flag in their prose is one of some command.
func TestNamedSettings(t *testing.T) {
	app := model(t)
	known := []string{"MILLRACE_SERVER", "MILLRACE_TOKEN", "MILLRACE_TOKEN_FILE", "MILLRACE_CA", "MILLRACE_CONFIG"}
	for _, f := range flagsOf(app.Node, "serve") {
		known = append(known, "MILLRACE_"+strings.ToUpper(strings.ReplaceAll(f, "-", "_")))
	}
	all := allFlags(app.Node)
	variables, flags := 0, 0
	for path, text := range texts(t, "deploy", "docs/guides", "README.md") {
		for _, v := range variable.FindAllString(text, -1) {
			require.Contains(t, known, v, "%s names a variable that is none", path)
			variables++
		}
		text = join.ReplaceAllString(text, " ")
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			of := flagsOf(app.Node, words...)
			if of == nil {
				continue // prose
			}
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				require.Contains(t, append(of, "help"), f[1], "%s: millrace %s has no such flag", path, strings.Join(words, " "))
				flags++
			}
		}
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		for i, prose := range fence.Split(text, -1) {
			if i%2 == 1 {
				continue // a block of commands, of which others may not be ours
			}
			for _, f := range quoted.FindAllStringSubmatch(prose, -1) {
				name := strings.TrimPrefix(f[1], "--")
				ok := slices.Contains(all, name) || slices.ContainsFunc(all, func(known string) bool { return strings.HasSuffix(name, "-") && strings.HasPrefix(known, name) })
				require.True(t, ok || slices.Contains(ofOthers, name), "%s: no command has a flag --%s", path, name)
			}
		}
	}
	require.Greater(t, variables, 100)
	require.Greater(t, flags, 20)
}

// Every metric that the guides and deploy/ name is one that docs/metrics.md lists.
func TestNamedMetrics(t *testing.T) {
	b, err := os.ReadFile(root + "/docs/metrics.md")
	require.NoError(t, err)
	listed := string(b)
	n := 0
	for path, text := range texts(t, "deploy", "docs/guides", "README.md") {
		for _, name := range metric.FindAllString(text, -1) {
			name = strings.TrimSuffix(name, "_bucket")
			require.Contains(t, listed, "| `"+name+"` |", "%s names a metric that is none", path)
			n++
		}
	}
	require.Greater(t, n, 10)
}

// ofOthers are flags in the guides' prose that are not Millrace's.
var ofOthers = []string{"packages", "json"}

// variablesOf reads files of variables, as systemd does.
func variablesOf(t *testing.T, paths ...string) []string {
	t.Helper()
	var out []string
	for _, p := range paths {
		b, err := os.ReadFile(filepath.Join(root, p))
		require.NoError(t, err)
		for line := range strings.SplitSeq(string(b), "\n") {
			if line != "" && line[0] != '#' {
				require.Regexp(t, `^[A-Z0-9_]+=`, line, p)
				out = append(out, line)
			}
		}
	}
	return out
}

// takes says that a server takes the settings of an environment, and which roles it has then.
func takes(t *testing.T, what string, env []string) []string {
	t.Helper()
	s, _, err := server.Load(server.Sources{Env: env})
	require.NoError(t, err, what)
	return s.Roles
}

// What the environment files of systemd say are settings that a server takes.
func TestEnvironmentFiles(t *testing.T) {
	takes(t, "single", variablesOf(t, "deploy/systemd/single.env"))
	for _, role := range []string{"worker", "front", "tier"} {
		require.Equal(t, []string{role}, takes(t, role, variablesOf(t, "deploy/systemd/cluster.env", "deploy/systemd/"+role+".env")))
	}
}

// What the Compose file tells each container are settings that a server takes, and all
// roles are there.
func TestComposeFile(t *testing.T) {
	b, err := os.ReadFile(root + "/deploy/compose/compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	require.NoError(t, yaml.Unmarshal(b, &file))
	count := map[string]int{}
	for name, s := range file.Services {
		if s.Image != "millrace" {
			count[s.Image]++
			continue
		}
		var env []string
		for k, v := range s.Environment {
			env = append(env, k+"="+v)
		}
		count[strings.Join(takes(t, name, env), ",")]++
	}
	require.Equal(t, map[string]int{"millrace-nats": 3, "millrace-versitygw": 1, "worker": 3, "front": 2, "tier": 1}, count)
}

// What the example for Kubernetes tells each container are settings that a server takes.
func TestKubernetesExample(t *testing.T) {
	const dir = "deploy/kubernetes/"
	var overlay struct {
		ConfigMapGenerator []struct {
			Literals []string `yaml:"literals"`
		} `yaml:"configMapGenerator"`
	}
	b, err := os.ReadFile(filepath.Join(root, dir, "overlays/example/kustomization.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(b, &overlay))
	common := slices.Concat(variablesOf(t, dir+"base/millrace.env"), overlay.ConfigMapGenerator[0].Literals, variablesOf(t, dir+"overlays/example/secrets.env"))
	for _, role := range []string{"worker", "front", "tier"} {
		b, err := os.ReadFile(filepath.Join(root, dir, "base", role+".yaml"))
		require.NoError(t, err)
		var object struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct {
								Name  string `yaml:"name"`
								Value string `yaml:"value"`
							} `yaml:"env"`
						} `yaml:"containers"`
					} `yaml:"spec"`
				} `yaml:"template"`
			} `yaml:"spec"`
		}
		objects := strings.Split(string(b), "\n---\n") // the last one has the containers
		require.NoError(t, yaml.Unmarshal([]byte(objects[len(objects)-1]), &object))
		env := slices.Clone(common)
		for _, e := range object.Spec.Template.Spec.Containers[0].Env {
			if e.Value == "" {
				e.Value = "pod" // of a field of the pod
			}
			env = append(env, e.Name+"="+e.Value)
		}
		require.Equal(t, []string{role}, takes(t, role, env))
	}
}

// The images have the servers that the tests run with.
func TestImageVersions(t *testing.T) {
	makefile, err := os.ReadFile(root + "/Makefile")
	require.NoError(t, err)
	dockerfile, err := os.ReadFile(root + "/deploy/Dockerfile")
	require.NoError(t, err)
	for what, module := range map[string]string{"NATS_SERVER": "github.com/nats-io/nats-server/v2@", "VERSITYGW": "github.com/versity/versitygw/cmd/versitygw@"} {
		m := regexp.MustCompile(`(?m)^` + what + `_VERSION\s*:= (\S+)$`).FindSubmatch(makefile)
		require.NotNil(t, m, what)
		require.Contains(t, string(dockerfile), module+string(m[1])+"\n")
	}
}
