// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// canned is an API server that says the same to each list and the same to each watch.
type canned struct{ list, watch string }

// RoundTrip implements http.RoundTripper.
func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	body := c.list
	if r.URL.Query().Has("watch") {
		body = c.watch
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// leaseWant is what Kubernetes' own types make of a list and a watch.
type leaseWant struct {
	last    map[string]*coordinationv1.Lease
	valid   map[string]bool // by the Leases' names
	events  int             // that tell something of Leases
	refused bool            // the watch ends with an error event
	strange bool            // something is no Lease for these types, which read more of it
}

// set takes a Lease from the list, or from an event: one that differs in what a renewal changes was renewed just now.
func (w *leaseWant) set(l *coordinationv1.Lease, event bool, now time.Time) {
	at := l.Spec.RenewTime
	if at == nil {
		at = l.Spec.AcquireTime
	}
	s := ptr.Deref(l.Spec.LeaseDurationSeconds, 0)
	before, known := w.last[l.Name]
	w.last[l.Name] = l
	switch {
	case at == nil || at.IsZero() || s <= 0:
		w.valid[l.Name] = false
	case !event:
		w.valid[l.Name] = now.Before(at.Add(time.Duration(s) * time.Second))
	case !known || before.UID != l.UID || ptr.Deref(before.Spec.LeaseDurationSeconds, 0) != s || !renewal(before).Equal(at):
		w.valid[l.Name] = true
	}
}

func renewal(l *coordinationv1.Lease) *metav1.MicroTime {
	if l.Spec.RenewTime != nil {
		return l.Spec.RenewTime
	}
	return l.Spec.AcquireTime
}

func (w *leaseWant) readList(text string, now time.Time) {
	var list coordinationv1.LeaseList
	w.strange = json.NewDecoder(strings.NewReader(text)).Decode(&list) != nil
	for i := range list.Items {
		w.set(&list.Items[i], false, now)
	}
}

func (w *leaseWant) readWatch(text string, now time.Time) {
	for dec := json.NewDecoder(strings.NewReader(text)); !w.refused; {
		var text json.RawMessage
		if dec.Decode(&text) != nil {
			return
		}
		var ev struct {
			Type   string
			Object coordinationv1.Lease
		}
		if json.Unmarshal(text, &ev) != nil {
			w.strange = true
			return
		}
		switch ev.Type {
		case "ADDED", "MODIFIED":
			w.set(&ev.Object, true, now)
		case "DELETED":
			delete(w.valid, ev.Object.Name)
			delete(w.last, ev.Object.Name)
		case "ERROR":
			w.refused = true
			continue
		}
		w.events++
	}
}

const (
	fuzzLease = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a","resourceVersion":"7"},"spec":{"holderIdentity":"h","leaseDurationSeconds":30,"renewTime":"2999-01-02T03:04:05.678901Z"}}`
	fuzzOld   = `{"metadata":{"name":"b"},"spec":{"leaseDurationSeconds":30,"acquireTime":"2001-01-02T03:04:05.678901Z"}}`
)

// FuzzLeases: whatever an API server answers to the list of Leases and to the watch, it is
// refused, or the servers are counted that Kubernetes' own types find in it, and each
// event is heard.
func FuzzLeases(f *testing.F) {
	const list, event = `{"metadata":{"resourceVersion":"7"},"items":[`, `{"type":"`
	f.Add(list+fuzzLease+","+fuzzOld+"]}", event+`MODIFIED","object":`+fuzzOld+"}\n"+event+`DELETED","object":`+fuzzLease+"}\n")
	f.Add(list+"]}", event+`ADDED","object":`+fuzzLease+`}`+event+`BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}`)
	f.Add(list+fuzzLease+"]}", event+`ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}}`+event+`DELETED","object":`+fuzzLease+"}")
	f.Add(list+strings.Replace(fuzzLease, "renew", "acquire", 1)+"]}", "")
	f.Add(`{"items":null}`, event+`ADDED","object":{"spec":{"leaseDurationSeconds":-1,"renewTime":null}}}`)
	f.Fuzz(func(t *testing.T, list, watch string) {
		now := time.Now()
		c := &Counter{Leases: &Leases{Namespace: "n", Client: &Client{cfg: Config{QPS: -1}, http: &http.Client{Transport: canned{list, watch}}}}}
		want := leaseWant{last: map[string]*coordinationv1.Lease{}, valid: map[string]bool{}}
		want.readList(list, now)
		items, version, err := c.Leases.List(t.Context())
		if err != nil {
			if !want.strange {
				t.Errorf("refused %q: %v", list, err)
			}
			return
		}
		c.set(items)
		want.readWatch(watch, now)
		heard := 0
		err = c.follow(t.Context(), version, func() { heard++ })
		if c.Count() < 1 {
			t.Errorf("%d servers are counted", c.Count())
		}
		if !want.strange {
			want.compare(t, c, heard, errors.Is(err, errWatch), now)
		}
	})
}

func (w *leaseWant) compare(t *testing.T, c *Counter, heard int, refused bool, now time.Time) {
	t.Helper()
	if heard != w.events || refused != w.refused {
		t.Errorf("%d events are heard, the last one of an error: %v; want %d, %v", heard, refused, w.events, w.refused)
	}
	if len(c.seen.all) != len(w.valid) {
		t.Errorf("%d Leases, want %d", len(c.seen.all), len(w.valid))
	}
	for name, valid := range w.valid {
		if g := c.seen.all[name]; g == nil || g.valid(now) != valid {
			t.Errorf("Lease %q is there: %v, want valid: %v", name, g != nil, valid)
		}
	}
}
