// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/kind/pkg/cluster/nodes"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// state is what an installation may change: files of the node with their modes
// and digests, objects of the cluster, and kubeadm's stored configuration.
type state struct {
	files   map[string]string
	objects []string
	kubeadm string
}

// kinds are the kinds of the bundle's objects. Objects that controllers create
// for them are left out, because they come and go.
var kinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "serviceaccounts"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"}, {Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

func look(ctx context.Context, t *testing.T, node nodes.Node) state {
	t.Helper()
	s := state{files: map[string]string{}}
	out, err := harness.Run(ctx, node, "sh", "-c", `find /etc/kubernetes /var/lib/fairlead -type f -exec stat -c '%n %a %u' {} + 2>/dev/null; find /etc/kubernetes /var/lib/fairlead -type f -exec sha256sum {} + 2>/dev/null; true`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch len(fields) {
		case 3: // name, mode, owner
			s.files[fields[0]] += fields[1] + " " + fields[2]
		case 2: // digest, name
			s.files[fields[1]] += " " + fields[0]
		}
	}
	if len(s.files) < 20 {
		t.Fatalf("only %d files are in /etc/kubernetes:\n%s", len(s.files), out)
	}
	client, err := metadata.NewForConfig(suite.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			s.objects = append(s.objects, fmt.Sprintf("%s %s/%s", kind.Resource, item.Namespace, item.Name))
		}
	}
	slices.Sort(s.objects)
	config, err := suite.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.kubeadm = fmt.Sprint(config.Data)
	return s
}

// wantEqual names every difference.
func (s state) wantEqual(t *testing.T, now state) {
	t.Helper()
	names := maps.Clone(s.files)
	maps.Copy(names, now.files)
	for name := range names {
		if s.files[name] != now.files[name] {
			t.Errorf("file %s was %q and is %q (mode, owner, SHA-256)", name, s.files[name], now.files[name])
		}
	}
	for _, o := range now.objects {
		if !slices.Contains(s.objects, o) {
			t.Errorf("there is a new object: %s", o)
		}
	}
	for _, o := range s.objects {
		if !slices.Contains(now.objects, o) {
			t.Errorf("an object is gone: %s", o)
		}
	}
	if s.kubeadm != now.kubeadm {
		t.Errorf("kubeadm's configuration was\n%s\nand is\n%s", s.kubeadm, now.kubeadm)
	}
}
