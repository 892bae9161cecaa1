// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// TestKubeconfigWithoutCertificate covers a kubeconfig of the server that embeds no
// certificate: install and renew accept it, and nothing reports a problem with it.
func TestKubeconfigWithoutCertificate(t *testing.T) {
	t.Parallel()
	const file = v1alpha1.DefaultServerKubeconfig
	pair := filepath.Join(t.TempDir(), "pair.pem") // its presence is checked, and no more
	if err := os.WriteFile(pair, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string]string{
		"token":               "token: abc",
		"token file":          "tokenFile: /etc/kubernetes/token",
		"plugin":              "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/plugin, interactiveMode: Never}",
		"path of certificate": "client-certificate: " + pair + ", client-key: " + pair,
	} {
		t.Run(name, func(t *testing.T) {
			root := testNode(t)
			h := nodefs.Host{Root: root}
			text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
				"clusters: [{name: k, cluster: {server: \"https://192.0.2.1:6443\"}}]\nusers: [{name: u, user: {" + user + "}}]\n"
			put(t, h, file, text)
			install(t, root)
			var found []Certificate
			for _, c := range Certificates(testOptions(root), WarnBefore) {
				if c.Path == file {
					found = append(found, c)
				}
			}
			if len(found) != 1 || found[0].State != CertGood || found[0].Renewal != "by hand" || !found[0].Expires.IsZero() {
				t.Errorf("%+v, want a good one that is renewed by hand", found)
			}
			o := testOptions(root)
			o.health = func(string) error { return nil }
			s, err := Inspect(t.Context(), o)
			if err != nil || strings.Contains(strings.Join(s.Problems, "\n"), file) {
				t.Errorf("%v, problems %q", err, s.Problems)
			}
			if r := renew(t, RenewOptions{Options: testOptions(root), Before: WarnBefore}); r.Changed {
				t.Errorf("a timer renewed %v", r.Files)
			}
			r := renew(t, RenewOptions{Options: testOptions(root)})
			if now, err := h.Read(file); err != nil || string(now) != text || !strings.Contains(strings.Join(r.Notes, "\n"), "renew it where it was made") {
				t.Errorf("%v, notes %q, the kubeconfig is\n%s", err, r.Notes, now)
			}
			before := stat(t, h, file)
			chmod(t, h, file, 0o644)
			renew(t, RenewOptions{Options: testOptions(root), Before: WarnBefore})
			closed(t, h, file, before)
		})
	}
	root := testNode(t)
	install(t, root)
	for _, text := range []string{"", "kind: Config\n", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"} {
		put(t, nodefs.Host{Root: root}, file, text)
		if !slices.ContainsFunc(Certificates(testOptions(root), WarnBefore), func(c Certificate) bool { return c.Path == file && c.State == CertInvalid }) {
			t.Errorf("a kubeconfig without a user is good:\n%s", text)
		}
	}
}
