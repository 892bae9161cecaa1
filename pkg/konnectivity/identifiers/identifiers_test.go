// SPDX-License-Identifier: Apache-2.0

package identifiers_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/identifiers"
)

// TestProblems: each identifier that matches no destination is named with what to do, and
// none that matches one is.
func TestProblems(t *testing.T) {
	for query, want := range map[string][]string{
		"":                                      nil,
		"ipv4=10.9.0.1&ipv6=FD00:9::1&host=A-1": nil,
		"host=10.9.0.1&host=fd00::1":            nil,
		"ipv4=fd00::1":                          nil, // the kind does not matter to the server
		"default-route=1":                       nil,
		"cidr=10.9.0.0/16":                      {`cidr="10.9.0.0/16"`, "no strategy"},
		"ipv4=$(HOST_IP)":                       {`ipv4="$(HOST_IP)"`, "variable"},
		"host=${NODE}":                          {`host="${NODE}"`, "variable"},
		"ipv4=":                                 {"ipv4=: has no value"},
		"ipv4=10.9.0.1,10.9.0.2":                {"not an IP address", "repeat"},
		"host=a,b":                              {"not a host name", "repeat"},
		"ipv4=10.9.0.1:80":                      {"port"},
		"host=a:80":                             {"port"},
		"ipv6=[::1]":                            {"brackets"},
		"ipv6=[::1]:80":                         {"port"},
		"cidr=10.9.0.1":                         {"CIDR"},
		"default-route=yes":                     {`default-route="yes"`, "true nor false"},
		"ipv4=" + strings.Repeat("a", 70_000):   {"not an IP address"},
	} {
		v, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := identifiers.Problems(v)
		if (len(got) > 0) != (len(want) > 0) || len(got) > 1 {
			t.Errorf("%.60s: %q", query, got)
			continue
		}
		for _, text := range want {
			if !strings.Contains(got[0], text) || len(got[0]) > 200 {
				t.Errorf("%.60s: %.300q, want %q in it", query, got[0], text)
			}
		}
	}
}

// TestCanonical: forms of one address and cases of one name are equal, and others are not.
func TestCanonical(t *testing.T) {
	for _, same := range [][]string{
		{"fd00:9::1", "FD00:9::1", "fd00:9:0:0:0:0:0:1", "fd00:0009::0001"},
		{"10.0.0.1", "::ffff:10.0.0.1", "::FFFF:a00:1"},
		{"node-a.example", "Node-A.Example"},
	} {
		for _, host := range same {
			if got := identifiers.Canonical(host); got != same[0] {
				t.Errorf("%s is %s, want %s", host, got, same[0])
			}
		}
	}
}
