// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDocs: docs/socks5.md has each reason with its replies, and each metric with its labels.
func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/socks5.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_-]+)` \\|(.*)\\|$").FindAllStringSubmatch(string(text), -1) {
		for _, cell := range strings.Split(m[2], " | ") {
			rows[m[1]] = append(rows[m[1]], strings.TrimSpace(cell))
		}
	}
	for reason, a := range answers {
		row := rows[string(reason)]
		if len(row) != 3 || row[1] != fmt.Sprintf("`0x%02x`", a.reply) || row[2] != fmt.Sprint(a.status) {
			t.Errorf("reason %s, %#02x, %d: the page has %q", reason, a.reply, a.status, row)
		}
	}
	descriptions := make(chan *prometheus.Desc, 100)
	m := NewMetrics(nil)
	for _, c := range []prometheus.Collector{m.open, m.rejected, m.connections, m.authFailures, m.bytes, m.dialSeconds} {
		c.Describe(descriptions)
	}
	close(descriptions)
	for d := range descriptions {
		parts := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*?)\}`).FindStringSubmatch(d.String())
		var labels []string
		for _, l := range strings.Split(parts[2], ",") {
			if l != "" {
				labels = append(labels, "`"+l+"`")
			}
		}
		if row, ok := rows[parts[1]]; !ok || row[0] != strings.Join(labels, ", ") {
			t.Errorf("metric %s with %q: the page has %q", parts[1], labels, row)
		}
	}
}
