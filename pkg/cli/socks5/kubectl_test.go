// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// realOptions are for a proxy before a real kube-apiserver on loopback. The network of this
// machine is its path.
func realOptions(t *testing.T, cp *daemontest.ControlPlane, command ...string) (o *Options, stdout, stderr *bytes.Buffer) {
	t.Helper()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	o = NewOptions(genericiooptions.IOStreams{In: strings.NewReader(""), Out: stdout, ErrOut: stderr})
	o.Cluster.KubeConfig, o.Via, o.Listen, o.Command = &cp.Kubeconfig, "network", "127.0.0.1:0", command
	o.AuditLog = filepath.Join(t.TempDir(), "audit.json")
	return o, stdout, stderr
}

// TestCommandKubectl: kubectl reaches a real API server on loopback through the proxy, by the
// current context and by its name, although the environment excludes loopback from proxies. Its
// kubeconfig is private and gone afterwards with its directory, and the password is in no output.
// It observes SOCKS-07 and SOCKS-10 of docs/requirements.md.
func TestCommandKubectl(t *testing.T) {
	testutil.Full(t, "starts another API server, and needs kubectl; TestCommand and TestHostedManifestStarts use Go's client")
	cp := daemontest.StartControlPlane(t)
	kubectl := daemontest.Components(t, "kubectl")["kubectl"]
	before, err := os.ReadFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	script := kubectl + ` get namespaces -o name && ` + kubectl + ` --context test get namespaces -o name &&
echo "file $KUBECONFIG" && stat -c "mode %a" "$KUBECONFIG" "$(dirname "$KUBECONFIG")" && grep -o "proxy-url: socks5://fairlead:" "$KUBECONFIG" &&
sed -n "s/.*proxy-url: socks5:..fairlead:\\([^@]*\\)@.*/\\1/p" "$KUBECONFIG" > "$0"`
	shown := filepath.Join(t.TempDir(), "password")
	o, stdout, stderr := realOptions(t, cp, "sh", "-c", script, shown)
	if err := run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	out := stdout.String()
	if strings.Count(out, "namespace/default\n") != 2 || !strings.Contains(out, "mode 600\nmode 700\n") || !strings.Contains(out, "proxy-url: socks5://fairlead:") {
		t.Errorf("%s%s", out, stderr)
	}
	_, path, _ := strings.Cut(out, "file ")
	path, _, _ = strings.Cut(path, "\n")
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("%q stays: %v", filepath.Dir(path), err)
	}
	if after, err := os.ReadFile(cp.Kubeconfig); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the user's kubeconfig is now %s, %v", after, err)
	}
	audit, err := os.ReadFile(o.AuditLog)
	server := cp.Client.CoreV1().RESTClient().Get().URL().Host
	if err != nil || strings.Count(string(audit), `"destination":"`+server+`"`) < 2 || !strings.Contains(string(audit), `"protocol":"socks5"`) || strings.Contains(string(audit), `"denied"`) {
		t.Errorf("the audit log: %v\n%s", err, audit)
	}
	if password, err := os.ReadFile(shown); err != nil || len(password) < 10 || strings.Contains(out+stderr.String()+string(audit), strings.TrimSpace(string(password))) {
		t.Errorf("the password is shown, or unknown: %v\n%s%s", err, out, stderr)
	}
}

// TestLocalAPIServerBeyondLoopback: a proxy that other machines reach leads none of them to an
// API server on its own loopback.
func TestLocalAPIServerBeyondLoopback(t *testing.T) {
	for listen, ok := range map[string]bool{"127.0.0.1": true, "::1": true, "0.0.0.0": false, "192.0.2.1": false} {
		o, _ := newOptions(t)
		o.InsecureAllowLocal, o.Via = false, "network"
		a, err := o.authorizer(&rest.Config{Host: "https://127.0.0.1:6443"}, &net.TCPAddr{IP: net.ParseIP(listen), Port: 1080})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Authorize(t.Context(), nil, gateway.Destination{Kind: gateway.KindExternal, Host: "127.0.0.1", Port: 6443, Addr: netip.MustParseAddrPort("127.0.0.1:6443")})
		if (err == nil) != ok {
			t.Errorf("a proxy on %s: %v, want allowed %v", listen, err, ok)
		}
	}
}
