// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"slices"
	"testing"
)

// TestNames: what a rule may call a host is each spelling that the cluster's DNS has for it, and no other.
func TestNames(t *testing.T) {
	web := []string{"web.shop", "web.shop.svc", "web.shop.svc.example.inner"}
	for host, want := range map[string][]string{
		"web.shop": web, "WEB.shop.svc": web, "web.shop.SVC.example.inner.": web,
		"web":                             {"web", "web.prod", "web.prod.svc", "web.prod.svc.example.inner"},
		"web.prod.svc":                    {"web", "web.prod", "web.prod.svc", "web.prod.svc.example.inner"},
		"web.shop.":                       {"web.shop"}, // a host outside of the cluster
		"web.shop.svc.wrong.":             {"web.shop.svc.wrong"},
		"0.web.shop.svc":                  append([]string{"0.web.shop.svc", "0.web.shop.svc.example.inner"}, web...),
		"10-1-0-1.shop.pod":               {"10-1-0-1.shop.pod", "10-1-0-1.shop.pod.example.inner"},
		"10-1-0-1.shop.pod.example.inner": {"10-1-0-1.shop.pod", "10-1-0-1.shop.pod.example.inner"},
		"WWW.Example.com.":                {"www.example.com"},
		"localhost.":                      {"localhost"},
		"10.0.0.1":                        nil,
		"[fd00::1]":                       nil,
	} {
		if got := Names(host, "prod", "Example.Inner."); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	if got := Names("web", "", ""); !slices.Equal(got, []string{"web"}) {
		t.Errorf("without a namespace: %q", got)
	}
	if got := Names("web.shop", "", ""); !slices.Equal(got, []string{"web.shop", "web.shop.svc", "web.shop.svc.cluster.local"}) {
		t.Errorf("by default: %q", got)
	}
}
