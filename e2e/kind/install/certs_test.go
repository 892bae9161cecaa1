// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/controlplane"
)

const (
	serverKubeconfig = "/etc/kubernetes/konnectivity-server.conf"
	servingCert      = "/etc/kubernetes/pki/apiserver.crt"
	// agentPort is where agents connect and see the certificate.
	agentPort = "8132"
)

// dialsPerSecond is the load under which certificates are renewed.
const dialsPerSecond = 20

// renewUnderLoad renews the server's client certificate and, as kubeadm does,
// the serving certificate that agents verify, while calls are dialed all the
// time. After that, new agents must connect to a server that uses both.
func renewUnderLoad(ctx context.Context, t *testing.T) {
	wantTexts(t, inNode(ctx, t, "certs", "check"), serverKubeconfig, servingCert, "good")
	if out, err := harness.Run(ctx, node(), "fairlead", "certs", "check", "--warn-before", "100000h"); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("certs check of what will expire: %v, want exit code 3\n%s", err, out)
	}
	before, file, shown := certificate(ctx, t, serverKubeconfig), stat(ctx, t, serverKubeconfig), shownToAgents(ctx, t)

	load := harness.StartLoad(ctx, dialsPerSecond, func(ctx context.Context) error {
		_, err := suite.ServiceGet(ctx, "healthz", nil)
		return err
	})
	wantTexts(t, inNode(ctx, t, "certs", "renew"), "renewed "+serverKubeconfig, "while the server runs")
	renewByKubeadm(ctx, t, shown)
	if err := suite.Agents().Restart(ctx); err != nil {
		t.Error(err)
	}
	dials := load.Stop()
	t.Logf("meanwhile: %s", dials)
	if dials.Failed > 0 || dials.Made < 5*dialsPerSecond {
		t.Errorf("want that no dial fails: %s", dials)
	}

	if after := certificate(ctx, t, serverKubeconfig); !after.Expires.After(before.Expires) {
		t.Errorf("the renewed certificate expires %s, the one before %s", after.Expires, before.Expires)
	}
	if now := stat(ctx, t, serverKubeconfig); now != file {
		t.Errorf("%s is another file now, which the Pod does not see: inode, mode, owner %s, before %s", serverKubeconfig, now, file)
	}
	wantTexts(t, inNode(ctx, t, "certs", "renew", "--expiring-within", "720h"), "Nothing to renew.")
	inNode(ctx, t, "certs", "check")
}

// renewByKubeadm renews apiserver.crt and then restores the old one, so the
// node can be compared at the end. The server presents each within a moment.
func renewByKubeadm(ctx context.Context, t *testing.T, old *big.Int) {
	t.Helper()
	const pki = "cd /etc/kubernetes/pki && "
	for _, s := range []struct {
		what, script string
		same         bool
	}{
		{"the renewed certificate", pki + "cp -p apiserver.crt apiserver.key /root/ && kubeadm certs renew apiserver", false},
		{"the old certificate", pki + "cp -p /root/apiserver.key /root/apiserver.crt .", true},
	} {
		if out, err := harness.Run(ctx, node(), "sh", "-c", s.script); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		err := harness.Wait(ctx, 30*time.Second, "the server to show agents "+s.what, func(ctx context.Context) error {
			if now := shownToAgents(ctx, t); (now.Cmp(old) == 0) != s.same {
				return fmt.Errorf("it shows number %x, before it was %x", now, old)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// shownToAgents is the serial number of the certificate on the agents' port.
func shownToAgents(ctx context.Context, t *testing.T) *big.Int {
	t.Helper()
	ip, err := harness.Address(node())
	if err != nil {
		t.Fatal(err)
	}
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}} //nolint:gosec // only its number is looked at
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, agentPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber
}

// certificate is what "fairlead certs check" tells of the one in a file.
func certificate(ctx context.Context, t *testing.T, path string) controlplane.Certificate {
	t.Helper()
	out, err := harness.Run(ctx, node(), "fairlead", "certs", "check", "-o", "json")
	var list []controlplane.Certificate
	if err = errors.Join(err, json.Unmarshal([]byte(out), &list)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range list {
		if c.Path == path {
			return c
		}
	}
	t.Fatalf("there is no %s:\n%s", path, out)
	return controlplane.Certificate{}
}

// stat holds the attributes of a file that must not change with its content.
func stat(ctx context.Context, t *testing.T, path string) string {
	t.Helper()
	out, err := harness.Run(ctx, node(), "stat", "-c", "%i %a %u:%g", path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
