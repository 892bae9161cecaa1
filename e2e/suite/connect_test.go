// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	gatewaydial "github.com/fairlead-dev/fairlead/pkg/gateway/dial"
)

// echoService is the TCP echo of the suite's server.
var echoService = gateway.Destination{
	Host: harness.ServerName + "." + harness.Namespace + ".svc", Port: 7, Kind: gateway.KindService, Namespace: harness.Namespace, Name: harness.ServerName,
}

// TestConnect opens connections through agents with nothing but a kubeconfig: behind kube-apiserver, by the API of the bundle.
// It observes API-01 and API-06 of docs/requirements.md.
func TestConnect(t *testing.T) {
	testutil.Full(t, "TestSOCKS5 shows the main path of the commands")
	run(t, "connections through the tunnel's API", 3*time.Minute,
		step{"agents are connected", agentsConnect},
		step{"curl to a Service, over SOCKS5 and HTTP CONNECT", func(ctx context.Context, t *testing.T) {
			page := "http://" + harness.ServerName + "." + harness.Namespace + "/healthz"
			for protocol, proxy := range map[string]string{"socks5": `"$ALL_PROXY"`, "http": `"$HTTPS_PROXY" --proxytunnel`} {
				out, audit := throughTunnelAPI(ctx, t, succeeds, "sh", "-c", daemontest.Program(t, "curl")+" -sS --fail --max-time 20 --proxy "+proxy+" "+page)
				wantText(t, "the answer", out, "ok")
				wantText(t, "the audit line", audit, `protocol="`+protocol+`"`, `kind="Service"`, `result="ok"`)
			}
		}},
		step{"curl to a Pod", func(ctx context.Context, t *testing.T) {
			if suite.Simulated() {
				t.Skip("the server's Pod has the address of this machine, which several Pods may have")
			}
			pod, err := suite.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out, audit := throughTunnelAPI(ctx, t, succeeds, daemontest.Program(t, "curl"), "-sS", "--fail", "--max-time", "20", "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/healthz")
			wantText(t, "the answer", out, "ok")
			wantText(t, "the audit line", audit, `kind="Pod"`, `result="ok"`)
		}},
		step{"the connection goes through the agent of the node", throughEachAgent},
		step{"beside an agent that has stopped, connections go through the other", throughOtherAgent},
		step{"only users with all rights connect", connectRights},
		step{"the right to read opens no connection", readerConnects},
		step{"the end of one direction arrives alone", func(ctx context.Context, t *testing.T) { echoes(ctx, t, 3<<20) }},
		step{"many bytes arrive as they were sent", func(ctx context.Context, t *testing.T) { echoes(ctx, t, 256<<20) }},
		step{"open connections hold no places of priority levels", holdNoPlaces},
		step{"refusals have reasons", connectRefusals},
		step{"headers of a front proxy that is none are not believed", forgedFrontProxy},
	)
}

