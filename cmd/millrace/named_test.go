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
	known := []string{"MILLRACE_SERVER", "MILLRACE_TOKEN", "MILLRACE_CONFIG"}
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

// ofOthers are flags in the guides' prose that are not Millrace's.
var ofOthers = []string{"packages", "json"}

// environment reads a file of variables, as systemd does.
func environment(t *testing.T, paths ...string) []string {
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

// What the environment files say are settings that a server takes.
func TestEnvironmentFiles(t *testing.T) {
	for _, paths := range [][]string{{"deploy/systemd/single.env"}} {
		_, _, err := server.Load(server.Sources{Env: environment(t, paths...)})
		require.NoError(t, err, paths)
	}
}
