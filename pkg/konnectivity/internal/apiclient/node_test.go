// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestNodesWith: all pages of the list of Nodes are read, names and addresses are found in
// the form in which identifiers are compared, and the list is kept for its time.
func TestNodesWith(t *testing.T) {
	var lists atomic.Int64
	client := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		lists.Add(1)
		item := func(name, address string) string {
			return fmt.Sprintf(`{"metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":%q},{"type":"Hostname","address":%q}]}}`, name, address, name)
		}
		if r.URL.Query().Get("continue") == "" {
			fmt.Fprintf(w, `{"metadata":{"continue":"more"},"items":[%s]}`, item("a", "FD00::1"))
			return
		}
		fmt.Fprintf(w, `{"metadata":{},"items":[%s,%s]}`, item("b", "fd00:0::1"), item("c", "10.0.0.3"))
	})
	n := &Nodes{Client: client, Keep: time.Hour}
	for host, want := range map[string][]string{"fd00::1": {"a", "b"}, "10.0.0.3": {"c"}, "b": {"b"}, "other": nil} {
		got, err := n.With(t.Context(), host)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", host, got, err, want)
		}
	}
	if got := lists.Load(); got != 2 {
		t.Errorf("%d requests, want 2: one for each page", got)
	}
	n.Keep = 0
	if _, err := n.With(t.Context(), "b"); err != nil || lists.Load() != 4 {
		t.Errorf("%d requests, want 4: nothing is kept (%v)", lists.Load(), err)
	}
}

// TestPodRange: an address is found in the range of Pods of whichever Node has it, on both
// pages and in both families, and an address outside the ranges is not.
func TestPodRange(t *testing.T) {
	client := clientFor(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			fmt.Fprint(w, `{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a"},"spec":{"podCIDRs":["10.244.0.0/24","fd00:244::/64"]}}]}`)
			return
		}
		fmt.Fprint(w, `{"metadata":{},"items":[{"metadata":{"name":"b"},"spec":{"podCIDRs":["10.244.1.0/24"]}},{"metadata":{"name":"c"}}]}`)
	})
	n := &Nodes{Client: client, Keep: time.Hour}
	for address, want := range map[string]string{"10.244.0.7": "10.244.0.0/24 a", "10.244.1.255": "10.244.1.0/24 b", "fd00:244::9": "fd00:244::/64 a",
		"10.244.2.0": "invalid Prefix ", "fd00:245::1": "invalid Prefix "} {
		podCIDR, node, err := n.PodRange(t.Context(), netip.MustParseAddr(address))
		if got := fmt.Sprint(podCIDR, " ", node); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", address, got, err, want)
		}
	}
}

// TestNodesWithForbidden: a server whose rights are those of an older bundle says what it
// lacks, and does not take the answer for an empty list.
func TestNodesWithForbidden(t *testing.T) {
	client := clientFor(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	n := &Nodes{Client: client, Keep: time.Hour}
	for range 2 {
		if _, err := n.With(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "verb list on nodes") {
			t.Errorf("error %v", err)
		}
	}
}