// agentsConnect waits for agents, which tests stop.
func agentsConnect(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := harness.Wait(ctx, time.Minute, "agents to be connected", func(ctx context.Context) error {
		agents, err := connectedAgents(ctx)
		if err == nil && len(agents) < 2 {
			err = fmt.Errorf("%d agents are connected, want 2", len(agents))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// throughTunnelAPI runs a command with the proxy in its environment, as throughSOCKS5 does.
func throughTunnelAPI(ctx context.Context, t *testing.T, want outcome, command ...string) (out, audit string) {
	t.Helper()
	cmd, stdout, stderr := suite.Command(ctx, append([]string{"socks5", "--listen", "127.0.0.1:0", "--via", "api", "--"}, command...)...)
	err := cmd.Run()
	if outcome(err == nil) != want {
		t.Errorf("%s: %v\n%s%s", strings.Join(command, " "), err, stdout, stderr)
	}
	return stdout.String(), stderr.String()
}

// apiDialer dials as a user; the empty one is the suite's own, who may do anything.
func apiDialer(t *testing.T, user string) gatewaydial.Dialer {
	t.Helper()
	config := rest.CopyConfig(suite.Config)
	config.Impersonate.UserName = user
	d, err := gatewaydial.New(gatewaydial.ViaAPI, gatewaydial.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// say sends a word to the echo and wants it back.
func say(c net.Conn, word string) error {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	got := make([]byte, len(word))
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != word {
		return fmt.Errorf("%q came back as %q", word, got)
	}
	return nil
}

// connectAs opens a connection to the echo as a user and uses it.
func connectAs(ctx context.Context, d gatewaydial.Dialer, to gateway.Destination) error {
	c, err := d.Dial(ctx, to)
	if err != nil {
		return err
	}
	defer c.Close()
	return say(c, "hello")
}

// throughEachAgent asks for a destination of each agent's node: the API shows the connection at that agent.
func throughEachAgent(ctx context.Context, t *testing.T) {
	agents, err := connectedAgents(ctx)
	if err != nil || len(agents) != 2 {
		t.Fatalf("%d agents: %v", len(agents), err)
	}
	d := apiDialer(t, "")
	for name, a := range agents {
		to := echoService
		to.Node = a.Status.NodeName
		before, err := connectionsOf(ctx, a.Status.AgentID)
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Dial(ctx, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := say(c, "hello"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err = harness.Wait(ctx, 30*time.Second, "the connection at agent "+name, func(ctx context.Context) error {
			now, err := connectionsOf(ctx, a.Status.AgentID)
			if err == nil && now.Difference(before).Len() == 0 {
				err = fmt.Errorf("the connections with the destination's port are %v, before there were %v", sets.List(now), sets.List(before))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		_ = c.Close()
	}
}

// connectionsOf names the connections of an agent to the echo.
func connectionsOf(ctx context.Context, agentID string) (sets.Set[string], error) {
	slices, err := suite.Client.DiscoveryV1().EndpointSlices(harness.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + harness.ServerName})
	if err != nil {
		return nil, err
	}
	var port int32
	for _, s := range slices.Items {
		for _, p := range s.Ports {
			if *p.Name == "tcp" {
				port = *p.Port
			}
		}
	}
	body, err := suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelconnections").Param("fieldSelector", "status.agentID="+agentID).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var list tunnelv1alpha1.TunnelConnectionList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for _, c := range list.Items {
		if strings.HasSuffix(c.Status.Destination, fmt.Sprintf(":%d", port)) {
			names.Insert(c.Name)
		}
	}
	return names, nil
}

// await waits for rights to arrive at all authorizers, which keep their answers for some seconds.
func await(ctx context.Context, t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	if err := harness.Wait(ctx, time.Minute, what, f); err != nil {
		t.Fatal(err)
	}
}

func orSuccess(err error) error {
	if err == nil {
		return fmt.Errorf("a connection")
	}
	return err
}

// echoes sends bytes, ends that direction, and wants the same bytes back before the end of the other.
func echoes(ctx context.Context, t *testing.T, size int64) {
	c, err := apiDialer(t, "").Dial(ctx, echoService)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block)
	sent, got := sha256.New(), sha256.New()
	failed := make(chan error, 1)
	go func() {
		for n := int64(0); n < size; n += int64(len(block)) {
			block[0]++ // so that no two are equal
			_, _ = sent.Write(block)
			if _, err := c.Write(block); err != nil {
				failed <- err
				return
			}
		}
		failed <- c.CloseWrite()
	}()
	n, err := io.Copy(got, c)
	if failure := <-failed; failure != nil || err != nil || n != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, equal: %t; sending: %v, receiving: %v", n, size, bytes.Equal(sent.Sum(nil), got.Sum(nil)), failure, err)
	}
}

// holdNoPlaces: kube-apiserver takes no connection for a request that waits for its place, or holds one. The user is one whose
// other requests for the API take places of the bundle's level, unlike an administrator's.
func holdNoPlaces(ctx context.Context, t *testing.T) {
	const many, user = 10, "e2e-places"
	createClusterBinding(ctx, t, rbac.ClusterRoleBinding("fairlead-"+user, "cluster-admin", rbac.User(user)))
	takesPlaces(ctx, t, user)
	d := apiDialer(t, user)
	for range many {
		c, err := d.Dial(ctx, echoService)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := say(c, "open"); err != nil {
			t.Fatal(err)
		}
	}
	await(ctx, t, "places that connections do not hold", func(ctx context.Context) error {
		text, err := suite.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
		if err != nil {
			return err
		}
		places, seen := 0.0, false
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "apiserver_flowcontrol_current_executing_requests{") || !strings.Contains(line, "fairlead-tunnel-") {
				continue
			}
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				return err
			}
			seen = true
			places += n
		}
		if !seen || places >= many {
			return fmt.Errorf("%v requests for the API are in execution while %d connections are open; the metric of its level is there: %t", places, many, seen)
		}
		return nil
	})
}

// takesPlaces waits until kube-apiserver puts a user's requests for the API into the FlowSchema of the bundle.
func takesPlaces(ctx context.Context, t *testing.T, user string) {
	config := rest.CopyConfig(suite.Config)
	config.Impersonate.UserName = user
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		t.Fatal(err)
	}
	await(ctx, t, "a request in the level of the API", func(ctx context.Context) error {
		schema, err := suite.Client.FlowcontrolV1().FlowSchemas().Get(ctx, tunnelapi.ClientsName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(tunnelv1alpha1.Path, "tunnelagents").String(), nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if got := resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); resp.StatusCode != http.StatusOK || got != string(schema.UID) {
			return fmt.Errorf("status %s, FlowSchema %q, want %q of %s", resp.Status, got, schema.UID, schema.Name)
		}
		return nil
	})
}
