// SPDX-License-Identifier: Apache-2.0

package socks5_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestHostedManifestStarts: the program starts with the command line of deploy/gateway/hosted.yaml, of which only the
// directory of the Secrets, the server's address and the ports are others here. With the rights that the bundle has
// for it in a real API server, and over TCP through a real Konnectivity server, it carries a user's connection, refuses
// others, and passes its probes. A user without rights reaches the API server, which is behind a load balancer, as
// Service kubernetes.
func TestHostedManifestStarts(t *testing.T) {
	t.Parallel()
	data := read(t, "../../../deploy/gateway/hosted.yaml")
	var d appsv1.Deployment
	document, _, _ := bytes.Cut(data, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(document, &d); err != nil {
		t.Fatal(err)
	}
	container := d.Spec.Template.Spec.Containers[0]
	w, ports := newHostedWorld(t), daemontest.Ports(t, 2)
	here := map[string]string{"/etc/fairlead": w.files, "konnectivity-server:8132": w.server, ":1080": ":" + ports[0], ":8096": ":" + ports[1]}
	var args []string
	for _, arg := range container.Args {
		flag, value, _ := strings.Cut(arg, "=")
		for there, replacement := range here {
			if rest, ok := strings.CutPrefix(value, there); ok {
				arg = flag + "=" + replacement + rest
			}
		}
		args = append(args, arg)
	}
	daemontest.Start(t, []string{asFairlead + "=1", "KUBECONFIG=/dev/null"}, os.Args[0], args...)
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		daemontest.Eventually(t, bound, func() error {
			res, err := http.Get("http://127.0.0.1:" + ports[1] + probe.HTTPGet.Path)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", probe.HTTPGet.Path, res.Status)
			}
			return nil
		})
	}
	daemontest.Eventually(t, bound, func() error { // RBAC is read from a cache
		if status, page := w.connect(t, ports[0], w.token(t, "alice")); status != http.StatusOK || page != "hello" {
			return fmt.Errorf("status %d, page %q", status, page)
		}
		return nil
	})
	if status, _ := w.connect(t, ports[0], w.token(t, "bob")); status != http.StatusForbidden {
		t.Errorf("a user without the right: %d", status)
	}
	if page, err := w.version(t, ports[0], w.token(t, "bob")); err != nil || !strings.Contains(page, "gitVersion") {
		t.Errorf("the API server for a user without rights: %q, %v", page, err)
	}
	config, err := clientcmd.LoadFromFile(w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := w.connect(t, ports[0], config.AuthInfos["test"].Token); status != http.StatusProxyAuthRequired {
		t.Errorf("a token for the API server: %d", status)
	}
}
