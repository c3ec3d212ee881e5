package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/auth/token"
)

const subjectSecrets = "secrets"

// secret is a file that others may not read.
type secret struct {
	what, path string
	optional   bool // it need not be there
	group      bool // the group may read it
	refused    bool // the server does not start, or does not trust it, when others may read it
}

func (d *doctor) secrets() []secret {
	s := d.s
	all := []secret{
		{what: "the development key", path: token.DevKeyPath(d.dir), optional: true, refused: s.AuthJWKS == devKeys},
		{what: "tls-key", path: s.TLSKey, group: true, refused: true},
		{what: "nats-creds", path: s.NATSCreds, group: true},
		{what: "nats-key", path: s.NATSKey, group: true},
		{what: "nats-system-creds", path: s.NATSSystemCreds, group: true},
		{what: "the credentials of S3", path: d.awsCredentials(), optional: true, group: true},
	}
	if d.o.Config != "" && s.hasSecrets(d.o.Origins) {
		all = append(all, secret{what: "the file of settings, in which a password stands,", path: d.o.Config, group: true})
	}
	return slices.DeleteFunc(all, func(f secret) bool { return f.path == "" })
}

// hasSecrets says whether a setting that comes from a file holds a password.
func (s *Settings) hasSecrets(from Origins) bool {
	for name, value := range map[string]string{
		"nats-url": s.NATSURL, "nats-system-url": s.NATSSystemURL, "lake-catalog-properties": strings.Join(s.LakeCatalogProperties, ","),
	} {
		shown := withoutPasswords(value)
		if name == "lake-catalog-properties" {
			shown = withoutSecrets(value)
		}
		if strings.HasPrefix(from[name], "file ") && shown != value {
			return true
		}
	}
	return false
}

// awsCredentials is the file of credentials that S3 is reached with, when there is S3.
func (d *doctor) awsCredentials() string {
	if !strings.HasPrefix(d.s.LakeURI, "s3://") && !strings.HasPrefix(d.s.RemoteURI, "s3://") {
		return ""
	}
	if path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE"); path != "" {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".aws", "credentials")
}

// lookAtSecrets tells which files with secrets others can read, or we cannot.
func (d *doctor) lookAtSecrets(context.Context) {
	looked, well := 0, true
	for _, f := range d.secrets() {
		info, err := os.Stat(f.path)
		if f.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		looked++
		may := fs.FileMode(0o077)
		if f.group {
			may = 0o007
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			well = false
			d.failed(subjectSecrets, "put it there, or name another file", "%s: there is no file %s", f.what, f.path)
		case err != nil:
			well = false
			d.failed(subjectSecrets, "run this as the user that the server runs as", "%s: %v", f.what, err)
		case !info.Mode().IsRegular():
			well = false
			d.failed(subjectSecrets, "name a file", "%s: %s is not a file", f.what, f.path)
		case info.Mode().Perm()&may != 0:
			well = false
			say := d.warn
			if f.refused {
				say = d.failed
			}
			say(subjectSecrets, "chmod 600 "+f.path+"; and make a new one, if somebody may have read it", "%s can be read by others on this machine: %s has mode %04o", f.what, f.path, info.Mode().Perm())
		default:
			if file, err := os.Open(f.path); err != nil {
				well = false
				d.failed(subjectSecrets, "give it to the user that the server runs as", "%s: %v", f.what, err)
			} else {
				_ = file.Close()
			}
		}
	}
	if looked > 0 && well {
		d.ok(subjectSecrets, "%d files with secrets are the owner's alone", looked)
	}
}
