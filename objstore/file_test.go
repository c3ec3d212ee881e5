package objstore_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/objstore"
)

func openFolder(t *testing.T, dir string) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), "file://"+dir, objstore.Options{})
	require.NoError(t, err)
	return s
}

func tempFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(dir + "/~tmp/*")
	require.NoError(t, err)
	return names
}

// Addresses that say no folder are refused; nothing is made before something is written.
func TestFolderAddresses(t *testing.T) {
	dir := t.TempDir()
	for _, uri := range []string{
		"", "lake", "/srv/lake", "file:/srv/lake", "file://", "file:///", "file://srv/lake", "file:///a/../b", "file:///a//b", "file:///a/./b", "file:///a b", "file:///a%20b", "file:///a?b", "file:///a#b", "file:///a\x00b", "gs://b/p",
	} {
		_, err := objstore.Open(t.Context(), uri, objstore.Options{})
		require.True(t, errs.Is(err, errs.InvalidValue), "%q: %v", uri, err)
	}
	for uri, want := range map[string]string{
		"file://" + dir + "/x": "file://" + dir + "/x", "file://" + dir + "/x/": "file://" + dir + "/x", "file://localhost" + dir + "/x": "file://" + dir + "/x",
	} {
		s, err := objstore.Open(t.Context(), uri, objstore.Options{})
		require.NoError(t, err)
		require.Equal(t, want, s.URI())
		require.NoError(t, s.List(t.Context(), "", func(objstore.Info) error { return nil }))
	}
	require.NoDirExists(t, dir+"/x")
}

// What a crash left is not listed, and is removed by the first write once it is old;
// what another process is writing now is not.
func TestFolderLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := openFolder(t, dir)
	w, err := s.Writer(t.Context(), "a")
	require.NoError(t, err)
	old, young := dir+"/~tmp/old", dir+"/~tmp/young"
	for _, name := range []string{old, young} {
		require.NoError(t, os.WriteFile(name, []byte("x"), 0o600))
	}
	require.NoError(t, os.Chtimes(old, time.Now(), time.Now().Add(-2*time.Hour)))
	require.NoError(t, s.List(t.Context(), "", func(i objstore.Info) error { return fmt.Errorf("listed %s", i.Key) }))

	require.NoError(t, openFolder(t, dir).Put(t.Context(), "b", nil))
	require.NoFileExists(t, old)
	require.FileExists(t, young)
	require.NoError(t, w.Close())
	require.Equal(t, []string{young}, tempFiles(t, dir))
	for _, key := range []string{"a", "b"} {
		_, err := s.Get(t.Context(), key)
		require.NoError(t, err)
	}
}

// No call leaves a file behind, whatever comes of it.
func TestFolderLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := openFolder(t, dir)
	require.NoError(t, s.Create(t.Context(), "a", nil))
	require.ErrorIs(t, s.Create(t.Context(), "a", nil), objstore.ErrExists)
	require.Error(t, s.Put(t.Context(), "a/b", nil), "below an object")
	w, err := s.Writer(t.Context(), "b")
	require.NoError(t, err)
	w.Abort()
	require.Empty(t, tempFiles(t, dir))
}

// Names that are no keys, folders and named pipes are not objects, and are left alone.
func TestFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	s := openFolder(t, dir)
	require.NoError(t, os.MkdirAll(dir+"/folder/in", 0o700))
	require.NoError(t, os.WriteFile(dir+"/folder/not a key", nil, 0o600))
	require.NoError(t, exec.Command("mkfifo", dir+"/folder/pipe").Run())
	require.NoError(t, s.Put(t.Context(), "folder/a", nil))
	var got []string
	require.NoError(t, s.List(t.Context(), "", func(i objstore.Info) error {
		got = append(got, i.Key)
		return nil
	}))
	require.Equal(t, []string{"folder/a"}, got)
	for _, key := range []string{"folder", "folder/in", "folder/pipe"} {
		_, err := s.Get(t.Context(), key)
		require.ErrorIs(t, err, objstore.ErrNotExist)
		_, err = s.Stat(t.Context(), key)
		require.ErrorIs(t, err, objstore.ErrNotExist)
	}
	require.NoError(t, s.Remove(t.Context(), "folder", "folder/in"))
	require.DirExists(t, dir+"/folder/in")
	for _, err := range []error{s.Create(t.Context(), "folder", nil), s.Put(t.Context(), "folder", nil)} {
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	}
	// A folder that somebody removed is made again.
	require.NoError(t, os.RemoveAll(dir+"/folder"))
	require.NoError(t, s.Create(t.Context(), "folder/in/a", []byte("x")))
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, s.Put(t.Context(), "folder/in/a", []byte("y")))
}

// O2 among processes: each key is created by one of them. The test runs itself.
func TestFolderCreateByProcesses(t *testing.T) {
	const keys = 60
	if dir := os.Getenv("OBJSTORE_CREATE_IN"); dir != "" {
		s := openFolder(t, dir)
		for i := range keys {
			if err := s.Create(t.Context(), fmt.Sprintf("f%d/k%d", i/10, i), nil); err == nil {
				fmt.Println("created", i)
			} else {
				require.ErrorIs(t, err, objstore.ErrExists)
			}
		}
		return
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	var outs [4]strings.Builder
	var all [4]*exec.Cmd
	for i := range all {
		all[i] = exec.CommandContext(t.Context(), self, "-test.run", "^TestFolderCreateByProcesses$")
		all[i].Env = append(os.Environ(), "OBJSTORE_CREATE_IN="+dir)
		all[i].Stdout = &outs[i]
		require.NoError(t, all[i].Start())
	}
	by := map[string]int{}
	for i := range all {
		require.NoError(t, all[i].Wait(), outs[i].String())
		for lines := bufio.NewScanner(strings.NewReader(outs[i].String())); lines.Scan(); {
			if k, ok := strings.CutPrefix(lines.Text(), "created "); ok {
				by[k]++
			}
		}
	}
	require.Len(t, by, keys)
	for k, n := range by {
		require.Equal(t, 1, n, k)
	}
}

// A file in the place of a store is no store without objects, a place that was not made
// yet is.
func TestFileInPlaceOfFolder(t *testing.T) {
	dir := t.TempDir() + "/lake"
	s := openFolder(t, dir)
	list := func() error {
		return s.List(t.Context(), "a/b/", func(i objstore.Info) error { return fmt.Errorf("listed %s", i.Key) })
	}
	require.NoError(t, list())
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.True(t, errs.Is(list(), errs.Unavailable), "%v", list())
	require.NoError(t, os.Remove(dir))
	require.NoError(t, s.Put(t.Context(), "a", nil))
	require.NoError(t, list())
}
