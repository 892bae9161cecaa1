// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	bundlescheduler "github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// patience is how long a scheduler may take to lead and bind some hundred pods on a busy machine.
const patience = time.Minute

// allProfiles is a bundle with every built-in profile and every plugin.
func allProfiles() *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	on := true
	b.Scheduler.Plugins.TunnelReach.Enabled = &on
	b.Scheduler.BuiltInProfiles = v1alpha1.BuiltInProfiles{
		Standard: &v1alpha1.StandardProfile{},
		Binpack:  &v1alpha1.BinpackProfile{}, Spread: &v1alpha1.SpreadProfile{}, Batch: &v1alpha1.BatchProfile{},
	}
	return b.Defaulted()
}

// installed is the second scheduler as a bundle installs it: rendered objects, rendered configuration, and an identity
// that has the rendered rights and no others.
type installed struct {
	*daemontest.Process
	port string
}

// install applies the rendered ServiceAccount and RBAC objects and starts the scheduler as that ServiceAccount.
func install(t *testing.T, cp cluster, b *v1alpha1.Bundle) installed {
	t.Helper()
	objects, err := bundlescheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o.GetObjectKind().GroupVersionKind().Kind {
		case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			create(t, cp, o)
		}
	}
	kubeconfig := kubeconfigOf(t, cp, b.Namespace, b.Scheduler.Name)
	data, err := bundlescheduler.Configuration(b, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	port := daemontest.Ports(t, 1)[0]
	process := daemontest.Start(t, nil, binary(t), "--config="+file, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--feature-gates=CoordinatedLeaderElection=false", "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	return installed{process, port}
}

// create makes an object and removes it when the test ends.
func create(t *testing.T, cp cluster, o component.Object) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	gvk := o.GetObjectKind().GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	resource := client.Resource(plural)
	var target dynamic.ResourceInterface = resource
	if o.GetNamespace() != "" {
		target = resource.Namespace(o.GetNamespace())
	}
	daemontest.Eventually(t, patience, func() error {
		_, err := target.Create(t.Context(), &unstructured.Unstructured{Object: fields}, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		if err := target.Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount.
func kubeconfigOf(t *testing.T, cp cluster, namespace, name string) string {
	t.Helper()
	request, err := cp.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = request.Status.Token
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// get asks the scheduler's own port, with the administrator's token.
func (i installed) get(t *testing.T, cp cluster, path string) (int, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+i.port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+config.BearerToken)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// metric sums a counter's samples that have all of the labels.
func (i installed) metric(t *testing.T, cp cluster, name string, labels ...string) float64 {
	t.Helper()
	code, body := i.get(t, cp, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("metrics: %d %s", code, body)
	}
	var sum float64
lines:
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}
