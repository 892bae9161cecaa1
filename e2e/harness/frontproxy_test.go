// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestReadFrontProxy: AGG-08, each of the seven keys of the ConfigMap is read. One that is missing or empty is an error, but not that
// of the headers with UIDs, which a cluster of kubeadm alone does not have: TestAggregatedAPI wants it of our clusters.
func TestReadFrontProxy(t *testing.T) {
	const cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	published := func() map[string]string {
		return map[string]string{
			"client-ca-file": cert, "requestheader-client-ca-file": cert, "requestheader-allowed-names": `["front-proxy-client"]`,
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
			"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		}
	}
	read := func(data map[string]string) (FrontProxy, error) {
		c := &Cluster{Client: fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: data,
		})}
		return c.ReadFrontProxy(t.Context())
	}
	f, err := read(published())
	if err != nil {
		t.Fatal(err)
	}
	if string(f.CA) != cert || string(f.ClientCA) != cert || strings.Join(append(append(append(append(f.Names, f.UsernameHeaders...), f.UIDHeaders...),
		f.GroupHeaders...), f.ExtraHeaderPrefix...), " ") != "front-proxy-client X-Remote-User X-Remote-Uid X-Remote-Group X-Remote-Extra-" {
		t.Errorf("%+v", f)
	}
	for key := range published() {
		for _, bad := range []string{"", "[]"} {
			data := published()
			data[key] = bad
			f, err := read(data)
			if key == "requestheader-uid-headers" {
				if err != nil || len(f.UIDHeaders) > 0 {
					t.Errorf("%s is %q: got %q, %v", key, bad, f.UIDHeaders, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s is %q: got %v", key, bad, err)
			}
		}
	}
	data := published()
	data["requestheader-uid-headers"] = "X-Remote-Uid"
	if _, err := read(data); err == nil {
		t.Error("a list that is not JSON is no error")
	}
}
