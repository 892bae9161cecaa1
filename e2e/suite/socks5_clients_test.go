// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/proxy"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway/sshdtest"
)

// TestSOCKS5Clients reaches Services by name through "fairlead socks5" with clients that take no proxy from their
// environment: Go's golang.org/x/net/proxy, and OpenSSH, whose ProxyCommand is nc.
// It observes SOCKS-08 of docs/requirements.md.
func TestSOCKS5Clients(t *testing.T) {
	testutil.Full(t, "its clients are ssh and nc")
	run(t, "clients of fairlead socks5", 2*time.Minute,
		step{"golang.org/x/net/proxy", goProxyToService},
		step{"agents are connected", agentsConnect},
		step{"ssh with a ProxyCommand", sshToService},
	)
}

// goProxyToService sends data through the proxy to the echo of the suite's server, and wants it back.
func goProxyToService(ctx context.Context, t *testing.T) {
	u, end := serveSOCKS5(ctx, t)
	d, err := proxy.FromURL(u, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	const service = harness.ServerName + "." + harness.Namespace
	c, err := d.(proxy.ContextDialer).DialContext(ctx, "tcp", service+":7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	sent, got := randomBytes(mebibyte), make([]byte, mebibyte)
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		written <- err
	}()
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, sent %d: %v", n, len(sent), err)
	}
	_ = c.Close()
	if err := <-written; err != nil {
		t.Error(err)
	}
	audit := end()
	wantText(t, "the audit line", audit, `protocol="socks5"`, `destination="`+service+`:7"`, `kind="Service"`, `name="`+harness.ServerName+`"`)
	wantEnd(t, audit)
}

// serveSOCKS5 runs "fairlead socks5" until end is called, which returns its log. The URL of the proxy has its password.
func serveSOCKS5(ctx context.Context, t *testing.T) (u *url.URL, end func() string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	cmd, _, stderr := suite.Command(context.WithoutCancel(ctx), append(socks5Args(), "--url-file", file)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() string {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(os.Interrupt)
			if err := cmd.Wait(); err != nil {
				t.Errorf("fairlead socks5: %v\n%s", err, stderr)
			}
		}
		return stderr.String()
	}
	t.Cleanup(func() { end() })
	err := harness.Wait(ctx, 30*time.Second, "the proxy's URL", func(context.Context) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		u, err = url.Parse(strings.TrimSpace(string(text)))
		if err == nil && u.Host == "" {
			err = fmt.Errorf("%s has no host", u.Redacted())
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, end())
	}
	return u, end
}

// sshToService logs in to an sshd behind a Service, and wants the input of a command there back. The sshd runs on this
// machine, and agents connect to it at the address that the nodes have for this machine. nc knows no passwords of SOCKS5.
func sshToService(ctx context.Context, t *testing.T) {
	ssh, nc := daemontest.Program(t, "ssh"), daemontest.Program(t, "nc")
	const name = "sshd"
	address, port := machineAddress(ctx, t), daemontest.Ports(t, 1)[0]
	b := sshdtest.New(t, "ListenAddress "+net.JoinHostPort(address, port))
	exposeMachine(ctx, t, name, 22, address, port)
	login, known, _ := strings.Cut(b.Target, "@")
	host, knownPort, err := net.SplitHostPort(known)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"socks5", "--listen", "127.0.0.1:0", "--via", "api", "--insecure-no-auth", "--"}
	script := `exec ` + ssh + ` -o "ProxyCommand=` + nc + ` -X 5 -x ${ALL_PROXY#*://} %h %p" "$@"`
	cmd, stdout, stderr := suite.Command(ctx, slices.Concat(args, []string{
		"sh", "-c", script, "sh", "-F", "none", "-i", filepath.Join(b.Home, ".ssh", "id_ed25519"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
		"-o", "UserKnownHostsFile=" + filepath.Join(b.Home, ".ssh", "known_hosts"), "-o", "HostKeyAlias=[" + host + "]:" + knownPort,
		login + "@" + name + "." + harness.Namespace, "cat",
	})...)
	sent := randomBytes(mebibyte)
	cmd.Stdin = bytes.NewReader(sent)
	if err := cmd.Run(); err != nil || !bytes.Equal(stdout.Bytes(), sent) {
		t.Errorf("%d bytes came back, sent %d: %v\n%s", stdout.Len(), len(sent), err, stderr)
	}
	wantText(t, "the audit line", stderr.String(), `protocol="socks5"`, `destination="`+name+`.`+harness.Namespace+`:22"`, `address="`+net.JoinHostPort(address, port)+`"`)
}

// machineAddress is that of this machine in the network of the nodes.
func machineAddress(ctx context.Context, t *testing.T) string {
	t.Helper()
	for _, a := range aNode(ctx, t).Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return incluster.OwnAddress(net.JoinHostPort(a.Address, "22"))
		}
	}
	t.Fatal("the node has no address")
	return ""
}

// exposeMachine makes a Service before a port of this machine, until the test ends. A Pod that never runs stands in for it:
// the right to a Service is none to an endpoint that is no Pod of its namespace.
func exposeMachine(ctx context.Context, t *testing.T, name string, port int32, address, target string) {
	t.Helper()
	number, err := strconv.ParseInt(target, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	core, endpoints := suite.Client.CoreV1(), suite.Client.DiscoveryV1().EndpointSlices(harness.Namespace)
	atEnd(ctx, t, func(ctx context.Context) {
		_ = core.Services(harness.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = endpoints.Delete(ctx, name, metav1.DeleteOptions{})
		_ = suite.DeletePod(ctx, name)
	})
	pod := suite.NewPod(name)
	pod.Spec.SchedulerName = "none"
	pod, err = core.Pods(harness.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	if pod, err = core.Pods(harness.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "tcp", Port: port}}}}
	if _, err := core.Services(harness.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("tcp"), Port: new(int32(number)), Protocol: new(corev1.ProtocolTCP)}},
	}
	if _, err := endpoints.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
