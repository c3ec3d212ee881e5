package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/errs"
)

// MinPayload is the least max_payload of the servers: a record of the log and its
// headers must fit.
const MinPayload = 1 << 20

// Demands are what the servers must give.
type Demands struct {
	// Replicas of each stream; 0 is 3 where the server is one of a cluster, else 1.
	Replicas int
	// StoreBytes is what all streams together may hold, once.
	StoreBytes int64
	// Insecure makes warnings of what would be refused because a power cut loses rows.
	Insecure bool
	// SystemURLs and SystemCredentials reach the system account, which alone sees
	// whether a server syncs what it writes; "" when there is no access.
	SystemURLs, SystemCredentials string
}

// Findings are what the servers give.
type Findings struct {
	Replicas int
	// Warnings are sentences for the log.
	Warnings []string
}

// Check compares the servers' settings with what is demanded. The error, errs.
// InvalidRequest, says what to set.
func (c *Conn) Check(ctx context.Context, d Demands) (Findings, error) {
	f := Findings{Replicas: d.Replicas}
	warn := func(format string, args ...any) { f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...)) }
	clustered := c.nc.ConnectedClusterName() != ""
	switch {
	case d.Replicas == 0 && clustered:
		f.Replicas = 3
	case d.Replicas == 0:
		f.Replicas = 1
	case d.Replicas > 1 && !clustered:
		return f, errs.New(errs.InvalidRequest, "%d replicas are asked for, and the NATS server %s is by itself", d.Replicas, c.nc.ConnectedServerName())
	}
	if f.Replicas < 3 {
		warn("each stream has %d replica(s): what one NATS server loses is lost; run three", f.Replicas)
	}
	if n := c.nc.MaxPayload(); n < MinPayload {
		return f, errs.New(errs.InvalidRequest, "max_payload of the NATS server is %d bytes; set it to %d or more", n, MinPayload)
	}
	if err := c.CheckAccount(ctx, d.StoreBytes, f.Replicas); err != nil {
		return f, err
	}
	if d.SystemURLs == "" && d.SystemCredentials == "" {
		warn("whether the NATS servers sync what they write cannot be seen without their system account (--nats-system-url): make sure that each has jetstream.sync_interval: always, or a power cut loses rows")
		return f, nil
	}
	servers, err := c.serverSettings(ctx, d, nil)
	if err != nil {
		return f, err
	}
	for _, s := range servers {
		config := s.Data.JetStream.Config
		if config.StoreDir == "" { // it has no JetStream
			continue
		}
		if !config.SyncAlways && !d.Insecure {
			return f, errs.New(errs.InvalidRequest, "the NATS server %s does not sync what it writes, so a power cut loses rows: set jetstream.sync_interval to always, or allow it with insecure-nats", s.Server.Name)
		}
		if !config.SyncAlways {
			warn("the NATS server %s does not sync what it writes: a power cut loses rows", s.Server.Name)
		}
		if s.Data.MaxPayload < MinPayload {
			return f, errs.New(errs.InvalidRequest, "max_payload of the NATS server %s is %d bytes; set it to %d or more", s.Server.Name, s.Data.MaxPayload, MinPayload)
		}
		if config.MaxStore > 0 && config.MaxStore < d.StoreBytes {
			warn("the NATS server %s may store %d bytes, and the logs of this cluster up to %d", s.Server.Name, config.MaxStore, d.StoreBytes)
		}
	}
	return f, nil
}

// CheckAccount compares what the account may store with what all streams together may
// hold, once. The error, errs.InvalidRequest, says what to set.
func (c *Conn) CheckAccount(ctx context.Context, storeBytes int64, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	info, err := asked(ctx, c.js.AccountInfo)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return errs.New(errs.InvalidRequest, "the NATS server has no JetStream for our account: %v", err)
	case err != nil:
		return errs.New(errs.Unavailable, "asking NATS for our account: %v", err)
	}
	limit, need := info.Limits.MaxStore, storeBytes*int64(replicas)
	if tier, ok := info.Tiers[fmt.Sprintf("R%d", replicas)]; ok {
		limit = tier.Limits.MaxStore
	}
	tiered := limit == 0 && len(info.Tiers) > 0 // and ours has no limit
	if !tiered && limit >= 0 && limit < need {
		return errs.New(errs.InvalidRequest, "our NATS account may store %d bytes, and the logs take up to %d (%d replicas of %d): raise its limit, or make the logs smaller (--log-max-size, for each shard)", limit, need, replicas, storeBytes)
	}
	return nil
}

// serverSettings is a server's answer to the system account.
type serverSettings struct {
	Server struct {
		Name string    `json:"name"`
		Time time.Time `json:"time"`
	} `json:"server"`
	Data struct {
		MaxPayload int64 `json:"max_payload"`
		JetStream  struct {
			Config struct {
				StoreDir   string `json:"store_dir"`
				MaxStore   int64  `json:"max_storage"`
				SyncAlways bool   `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	} `json:"data"`

	// at is the middle of the time between question and answer, and waited half of it.
	at     time.Time
	waited time.Duration
}

const (
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
)

// serverSettings asks all servers for their settings. Those that are away do not answer. With
// a clock it remembers when each was asked and answered.
func (c *Conn) serverSettings(ctx context.Context, d Demands, now func() time.Time) ([]serverSettings, error) {
	urls := d.SystemURLs
	if urls == "" {
		urls = strings.Join(c.nc.Servers(), ",")
	}
	list, err := splitURLs(urls)
	if err != nil {
		return nil, err
	}
	dial := c.dial
	if d.SystemCredentials != "" {
		dial = append(slices.Clip(dial), nats.UserCredentials(d.SystemCredentials))
	}
	nc, err := nats.Connect(strings.Join(list, ","), dial...)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "connecting to the system account of NATS: %v", err)
	}
	defer nc.Close()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "asking the NATS servers for their settings: %v", err)
	}
	if err := nc.PublishRequest("$SYS.REQ.SERVER.PING.VARZ", inbox, nil); err != nil {
		return nil, errs.New(errs.Unavailable, "asking the NATS servers for their settings: %v", err)
	}
	var asked time.Time
	if now != nil {
		asked = now()
	}
	var all []serverSettings
	for wait := firstAnswer; ; wait = nextAnswer {
		waitCtx, cancel := context.WithTimeout(ctx, wait)
		msg, err := sub.NextMsgWithContext(waitCtx)
		cancel()
		if err != nil {
			break
		}
		var s serverSettings
		if err := json.Unmarshal(msg.Data, &s); err != nil || s.Server.Name == "" {
			continue // it is not a server's answer
		}
		if now != nil {
			s.waited = now().Sub(asked) / 2
			s.at = asked.Add(s.waited)
		}
		all = append(all, s)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errs.New(errs.InvalidRequest, "no NATS server tells its settings: the user given is not of the system account")
	}
	return all, nil
}
