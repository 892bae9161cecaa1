// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TestKubeletsAreVerified: an installation where an agent could impersonate a kubelet goes on with a warning that names the way out, and
// one where kube-apiserver verifies kubelets has no such warning.
func TestKubeletsAreVerified(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]bool{"kubeadm's default": false, "with the flag": true} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			if set {
				replaceIn(t, nodefs.Host{Root: root}, apiServerFile, "    - --etcd-servers",
					"    - --kubelet-certificate-authority=/etc/kubernetes/pki/ca.crt\n    - --etcd-servers")
			}
			var notes strings.Builder
			o := testOptions(root)
			o.Notef = func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) }
			if _, err := PlanInstall(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"impersonate every kubelet", "serverTLSBootstrap: true", "kubernetes.io/kubelet-serving", "--kubelet-certificate-authority"} {
				if strings.Contains(notes.String(), word) == set {
					t.Errorf("the flag is set: %v, %q is in the notes: %v", set, word, !set)
				}
			}
		})
	}
}

// TestSharedFrontProxyCA: a control plane whose request-header CA also vouches for client certificates is refused, with both files named.
// It observes AGG-31 of docs/requirements.md.
// It also observes OLD-90 of docs/requirements.md.
func TestSharedFrontProxyCA(t *testing.T) {
	t.Parallel()
	const ca, front = "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/front-proxy-ca.crt"
	for name, spoil := range map[string]func(t *testing.T, h nodefs.Host){
		"the same flag": func(t *testing.T, h nodefs.Host) {
			replaceIn(t, h, apiServerFile, "--requestheader-client-ca-file="+front, "--requestheader-client-ca-file="+ca)
		},
		"the same content": func(t *testing.T, h nodefs.Host) {
			data, err := h.Read(ca)
			if err != nil {
				t.Fatal(err)
			}
			put(t, h, front, string(data))
		},
		"one of several": func(t *testing.T, h nodefs.Host) {
			both := ""
			for _, file := range []string{front, ca} {
				data, err := h.Read(file)
				if err != nil {
					t.Fatal(err)
				}
				both += string(data)
			}
			put(t, h, front, both)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			spoil(t, nodefs.Host{Root: root})
			_, err := PlanInstall(t.Context(), testOptions(root))
			if !errors.Is(err, ErrPreflight) || !errors.Is(err, pki.ErrSharedCA) || !strings.Contains(fmt.Sprint(err), "--requestheader-client-ca-file=") {
				t.Errorf("%v, want ErrPreflight and ErrSharedCA", err)
			}
			o, warned := testOptions(root), false
			o.IgnorePreflight = []string{CheckFrontProxyCA}
			o.Notef = func(format string, args ...any) {
				warned = warned || strings.Contains(fmt.Sprintf(format, args...), "can impersonate every user")
			}
			if _, err := PlanInstall(t.Context(), o); err != nil || !warned {
				t.Errorf("with the check ignored: %v, warned: %v", err, warned)
			}
		})
	}
	if _, err := PlanInstall(t.Context(), testOptions(testNode(t))); err != nil {
		t.Errorf("two CAs are refused: %v", err)
	}
}
