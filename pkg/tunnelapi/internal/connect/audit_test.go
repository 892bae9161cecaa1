// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAuditAnnotations: the audit log says what a client asked for, which object that is, and why it was refused, also what
// the client does not learn. Of a name that the client may not look up, it says no object.
func TestAuditAnnotations(t *testing.T) {
	const prefix = "connect.tunnel.fairlead.dev/"
	w := newWorld(t, echo, nil, append(allRights, "connect destinations/services web svc:82")...)
	service := map[string]string{prefix + "kind": "Service", prefix + "object": "web/svc", prefix + "address": "192.0.2.1:8080"}
	with := func(m map[string]string, pairs ...string) map[string]string {
		out := map[string]string{}
		maps.Copy(out, m)
		for i := 0; i < len(pairs); i += 2 {
			out[prefix+pairs[i]] = pairs[i+1]
		}
		return out
	}
	for name, c := range map[string]struct {
		host    string
		port    int
		code    int32 // 0 for a connection
		want    map[string]string
		refusal string
	}{
		"open":                      {"svc.web.svc", 80, 0, with(service, "destination", "svc.web.svc:80"), ""},
		"address without the right": {"192.0.2.8", 81, 403, with(nil, "destination", "192.0.2.8:81", "kind", "External", "object", "/", "address", "192.0.2.8:81"), `"alice"`},
		"loopback":                  {"127.0.0.1", 81, 403, with(nil, "destination", "127.0.0.1:81", "kind", "External", "object", "/", "address", "127.0.0.1:81"), "127.0.0.0/8"},
		"name without the right":    {"svc.web.svc", 81, 403, with(nil, "destination", "svc.web.svc:81"), `"alice"`},
		"no port":                   {"svc.web.svc", 0, 400, with(nil, "destination", "svc.web.svc:0"), ""},
	} {
		conn, s := w.dial("alice", c.host, c.port)
		if conn == nil && s.Code != c.code || conn != nil && c.code != 0 {
			t.Fatalf("%s: %+v", name, s)
		}
		got := w.audit.Load().GetEventAnnotations()
		refusal := got[prefix+"refusal"]
		delete(got, prefix+"refusal")
		if (refusal == "") != (c.refusal == "") || !strings.Contains(refusal, c.refusal) {
			t.Errorf("%s: refusal %q, want one with %q", name, refusal, c.refusal)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
