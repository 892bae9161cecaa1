// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"sync"
	"time"
)

// Lease is what of a coordination.k8s.io/v1 Lease is used here.
type Lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   Meta      `json:"metadata"`
	Spec       LeaseSpec `json:"spec"`
}

// Meta is what of the metadata is used.
type Meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	UID             string            `json:"uid,omitempty"`
}

// LeaseSpec is the spec of a Lease.
type LeaseSpec struct {
	HolderIdentity       *string    `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds *int32     `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          *MicroTime `json:"acquireTime,omitempty"`
	RenewTime            *MicroTime `json:"renewTime,omitempty"`
}

// MicroTime is a time with microseconds, as Kubernetes writes it.
type MicroTime struct{ time.Time }

const microFormat = "2006-01-02T15:04:05.000000Z07:00"

// MarshalJSON implements json.Marshaler.
func (t MicroTime) MarshalJSON() ([]byte, error) { return json.Marshal(t.UTC().Format(microFormat)) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *MicroTime) UnmarshalJSON(b []byte) (err error) {
	var s string
	if err = json.Unmarshal(b, &s); err == nil {
		t.Time, err = time.Parse(time.RFC3339Nano, s)
	}
	return err
}

// renewed is when the holder renewed the Lease, by its own clock; zero if it does not say.
func (l *Lease) renewed() time.Time {
	switch {
	case l.Spec.RenewTime != nil:
		return l.Spec.RenewTime.Time
	case l.Spec.AcquireTime != nil:
		return l.Spec.AcquireTime.Time
	}
	return time.Time{}
}

// duration is for how long a renewal is valid.
func (l *Lease) duration() time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// valid reports whether the holder has renewed in time, if its clock is right. See Sightings.
func (l *Lease) valid(now time.Time) bool {
	return l.renewed().Add(l.duration()).After(now)
}

type leaseList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []Lease `json:"items"`
}

// Leases are the Leases of a namespace with certain labels.
type Leases struct {
	Client    *Client
	Namespace string
	Labels    map[string]string
	// Timeout bounds each call but the watch. Default 10 s.
	Timeout time.Duration
}

// callTimeout is the default limit of calls for Leases. If the API server hangs, or the
// other end no longer knows the connection, a Lease of 30 s must still be renewed in time
// on another connection.
const callTimeout = 10 * time.Second

func (l *Leases) do(ctx context.Context, method, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.Timeout, callTimeout))
	defer cancel()
	return l.Client.do(ctx, method, path, body, out)
}

func (l *Leases) path(name string) string {
	p := "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(l.Namespace) + "/leases"
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

func (l *Leases) selector() string {
	var parts []string
	for k, v := range l.Labels {
		parts = append(parts, k+"="+v)
	}
	sort.Strings(parts)
	return url.QueryEscape(strings.Join(parts, ","))
}

// List returns the Leases and the version of the list.
func (l *Leases) List(ctx context.Context) ([]Lease, string, error) {
	var list leaseList
	err := l.do(ctx, "GET", l.path("")+"?labelSelector="+l.selector(), nil, &list)
	return list.Items, list.Metadata.ResourceVersion, err
}

// Delete removes a Lease, if version is set only in that version.
func (l *Leases) Delete(ctx context.Context, name, version string) error {
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}
	if version != "" {
		body["preconditions"] = map[string]string{"resourceVersion": version}
	}
	return l.do(ctx, "DELETE", l.path(name), body, nil)
}

