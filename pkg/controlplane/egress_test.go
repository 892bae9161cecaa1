// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// httpConnect differs from the default bundle in the content of the egress selector
// configuration and in the server's flags. kube-apiserver has the same flags.
func httpConnect() *v1alpha1.Bundle {
	return (&v1alpha1.Bundle{PKI: newBundle().PKI, Konnectivity: v1alpha1.Konnectivity{ProxyProtocol: v1alpha1.ProxyHTTPConnect}}).Defaulted()
}

func withBundle(root string, b *v1alpha1.Bundle) Options {
	o := testOptions(root)
	o.Bundle = b
	return o
}

// apiServerPod returns kube-apiserver's Pod without the annotation that makes the kubelet
// restart it, and the annotation.
func apiServerPod(t *testing.T, h nodefs.Host) (pod *corev1.Pod, hash string) {
	t.Helper()
	data, err := h.Read(apiServerFile)
	if err != nil {
		t.Fatal(err)
	}
	if pod, err = manifests.Decode(data); err != nil {
		t.Fatal(err)
	}
	hash = pod.Annotations[manifests.EgressHash]
	delete(pod.Annotations, manifests.EgressHash)
	return pod, hash
}

// TestNewEgressSelectorRestartsAPIServer covers bundles that differ only in the content
// of the egress selector configuration, which kube-apiserver reads when it starts: its
// Pod changes in an annotation alone. Another installation changes nothing, and an
// uninstallation restores the original node.
func TestNewEgressSelectorRestartsAPIServer(t *testing.T) {
	t.Parallel()
	otherSocket := newBundle()
	otherSocket.Konnectivity.Transport.UDS.Path = "/etc/kubernetes/konnectivity-server/other.socket"
	otherURL, otherClient := tcpBundle(), tcpBundle()
	otherURL.Konnectivity.Transport.TCP.URL = "https://127.0.0.1:8139"
	client := otherClient.Konnectivity.Transport.TCP
	for _, file := range []*string{&client.ClientCert, &client.ClientKey, &client.ClientCA} {
		*file = strings.Replace(*file, "/client", "/other-client", 1)
	}
	for name, tc := range map[string]struct{ from, to *v1alpha1.Bundle }{
		"protocol":           {newBundle(), httpConnect()},
		"socket":             {newBundle(), otherSocket},
		"URL":                {tcpBundle(), otherURL},
		"client certificate": {tcpBundle(), otherClient},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			h := nodefs.Host{Root: root}
			mustInstall(t, withBundle(root, tc.from))
			before, hash := apiServerPod(t, h)
			if hash != "" {
				t.Errorf("the first installation set annotation %s", hash)
			}
			seen := map[string]bool{"": true}
			for _, b := range []*v1alpha1.Bundle{tc.to, tc.from, tc.to} {
				r, err := Install(t.Context(), withBundle(root, b))
				if err != nil {
					t.Fatal(err)
				}
				after, now := apiServerPod(t, h)
				if !slices.Contains(r.Files, apiServerFile) || now == hash || !reflect.DeepEqual(before, after) {
					t.Errorf("annotation %q after %q, %v was changed, and the Pod is\n%+v", now, hash, r.Files, after)
				}
				hash, seen[now] = now, true
				if again, err := Install(t.Context(), withBundle(root, b)); err != nil || again.Changed {
					t.Errorf("again: %+v, %v", again, err)
				}
			}
			if len(seen) != 3 {
				t.Errorf("annotations %v, want two for two configurations", seen)
			}
			mustUninstall(t, testOptions(root))
			sameTrees(t, snapshot(t, pristine), snapshot(t, root))
		})
	}
}

// TestEgressSelectorOfServerOnly checks that kube-apiserver is restarted by the second of
// two runs, the first of which changed the file and left kube-apiserver alone.
func TestEgressSelectorOfServerOnly(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	mustInstall(t, testOptions(root))
	o := withBundle(root, httpConnect())
	o.ServerOnly = true
	if r, err := Install(t.Context(), o); err != nil || slices.Contains(r.Files, apiServerFile) {
		t.Errorf("server only: %+v, %v", r, err)
	}
	o.ServerOnly = false
	if r, err := Install(t.Context(), o); err != nil || !slices.Contains(r.Files, apiServerFile) {
		t.Errorf("the rest: %+v, %v", r, err)
	}
	if r, err := Install(t.Context(), o); err != nil || r.Changed {
		t.Errorf("again: %+v, %v", r, err)
	}
	mustUninstall(t, testOptions(root))
	sameTrees(t, snapshot(t, pristine), snapshot(t, root))
}

