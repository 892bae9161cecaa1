// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestSOCKS5 reaches a Service, a Pod and a node through "fairlead socks5" with curl. On kind
// the path is the default one, pods/portforward. Simulated nodes run no Pods that it could
// reach; there the path is the socket of the cluster's own konnectivity-server. Destinations
// outside of the cluster are refused with a reason in the audit line.
// It observes HTTP-01 and SOCKS-05 of docs/requirements.md.
func TestSOCKS5(t *testing.T) {
	service := harness.ServerName + "." + harness.Namespace
	run(t, "fairlead socks5", 2*time.Minute,
		step{"a Service by name, over SOCKS5", func(ctx context.Context, t *testing.T) {
			out, audit := throughSOCKS5(ctx, t, succeeds, append(client(t), "http://"+service+"/healthz")...)
			wantText(t, "the answer", out, "ok")
			wantText(t, "the audit line", audit, `protocol="socks5"`, `kind="Service"`, `name="`+harness.ServerName+`"`)
			wantEnd(t, audit)
		}},
		step{"the API server with kubectl", func(ctx context.Context, t *testing.T) {
			kubectl, err := suite.BuildKubectl(ctx)
			if err != nil {
				t.Fatal(err)
			}
			node := aNode(ctx, t)
			out, audit := throughSOCKS5(ctx, t, succeeds, kubectl, "get", "nodes", "-o", "name")
			wantText(t, "the nodes", out, "node/"+node.Name)
			wantText(t, "the audit line", audit, `protocol="socks5"`, `result="ok"`)
			out, _ = throughSOCKS5(ctx, t, succeeds, slices.Concat([]string{kubectl, "-n", harness.Namespace, "exec", harness.ServerName, "--"}, suite.Tool("say", "hello"))...)
			wantText(t, "exec", out, "hello")
			out, _ = throughSOCKS5(ctx, t, succeeds, "sh", "-c", `echo "$KUBECONFIG"`)
			if file := strings.TrimSpace(out); file == "" || file == suite.Kubeconfig() {
				t.Errorf("KUBECONFIG of the command is %q", file)
			} else if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("%s stays: %v", file, err)
			}
		}},
		step{"the hello application of the documentation", func(ctx context.Context, t *testing.T) {
			testutil.Full(t, "the options are curl's")
			page := "http://" + helloApp(ctx, t) + "." + harness.Namespace + ":8080/"
			for protocol, proxy := range map[string]string{"socks5": `"$ALL_PROXY"`, "http": `"$HTTPS_PROXY" --proxytunnel`} {
				out, audit := throughSOCKS5(ctx, t, succeeds, "sh", "-c", daemontest.Program(t, "curl")+" -sS --fail --max-time 20 --proxy "+proxy+" "+page)
				wantText(t, "the page", out, "Hello, world!", "Hostname: ")
				wantText(t, "the audit line", audit, `protocol="`+protocol+`"`, `kind="Service"`, `name="hello-app"`)
				wantEnd(t, audit)
			}
		}},
		step{"a Service by its cluster address, over HTTP CONNECT", func(ctx context.Context, t *testing.T) {
			svc, err := suite.Client.CoreV1().Services(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			// curl opens a CONNECT tunnel for https.
			_, audit := throughSOCKS5(ctx, t, succeeds, append(lenientClient(t), "https://"+svc.Spec.ClusterIP+"/")...)
			wantText(t, "the audit line", audit, `protocol="http"`, `kind="Service"`)
			wantEnd(t, audit)
		}},
		step{"a Pod by its address", func(ctx context.Context, t *testing.T) {
			pod, err := suite.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if suite.Simulated() {
				t.Skip("the server's Pod has the address of this machine, which several Pods may have")
			}
			out, audit := throughSOCKS5(ctx, t, succeeds, append(client(t), "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/healthz")...)
			wantText(t, "the answer", out, "ok")
			wantText(t, "the audit line", audit, `kind="Pod"`, `result="ok"`)
		}},
		step{"a node's kubelet", func(ctx context.Context, t *testing.T) {
			node := aNode(ctx, t)
			if suite.Simulated() { // nothing listens on the port of real kubelets
				_, audit := throughSOCKS5(ctx, t, fails, append(lenientClient(t), "https://"+node.Name+":10250/healthz")...)
				wantText(t, "the audit line", audit, `kind="Node"`, `name="`+node.Name+`"`, `result="refused"`)
				return
			}
			out, audit := throughSOCKS5(ctx, t, succeeds, append(lenientClient(t), "https://"+node.Name+":10250/healthz")...)
			wantText(t, "the kubelet's answer", out, "Unauthorized")
			wantText(t, "the audit line", audit, `kind="Node"`, `name="`+node.Name+`"`)
			wantEnd(t, audit)
		}},
		step{"destinations outside of the cluster are refused", func(ctx context.Context, t *testing.T) {
			_, audit := throughSOCKS5(ctx, t, fails, append(client(t), "http://198.51.100.1/")...)
			wantText(t, "the audit line", audit, `kind="External"`, `result="denied"`, "--allow")
			_, audit = throughSOCKS5(ctx, t, fails, append(client(t), "http://169.254.169.254/latest/meta-data/")...)
			wantText(t, "the audit line", audit, `result="denied"`, "link-local")
		}},
	)
}