// Hold renews the Lease of a holder, or makes it.
func (l *Leases) Hold(ctx context.Context, name, holder string, duration time.Duration) error {
	var cur Lease
	err := l.do(ctx, "GET", l.path(name), nil, &cur)
	code, _, _ := CodeOf(err)
	if err != nil && code != http.StatusNotFound {
		return err
	}
	now := &MicroTime{time.Now()}
	seconds := int32(duration.Seconds())
	if err == nil {
		cur.Spec.HolderIdentity, cur.Spec.LeaseDurationSeconds, cur.Spec.RenewTime = &holder, &seconds, now
		cur.Metadata.Labels = l.Labels
		return l.do(ctx, "PUT", l.path(name), &cur, nil)
	}
	fresh := Lease{APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Metadata: Meta{Name: name, Namespace: l.Namespace, Labels: l.Labels},
		Spec:     LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: now, RenewTime: now}}
	return l.do(ctx, "POST", l.path(""), &fresh, nil)
}

// Counter counts valid Leases, which it watches.
type Counter struct {
	Leases *Leases
	// OnList and OnWatch get the result of each call, for metrics; may be nil.
	OnList  func(err error, took time.Duration)
	OnWatch func(err error)
	// Silence is how long a watch may show nothing of valid Leases before it is
	// restarted. Default 20 s.
	Silence time.Duration
	// OnOddClock is that of Sightings.
	OnOddClock func(l Lease, ahead time.Duration)

	mu   sync.Mutex
	seen Sightings
}

// watchSilence is the time after which a watch that shows nothing is restarted. A Lease
// that is valid for 30 s is renewed every 15 s. If a watch does not show that, the other
// end no longer knows the watch, or the API server hangs.
const watchSilence = 20 * time.Second

// Count returns the number of valid Leases, at least 1.
func (c *Counter) Count() int {
	return max(c.valid(), 1)
}

func (c *Counter) valid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen.Valid(time.Now())
}

// Run lists and watches until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		items, version, err := c.Leases.List(ctx)
		if c.OnList != nil {
			c.OnList(err, time.Since(start))
		}
		if err == nil {
			c.set(items)
			silent, err := c.watch(ctx, version)
			if c.OnWatch != nil {
				c.OnWatch(err)
			}
			if silent {
				continue
			}
		}
		t := time.NewTimer(10 * time.Second)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

func (c *Counter) set(items []Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.OnOddClock = c.OnOddClock
	c.seen.Set(items, time.Now())
}

// watchLength is after how long the API server ends a watch.
const watchLength = 300 * time.Second

var (
	errWatch   = errors.New("watch ended with an error event")
	errSilence = errors.New("watch shows nothing")
)

// watch follows the Leases. silent says that nothing was heard of those that are valid.
func (c *Counter) watch(ctx context.Context, version string) (silent bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	listen := time.AfterFunc(c.silence(), func() { cancel(errSilence) })
	defer listen.Stop()
	err = c.follow(ctx, version, func() { listen.Reset(c.silence()) })
	if errors.Is(context.Cause(ctx), errSilence) {
		return c.valid() > 0, nil
	}
	return false, err
}

// silence is for how long nothing may be heard.
func (c *Counter) silence() time.Duration {
	if c.valid() == 0 {
		return watchLength + watchSilence
	}
	return cmp.Or(c.Silence, watchSilence)
}

func (c *Counter) follow(ctx context.Context, version string, heard func()) error {
	l := c.Leases
	path := fmt.Sprintf("%s?labelSelector=%s&watch=true&timeoutSeconds=%d&resourceVersion=%s", l.path(""), l.selector(), watchLength/time.Second, url.QueryEscape(version))
	resp, err := l.Client.request(ctx, "", "GET", path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var ev struct {
			Type   string `json:"type"`
			Object Lease  `json:"object"`
		}
		if err := dec.Decode(&ev); err != nil {
			return nil // the server ends watches after a while
		}
		c.mu.Lock()
		switch ev.Type {
		case "ADDED", "MODIFIED":
			c.seen.Add(ev.Object, time.Now())
		case "DELETED":
			c.seen.Delete(ev.Object.Metadata.Name)
		case "ERROR":
			c.mu.Unlock()
			return errWatch
		}
		c.mu.Unlock()
		heard() // of Leases as they are now
	}
}