// TestNewEgressSelectorReplacesProcess checks that the run ends when the kubelet has
// replaced the process of kube-apiserver by one with the same flags.
func TestNewEgressSelectorReplacesProcess(t *testing.T) {
	t.Parallel()
	for _, pods := range []bool{true, false} {
		root := testNode(t)
		install(t, root)
		inBubble(t, func(t *testing.T) {
			w := startWorld(root, pods, time.Second)
			defer w.end()
			if err := w.sync(); err != nil {
				t.Fatal(err)
			}
			before := w.load().PID[apiServerFile]
			o := w.options()
			o.Bundle = httpConnect()
			if _, err := Install(t.Context(), o); err != nil {
				t.Error(err)
			}
			w.settled(t)
			if after := w.load().PID[apiServerFile]; after == before {
				t.Errorf("process %d of kube-apiserver has read the old configuration", after)
			}
		})
	}
}

// TestRollbackOfEgressSelector checks that kube-apiserver reads the old configuration when
// a rollback restarts it.
func TestRollbackOfEgressSelector(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	h := nodefs.Host{Root: root}
	install(t, root)
	before := snapshot(t, root)
	want, err := h.Read(v1alpha1Egress)
	if err != nil {
		t.Fatal(err)
	}
	o, restored := failingOptions(root, func() {}), false
	o.Bundle = httpConnect()
	o.after = func(point string) {
		if point != "reverted "+apiServerFile {
			return
		}
		restored = true
		if got, err := h.Read(v1alpha1Egress); err != nil || string(got) != string(want) {
			t.Errorf("kube-apiserver's old manifest is back, and the configuration that it reads is\n%s%v", got, err)
		}
	}
	if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("%v, want ErrRolledBack", err)
	}
	if !restored {
		t.Error("kube-apiserver's manifest was not changed")
	}
	sameTrees(t, before, snapshot(t, root))
}

// TestEditedManifestWithEgressHash checks that the annotation is removed from a manifest
// that was edited, by an uninstallation and by a rollback.
func TestEditedManifestWithEgressHash(t *testing.T) {
	t.Parallel()
	const mine = "    - --v=4 # loud\n"
	edit := func(h nodefs.Host) {
		replaceIn(t, h, apiServerFile, "    - --allow-privileged=true\n", "    - --allow-privileged=true\n"+mine)
	}
	for name, run := range map[string]func(t *testing.T, root string){
		"uninstall": func(t *testing.T, root string) {
			mustInstall(t, withBundle(root, httpConnect()))
			edit(nodefs.Host{Root: root})
		},
		"rollback": func(t *testing.T, root string) {
			o := failingOptions(root, func() { edit(nodefs.Host{Root: root}) })
			o.Bundle = httpConnect()
			if _, err := Install(t.Context(), o); !errors.Is(err, ErrRolledBack) {
				t.Fatalf("%v, want ErrRolledBack", err)
			}
			if _, hash := apiServerPod(t, nodefs.Host{Root: root}); hash != "" {
				t.Errorf("annotation %s was left", hash)
			}
		},
		"another bundle": func(t *testing.T, root string) {
			mustInstall(t, withBundle(root, httpConnect()))
			edit(nodefs.Host{Root: root})
			mustInstall(t, withBundle(root, otherBundle()))
			if _, hash := apiServerPod(t, nodefs.Host{Root: root}); hash != "" {
				t.Errorf("annotation %s was left", hash)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			install(t, root)
			run(t, root)
			mustUninstall(t, testOptions(root))
			replaceIn(t, nodefs.Host{Root: root}, apiServerFile, mine, "")
			sameTrees(t, snapshot(t, pristine), snapshot(t, root))
		})
	}
}
