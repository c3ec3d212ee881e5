package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// binaryPath is the path of the millrace under test.
var binaryPath string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binaryPath = os.Getenv("E2E_MILLRACE"); binaryPath != "" {
		if binaryPath, err = filepath.Abs(binaryPath); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	} else {
		binaryPath = filepath.Join(dir, "millrace")
		build := exec.Command("go", "build", "-o", binaryPath, "../cmd/millrace")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building the binary:", err)
			return 1
		}
	}
	code := m.Run()
	sharedServer.stopForGood()
	if n := alive(); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d servers were left running\n", n)
		code = 1
	}
	return code
}

// setting reads a number from the environment.
func setting(name string, dflt int) int {
	if v := os.Getenv(name); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(name + ": " + err.Error())
		}
		return n
	}
	return dflt
}
