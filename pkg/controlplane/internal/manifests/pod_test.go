// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests/manifeststest"
)

// odd is a manifest edited by hand: comments everywhere, unknown fields, blank
// lines, block scalars, a second container, arguments.
const odd = `# our API server; ask Eve before you touch it
apiVersion: v1
kind: Pod
metadata:
  name: kube-apiserver
  namespace: kube-system
  annotations: {owner: "eve"}   # not bob
spec:
  hostNetwork: true
  ourOwnField: {keep: me}
  containers:
  # the helper comes first
  - name: helper
    image: example.com/helper:1
    command: [sleep, infinity]
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.36.3
    command:
    - kube-apiserver
    args:
    # must be this one
    - --advertise-address=192.0.2.1   # the first address

    - "--secure-port=6443"
    - >-
      --oidc-issuer-url=https://example.com/a
    # end of arguments

    volumeMounts:
      - mountPath: /etc/kubernetes/pki
        name: k8s-certs   # certificates

        readOnly: true
      # nothing below
    env:
    - name: TEXT
      value: |
        - this is no item
        # and this no comment
  volumes:
  - name: k8s-certs
    hostPath:
      path: /etc/kubernetes/pki
      type: DirectoryOrCreate
# the end
status: {}
`

const flow = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"kube-apiserver","namespace":"kube-system"},
"spec":{"containers":[{"name":"kube-apiserver","image":"registry.k8s.io/kube-apiserver:v1.36.3","command":["kube-apiserver","--secure-port=6443"]}]}}
`

// TestManifestEdits edits manifests that kubeadm generated and unusual ones: it
// adds the --egress-selector-config-file flag, the volume of the socket directory
// and the mount of the egress selector configuration. The result equals that of
// the typed edit, inserted lines are the only difference, and removing them
// restores the text byte for byte.
func TestManifestEdits(t *testing.T) {
	tcp := &v1alpha1.Bundle{Konnectivity: v1alpha1.Konnectivity{ProxyProtocol: v1alpha1.ProxyHTTPConnect,
		Transport: v1alpha1.Transport{TCP: &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131"}}}}
	noNewline := strings.TrimSuffix(string(manifeststest.Kubeadm(t, nil)), "status: {}\n")
	for name, tc := range map[string]struct {
		manifest []byte
		b        *v1alpha1.Bundle
		lines    bool // only whole lines are inserted
	}{
		"kubeadm": {manifeststest.Kubeadm(t, nil), nil, true},
		"kubeadm, extra arguments and volumes": {manifeststest.Kubeadm(t, func(c *kubeadmapi.InitConfiguration) {
			c.APIServer.ExtraArgs = []kubeadmapi.Arg{{Name: "audit-log-path", Value: "/x: #y"}}
			c.APIServer.ExtraVolumes = []kubeadmapi.HostPathMount{{Name: "zz", HostPath: "/zz", MountPath: "/zz"}}
		}), nil, true},
		"HTTPConnect over TCP":     {manifeststest.Kubeadm(t, nil), tcp, true},
		"comments":                 {[]byte(odd), nil, true},
		"volumes last, no newline": {[]byte(strings.TrimSuffix(noNewline, "\n")), nil, false},
		"JSON":                     {[]byte(flow), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Decode(tc.manifest)
			if err != nil {
				t.Fatal(err)
			}
			want, err := apiserver.PatchPod(pod, tc.b)
			if err != nil {
				t.Fatal(err)
			}
			out, add, err := Add(tc.manifest, tc.b)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-PatchPod +edited:\n%s", diff)
			}
			if tc.lines {
				onlyInserted(t, tc.manifest, out)
			}
			again, none, err := Add(out, tc.b)
			if err != nil || !none.Empty() || !bytes.Equal(again, out) {
				t.Errorf("the second edit added %v, error %v", none, err)
			}
			back, err := Remove(out, add)
			if err != nil {
				t.Fatal(err)
			}
			if tc.lines && !bytes.Equal(back, tc.manifest) {
				t.Errorf("not what it was:\n%s", cmp.Diff(string(tc.manifest), string(back)))
			}
			if was, err := Decode(back); err != nil || !reflect.DeepEqual(was, pod) {
				t.Errorf("taken out: %v\n%s", err, cmp.Diff(pod, was))
			}
		})
	}
}

// onlyInserted fails unless every line of before is in after, in that order.
func onlyInserted(t *testing.T, before, after []byte) {
	t.Helper()
	rest := splitLines(after)
	for _, line := range splitLines(before) {
		for len(rest) > 0 && rest[0] != line {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			t.Fatalf("line %q is gone:\n%s", line, after)
		}
		rest = rest[1:]
	}
}

// TestRemoveLeavesOthersEdits checks that a flag added by hand after the
// installation stays, and so does an addition that was changed by hand.
func TestRemoveLeavesOthersEdits(t *testing.T) {
	out, add, err := Add(manifeststest.Kubeadm(t, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(out), "    - --egress-selector-config-file", "    - --v=4 # loud\n    - --egress-selector-config-file", 1)
	text = strings.Replace(text, "path: /etc/kubernetes/konnectivity-server", "path: /elsewhere", 1)
	back, err := Remove([]byte(text), add)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"    - --v=4 # loud\n", "path: /elsewhere"} {
		if !strings.Contains(string(back), want) {
			t.Errorf("%q is gone:\n%s", want, back)
		}
	}
	for _, gone := range []string{"egress-selector", "name: konnectivity-egress-config"} {
		if strings.Contains(string(back), gone) {
			t.Errorf("%q is still there:\n%s", gone, back)
		}
	}
}

// TestAnnotate checks that an annotation is the only difference, also if a manifest has no
// annotations or writes them in an unusual way, and that Remove removes it.
func TestAnnotate(t *testing.T) {
	kubeadm := string(manifeststest.Kubeadm(t, nil))
	for name, tc := range map[string]struct {
		manifest string
		lines    bool // only whole lines are inserted
	}{
		"kubeadm":        {kubeadm, true},
		"comments":       {odd, false},
		"JSON":           {flow, false},
		"none":           {"apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n  name: x\nspec:\n  containers: [{name: kube-apiserver}]\n", false},
		"a comment each": {"apiVersion: v1\nkind: Pod\nmetadata:\n  annotations: # all\n    # the first\n    a: b # c\n\n  name: x\nspec:\n  containers: [{name: kube-apiserver}]\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := Decode([]byte(tc.manifest))
			if err != nil {
				t.Fatal(err)
			}
			text := []byte(tc.manifest)
			for _, value := range []string{"1", "0a:\"b\""} {
				if text, err = Annotate(text, EgressHash, value); err != nil {
					t.Fatal(err)
				}
				got, err := Decode(text)
				if err != nil || got.Annotations[EgressHash] != value {
					t.Fatalf("%v\n%s", err, text)
				}
				if delete(got.Annotations, EgressHash); len(got.Annotations) == 0 {
					got.Annotations = nil
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-before +annotated:\n%s", diff)
				}
			}
			if tc.lines {
				onlyInserted(t, []byte(tc.manifest), text)
			}
			back, err := Remove(text, Additions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(back); err != nil || !reflect.DeepEqual(want, got) || tc.lines && string(back) != tc.manifest {
				t.Errorf("removed again, %v, it is\n%s", err, back)
			}
		})
	}
}

func TestManifestRefused(t *testing.T) {
	plain := string(manifeststest.Kubeadm(t, nil))
	for name, tc := range map[string]struct {
		manifest, want string
		err            error
	}{
		"foreign egress selector": {strings.Replace(plain, "    - --etcd-servers", "    - --egress-selector-config-file=/x\n    - --etcd-servers", 1), "/x", apiserver.ErrConflict},
		"not YAML":                {"a: [", "not YAML", ErrManifest},
		"empty":                   {"", "not YAML", ErrManifest},
		"another kind":            {"apiVersion: v1\nkind: Service\n", "not a v1 Pod", ErrManifest},
		"two documents":           {plain + "---\n" + plain, "several documents", ErrManifest},
		"a key twice":             {plain + "kind: Pod\n", "kind", ErrManifest},
		"no kube-apiserver":       {strings.ReplaceAll(plain, "name: kube-apiserver", "name: other"), "no container kube-apiserver", nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := Add([]byte(tc.manifest), nil)
			if out != nil || err == nil || !strings.Contains(err.Error(), tc.want) || (tc.err != nil && !errors.Is(err, tc.err)) {
				t.Errorf("%d bytes, error %v, want %v with %q", len(out), err, tc.err, tc.want)
			}
		})
	}
	if _, err := Remove([]byte("a: ["), Additions{}); !errors.Is(err, ErrManifest) || errors.Is(err, io.EOF) {
		t.Errorf("remove from what is not YAML: %v", err)
	}
}
