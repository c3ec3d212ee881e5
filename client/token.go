package client

import (
	"context"
	"os"
	"strings"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/openapi"
)

// maxToken is more than a server takes.
const maxToken = 16 << 10

// token is what to send; "" for nothing. No error shows it.
func (o *Options) token() (string, error) {
	text, from := o.Token, "the token"
	if o.TokenFile != "" {
		b, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return "", errs.New(errs.InvalidRequest, "the file of the token cannot be read: %v", err)
		}
		if text, from = strings.TrimSpace(string(b)), "the token in "+o.TokenFile; text == "" {
			return "", errs.New(errs.InvalidRequest, "there is no token in %s", o.TokenFile)
		}
	}
	if len(text) > maxToken || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errs.New(errs.InvalidRequest, "%s is none: it has up to %d letters and no spaces or line ends", from, maxToken)
	}
	return text, nil
}

// Whoami says whom the server takes the caller for.
func (c *Client) Whoami(ctx context.Context) (openapi.Whoami, error) {
	var out openapi.Whoami
	resp, err := c.api.Whoami(ctx)
	return out, decode(resp, err, &out)
}
