// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// TestAlertsFire: a real Prometheus fires each of these alerts in a real fault. The
// alerts are those of deploy/monitoring/rules.yaml, without the time that a fault must last.
func TestAlertsFire(t *testing.T) {
	testutil.Full(t, "scrapes faults with a Prometheus")
	promtest.Require(t)
	if !suite.Simulated() {
		t.Skip("the ports to scrape are those of an embedded cluster")
	}
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	run(t, "alerts in faults", 10*time.Minute, step{"each fault", func(ctx context.Context, t *testing.T) {
		proxy, metrics := startFullSOCKS5(ctx, t)
		p := startPrometheus(ctx, t, promtest.ImpatientRules(t), map[string]string{socks5Job: metrics})
		for _, f := range []promtest.Fault{
			// Before calls fail: kube-apiserver waits for those, too.
			{Name: "a conversion webhook is slow", Cause: startSlowConversion(kubectl), Again: readSlowly(kubectl), Alerts: []string{"ConversionWebhookSlow"}},
			{Name: "calls fail", Cause: causeFailures, Again: func(ctx context.Context, t *testing.T) { failCalls(ctx, t, kubectl) },
				Alerts: []string{"AggregatedAPIUnavailable", "ConversionWebhookFails", "AdmissionWebhookUnreachable", "EgressDialFailures", "KonnectivityDialErrorsHigh"}},
			{Name: "passwords are wrong and connections too many", Cause: func(ctx context.Context, t *testing.T) { overload(ctx, t, proxy) },
				Alerts: []string{"SOCKS5LoginsFail", "SOCKS5Full"}},
			{Name: "a client sends garbage", Again: sendGarbage, Alerts: []string{"KonnectivityBadInput"}},
			{Name: "no node fits", Cause: pendingPod("my-scheduler"), Alerts: []string{"SchedulerPodsPending"}},
			{Name: "a Pod names a scheduler that does not exist", Cause: pendingPod("no-such-scheduler"), Alerts: []string{"PodsPendingForUnknownScheduler"}},
			{Name: "bindings are refused", Cause: refuseBindings(kubectl), Alerts: []string{"SchedulerErrors"}},
			{Name: "the Lease is deleted, and two lead", Again: deleteLease(), Alerts: []string{"SchedulerTwoLeaders"}},
			{Name: "another program holds the Lease", Cause: stealLease, Alerts: []string{"SchedulerNoLeader"}},
			{Name: "the second scheduler stops", Cause: stopProcesses("second-scheduler-"), Alerts: []string{"SchedulerAbsent"}},
			{Name: "all agents stop", Cause: stopProcesses("konnectivity-agent-"), Alerts: []string{"KonnectivityNoAgents"}},
			{Name: "the server stops", Cause: stopProcesses("konnectivity-server"),
				Alerts: []string{"KonnectivityServerGone", "KonnectivityServerAbsent", "KonnectivityAgentLinkFailures", "KonnectivityAgentMissesServers"}},
		} {
			began = time.Now() // the last fault ends all connections of agents
			t.Run(f.Name, func(t *testing.T) { p.Try(ctx, t, f) })
		}
	}}, step{"all agents are back", func(ctx context.Context, t *testing.T) { // for the tests that follow
		if err := harness.Wait(ctx, time.Minute, "both agents to be connected again", func(ctx context.Context) error {
			agents, err := connectedAgents(ctx)
			again := 0
			for _, a := range agents {
				if len(a.Status.Servers) > 0 && a.Status.Servers[0].Since.After(began) {
					again++
				}
			}
			if err == nil && again != 2 {
				err = fmt.Errorf("%d are", again)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}})
}

// startFullSOCKS5 runs "fairlead socks5" with room for one connection.
func startFullSOCKS5(ctx context.Context, t *testing.T) (proxy *url.URL, metrics string) {
	t.Helper()
	return startSOCKS5(ctx, t, "--max-connections", "1")
}

// startSOCKS5 runs "fairlead socks5". It returns the URL of the proxy without a user, and the address of its metrics.
func startSOCKS5(ctx context.Context, t *testing.T, flags ...string) (proxy *url.URL, metrics string) {
	t.Helper()
	listen, metrics := freeAddress(t), freeAddress(t)
	password := filepath.Join(t.TempDir(), "password")
	writeFile(t, password, []byte("user:right\n"))
	cmd, _, stderr := suite.Command(context.WithoutCancel(ctx), append([]string{"socks5", "--listen", listen, "--metrics-address", metrics, "--password-file", password}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("fairlead socks5: %v\n%s", err, stderr)
		}
	})
	err := harness.Wait(ctx, 30*time.Second, "fairlead socks5", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	return &url.URL{Scheme: "http", Host: listen}, metrics
}

// overload gives a proxy wrong passwords, and opens connections while another one has the only place.
func overload(ctx context.Context, t *testing.T, proxy *url.URL) {
	t.Helper()
	wrong := *proxy
	wrong.User = url.UserPassword("user", "wrong")
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&wrong), DisableKeepAlives: true}}
	for range 25 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://nothing.default:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.Do(req); err == nil { //nolint:bodyclose // there is none
			t.Fatalf("a wrong password is accepted: %s", resp.Status)
		}
	}
	held := holdPlace(ctx, t, proxy.Host)
	defer held.Close()
	for range 5 {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	time.Sleep(3 * time.Second) // longer than between two scrapes
}

