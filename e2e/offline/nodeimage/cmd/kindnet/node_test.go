// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kernel answers commands from a table and remembers those that change something.
type kernel struct {
	routes  string // `ip -4 route show proto 197`
	rules   map[string]bool
	changes []string
}

func (k *kernel) command(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	switch {
	case strings.HasPrefix(line, "ip -4 route show"):
		return k.routes, nil
	case strings.HasPrefix(line, "ip -6 route show"):
		return "", nil
	case strings.Contains(line, "--check"):
		if k.rules[strings.Replace(line, "--check", "--append", 1)] {
			return "", nil
		}
		return "", errors.New("bad rule")
	case strings.Contains(line, "--append"):
		k.rules[line] = true
	}
	if !strings.Contains(line, "--new-chain") {
		k.changes = append(k.changes, line)
	}
	return "", nil
}

func testNode(name, ip string, cidrs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDRs: cidrs},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func TestSync(t *testing.T) {
	k := &kernel{rules: map[string]bool{}, routes: `10.244.1.0/24 via 172.18.0.3 dev eth0
10.244.2.0/24 via 172.18.0.9 dev eth0
10.244.7.0/24 via 172.18.0.7 dev eth0
`}
	n := node{name: "me", podSubnets: []string{"10.244.0.0/16"}, confDir: t.TempDir(), command: k.command}
	nodes := []*corev1.Node{
		testNode("me", "172.18.0.2", "10.244.0.0/24"),
		testNode("same", "172.18.0.3", "10.244.1.0/24"),
		testNode("moved", "172.18.0.4", "10.244.2.0/24"),
		testNode("new", "172.18.0.5", "10.244.3.0/24"),
		testNode("not yet", "172.18.0.6"),
	}
	if err := n.sync(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	slices.Sort(k.changes)
	want := []string{
		"ip -4 route del 10.244.7.0/24 proto 197",
		"ip route replace 10.244.2.0/24 via 172.18.0.4 proto 197",
		"ip route replace 10.244.3.0/24 via 172.18.0.5 proto 197",
		"iptables --wait --table nat --append KIND-MASQ --destination 10.244.0.0/16 --jump RETURN",
		"iptables --wait --table nat --append KIND-MASQ --jump MASQUERADE",
		"iptables --wait --table nat --append POSTROUTING --source 10.244.0.0/16 --match addrtype ! --dst-type LOCAL --jump KIND-MASQ",
	}
	if !slices.Equal(k.changes, want) {
		t.Errorf("changes:\n%s\nwant\n%s", strings.Join(k.changes, "\n"), strings.Join(want, "\n"))
	}
	data, err := os.ReadFile(filepath.Join(n.confDir, "10-kindnet.conflist"))
	if err != nil || !json.Valid(data) || !strings.Contains(string(data), `"subnet": "10.244.0.0/24"`) {
		t.Errorf("%v: %s", err, data)
	}

	// sync changes nothing that is already correct.
	k.changes = nil
	k.routes = "10.244.1.0/24 via 172.18.0.3 dev eth0\n10.244.2.0/24 via 172.18.0.4 dev eth0\n10.244.3.0/24 via 172.18.0.5 dev eth0\n"
	before, _ := os.Stat(filepath.Join(n.confDir, "10-kindnet.conflist"))
	if err := n.sync(t.Context(), nodes); err != nil || len(k.changes) > 0 {
		t.Errorf("the second time: %v, %v", k.changes, err)
	}
	if after, _ := os.Stat(filepath.Join(n.confDir, "10-kindnet.conflist")); !os.SameFile(before, after) {
		t.Error("the configuration was written again: containerd reads it again, too")
	}
}

func TestTwoFamilies(t *testing.T) {
	data, err := conf([]string{"10.244.0.0/24", "fd00:10:244::/64"})
	for _, want := range []string{`"dst": "0.0.0.0/0"`, `"dst": "::/0"`, `"subnet": "fd00:10:244::/64"`} {
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%v, %s, want %s", err, data, want)
		}
	}
	other := testNode("other", "172.18.0.3")
	other.Status.Addresses = append(other.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fc00::3"})
	if ip, ok := internalIP(other, true); !ok || ip.String() != "fc00::3" {
		t.Errorf("the address for IPv6 is %v, %v", ip, ok)
	}
	if _, err := conf([]string{"no CIDR"}); err == nil {
		t.Error("a CIDR that is none: no error")
	}
}

// One route that cannot be set does not keep the others from being set.
func TestFailingRoute(t *testing.T) {
	k := &kernel{rules: map[string]bool{}}
	fails := func(ctx context.Context, name string, args ...string) (string, error) {
		if slices.Contains(args, "10.244.1.0/24") {
			return "", errors.New("Network is unreachable")
		}
		return k.command(ctx, name, args...)
	}
	n := node{name: "me", podSubnets: nil, confDir: t.TempDir(), command: fails}
	err := n.sync(t.Context(), []*corev1.Node{testNode("a", "172.18.0.3", "10.244.1.0/24"), testNode("b", "172.18.0.4", "10.244.2.0/24")})
	if err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("error = %v", err)
	}
	if !slices.Contains(k.changes, "ip route replace 10.244.2.0/24 via 172.18.0.4 proto 197") {
		t.Errorf("changes: %v", k.changes)
	}
}