// outcome is whether a command succeeds.
type outcome bool

const (
	succeeds outcome = true
	fails    outcome = false
)

// socks5Args run "fairlead socks5" with the path that TestSOCKS5 has.
func socks5Args() []string {
	args := []string{"socks5", "--listen", "127.0.0.1:0"}
	if suite.Simulated() {
		args = append(args, "--via", "direct", "--server-mode", "grpc", "--server-socket", filepath.Join(suite.StateDir(suite.Name), "run/konnectivity-server.socket"))
	}
	return args
}

// throughSOCKS5 runs a command with the proxy in its environment. It returns the command's
// output, and its standard error with the proxy's.
func throughSOCKS5(ctx context.Context, t *testing.T, want outcome, command ...string) (out, audit string) {
	t.Helper()
	cmd, stdout, stderr := suite.Command(ctx, slices.Concat(socks5Args(), []string{"--"}, command)...)
	err := cmd.Run()
	if outcome(err == nil) != want {
		t.Errorf("%s: %v\n%s%s", strings.Join(command, " "), err, stdout, stderr)
	}
	return stdout.String(), stderr.String()
}

// wantEnd checks the result of a connection that curl has closed. curl leaves without reading what a
// TLS server sends last, such as session tickets: the kernel may make a reset of that. The path of
// simulated nodes cannot tell the destination, and the end of the command then comes before that of
// the connection.
func wantEnd(t *testing.T, audit string) {
	t.Helper()
	left := strings.Contains(audit, `result="aborted"`) && (strings.Contains(audit, "not connected") || strings.Contains(audit, "reset by peer"))
	if suite.Simulated() || strings.Contains(audit, `result="ok"`) || left {
		wantText(t, "the audit line", audit, `result="`)
		return
	}
	t.Errorf("the connection did not end in order:\n%s", audit)
}

func wantText(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

func aNode(ctx context.Context, t *testing.T) corev1.Node {
	t.Helper()
	nodes, err := suite.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	return nodes.Items[0]
}

// helloApp makes the documentation's hello application, as "kubectl create deployment hello-app --port=8080"
// and "kubectl expose" do, until the test ends. Its program is the suite's server, which answers as that
// application does. Simulated nodes run no Pods: there the Service is one before the suite's own server.
func helloApp(ctx context.Context, t *testing.T) string {
	t.Helper()
	const name = "hello-app"
	server, err := suite.Client.CoreV1().Services(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(server.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "http" })
	if i < 0 {
		t.Fatalf("the suite's server has the ports %v", server.Spec.Ports)
	}
	app := harness.ServerName
	if !suite.Simulated() {
		app = name
		deployServer(ctx, t, name)
	}
	exposeServer(ctx, t, name, app, 8080, server.Spec.Ports[i].TargetPort)
	return name
}

// deployServer makes a Deployment of the suite's server, until the test ends.
func deployServer(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	pod, err := suite.Client.CoreV1().Pods(harness.Namespace).Get(ctx, harness.ServerName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = ""
	labels := map[string]string{"app": name}
	deployments := suite.Client.AppsV1().Deployments(harness.Namespace)
	_, err = deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		_ = deployments.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	})
}

// exposeServer makes another Service before the Pods of an app, until the test ends.
func exposeServer(ctx context.Context, t *testing.T, name, app string, port int32, target intstr.IntOrString) {
	t.Helper()
	services := suite.Client.CoreV1().Services(harness.Namespace)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Port: port, TargetPort: target}},
		},
	}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) { _ = services.Delete(ctx, name, metav1.DeleteOptions{}) })
	err := harness.Wait(ctx, time.Minute, "Service "+name+" to have an endpoint", func(ctx context.Context) error {
		list, err := suite.Client.DiscoveryV1().EndpointSlices(harness.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			if len(s.Endpoints) > 0 && s.Endpoints[0].Conditions.Ready != nil && *s.Endpoints[0].Conditions.Ready {
				return nil
			}
		}
		return fmt.Errorf("its EndpointSlices are %v", list.Items)
	})
	if err != nil {
		t.Fatal(err)
	}
}