// holdPlace opens a connection through the proxy, as soon as the refused ones are over.
func holdPlace(ctx context.Context, t *testing.T, proxy string) (held net.Conn) {
	t.Helper()
	err := harness.Wait(ctx, 30*time.Second, "a place of fairlead socks5", func(ctx context.Context) (err error) {
		held, err = connectBySOCKS5(ctx, proxy, "right")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// connectBySOCKS5 opens a connection to the test server by HTTP CONNECT.
func connectBySOCKS5(ctx context.Context, proxy, password string) (net.Conn, error) {
	destination := net.JoinHostPort(harness.ServerName+"."+harness.Namespace, "7")
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", destination, base64.StdEncoding.EncodeToString([]byte("user:"+password)))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") {
		_ = conn.Close()
		return nil, fmt.Errorf("CONNECT %s: %q: %w", destination, line, err)
	}
	return conn, conn.SetDeadline(time.Time{})
}

// sendGarbage speaks no protocol of the tunnel to the server, as a client next to kube-apiserver.
func sendGarbage(ctx context.Context, t *testing.T) {
	t.Helper()
	for range 10 {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(suite.StateDir(suite.Name), "run/konnectivity-server.socket"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("this is not a request\r\n\r\n")) // the server may have closed it already
		_ = conn.Close()
	}
}

// pendingPod leaves a Pod that fits no node to a scheduler.
func pendingPod(scheduler string) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		requestingPod(ctx, t, scheduler, map[string]string{"fairlead.test/nowhere": "true"})
	}
}

// requestingPod creates a Pod with a request, which the metrics of a scheduler's resources have.
func requestingPod(ctx context.Context, t *testing.T, scheduler string, nodes map[string]string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "requests-", Namespace: harness.Namespace}, Spec: corev1.PodSpec{
		SchedulerName: scheduler, NodeSelector: nodes,
		Containers: []corev1.Container{{
			Name: "none", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
		}},
	}}
	pods := suite.Client.CoreV1().Pods(harness.Namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// stealLease holds the Lease of the second scheduler.
func stealLease(ctx context.Context, t *testing.T) {
	t.Helper()
	leases := suite.Client.CoordinationV1().Leases("kube-system")
	held, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; held.Err() == nil; time.Sleep(time.Second) {
			lease, err := leases.Get(held, "my-scheduler", metav1.GetOptions{})
			if err != nil {
				continue
			}
			holder, seconds, now := "a thief", int32(15), metav1.NowMicro()
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &seconds, &now
			_, _ = leases.Update(held, lease, metav1.UpdateOptions{}) // after a conflict, the next one succeeds
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// stopProcesses stops the programs whose names begin so, and starts them again after the test.
func stopProcesses(prefix string) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		t.Helper()
		programs := suite.Processes(prefix)
		atEnd(ctx, t, func(ctx context.Context) {
			if err := programs.Start(ctx); err != nil {
				t.Error(err)
			}
		})
		if err := programs.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
