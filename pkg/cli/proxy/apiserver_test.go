// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// The steps of the Kubernetes documentation on accessing a cluster with an HTTP proxy, and
// a watch, against a real kube-apiserver. curl, which is the client there, is one here, too.
// It observes HTTP-03, HTTP-04, HTTP-05 and HTTP-08 of docs/requirements.md.
func TestAgainstAPIServer(t *testing.T) {
	cp := daemontest.SharedControlPlane(t)
	p := start(t, cp.Kubeconfig, "--port", "0")
	made, err := cp.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "proxy-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := made.Name
	get := func(path string) string {
		t.Helper()
		status, body := p.get(t, path)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d\n%s", path, status, body)
		}
		return body
	}

	var versions metav1.APIVersions
	if err := json.Unmarshal([]byte(get("/api/")), &versions); err != nil {
		t.Fatal(err)
	}
	if versions.Kind != "APIVersions" || len(versions.Versions) != 1 || versions.Versions[0] != "v1" ||
		len(versions.ServerAddressByClientCIDRs) == 0 || versions.ServerAddressByClientCIDRs[0].ClientCIDR != "0.0.0.0/0" {
		t.Errorf("/api/ is %+v", versions)
	}
	// The address that the API server announces has its port.
	own := cp.Client.CoreV1().RESTClient().Get().URL().Port()
	if host, port, err := net.SplitHostPort(versions.ServerAddressByClientCIDRs[0].ServerAddress); err != nil || net.ParseIP(host) == nil || port != own {
		t.Errorf("the API server's address is %q, %v, want one with port %s", versions.ServerAddressByClientCIDRs[0].ServerAddress, err, own)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hello", Labels: map[string]string{"app": "hello"}},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := cp.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(get("/api/v1/namespaces/"+namespace+"/pods")), &pods); err != nil {
		t.Fatal(err)
	}
	if pods.Kind != "PodList" || pods.ResourceVersion == "" || len(pods.Items) != 1 || pods.Items[0].Name != "hello" || pods.Items[0].UID == "" {
		t.Errorf("the list of Pods is %+v", pods)
	}
	t.Run("curl", func(t *testing.T) {
		curl := daemontest.Program(t, "curl")
		for path, want := range map[string]string{"/api/": own, "/api/v1/namespaces/" + namespace + "/pods": string(pods.Items[0].UID)} {
			out, err := exec.CommandContext(t.Context(), curl, "-sS", "--fail", "--noproxy", "*", "http://"+p.address+path).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("curl %s: %v, want %q in\n%s", path, err, want, out)
			}
		}
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/namespaces/"+namespace+"/configmaps?watch=true&resourceVersion="+pods.ResourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}
	if _, err := cp.Client.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The event arrives while the answer goes on: it is not held back in a buffer.
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"name":"seen"`) {
		t.Errorf("the watch sent %q, %v", line, err)
	}
	cancel()

	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("after SIGTERM it ended with %d\n%s", code, p.stderr.String())
	}
	if log := p.stderr.String(); !strings.Contains(log, `path="/api/v1/namespaces/`+namespace+`/pods"`) || strings.Contains(log, "daemontest-admin") {
		t.Errorf("the log is\n%s", log)
	}
}
