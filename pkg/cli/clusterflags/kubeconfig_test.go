// SPDX-License-Identifier: Apache-2.0

package clusterflags

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

const twoContexts = `apiVersion: v1
kind: Config
current-context: c
clusters:
- {name: c, cluster: {server: "https://192.0.2.1:6443", tls-server-name: kubernetes, certificate-authority-data: eA==}}
- {name: other, cluster: {server: "https://192.0.2.2:6443", proxy-url: "socks5://192.0.2.3:1080"}}
users:
- {name: u, user: {token: secret}}
- {name: other, user: {client-certificate-data: eA==, client-key-data: eA==}}
contexts:
- {name: c, context: {cluster: c, user: u, namespace: team}}
- {name: second, context: {cluster: other, user: other}}
`

// TestKubeconfig: for all flags, a client of the kubeconfig is the one that the command configures for itself.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := filepath.Join(dir, "config")
	for name, content := range map[string]string{"config": twoContexts, "x.crt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := map[string]bool{"kubeconfig": true, "request-timeout": true, "name": true} // the first is in all cases; the last two are in no kubeconfig
	for _, args := range []string{
		"", "--context=second", "--cluster=other", "--user=other", "--server=https://192.0.2.9:6443", "--server=https://192.0.2.9:6443 --tls-server-name=x",
		"--tls-server-name=x", "--certificate-authority=x.crt", "--insecure-skip-tls-verify", "--token=t", "--client-certificate=x.crt --client-key=x.crt",
		"--as=alice", "--as=alice --as-group=a --as-group=b --as-uid=7 --as-user-extra=k=1 --as-user-extra=k=2", "--disable-compression",
		"--context=second --cluster=c --user=u --as=alice",
	} {
		t.Run(args, func(t *testing.T) {
			f := New()
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.AddFlags(flags)
			if err := flags.Parse(append(strings.Fields(args), "--kubeconfig="+file)); err != nil {
				t.Fatal(err)
			}
			flags.Visit(func(flag *pflag.Flag) { left[flag.Name] = true })
			want, err := f.ToRESTConfig()
			if err != nil {
				t.Fatal(err)
			}
			merged, err := f.Kubeconfig()
			if err != nil {
				t.Fatal(err)
			}
			got, err := clientcmd.NewDefaultClientConfig(merged, nil).ClientConfig()
			if err != nil {
				t.Fatal(err)
			}
			if (got.Proxy == nil) != (want.Proxy == nil) {
				t.Errorf("only one of them has a proxy: %+v, want %+v", got, want)
			}
			got.Proxy, want.Proxy = nil, nil
			for _, path := range []*string{&want.CAFile, &want.CertFile, &want.KeyFile} {
				if *path != "" {
					*path = filepath.Join(dir, *path)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%#v, want %#v", got, want)
			}
			if ns := merged.Contexts[merged.CurrentContext].Namespace; strings.Contains(args, "second") != (ns == "") {
				t.Errorf("namespace %q", ns)
			}
		})
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	New().AddFlags(all)
	all.VisitAll(func(flag *pflag.Flag) {
		if !left[flag.Name] {
			t.Errorf("no case has --%s", flag.Name)
		}
	})
}

// TestKubeconfigWithoutContext: --server needs no kubeconfig.
func TestKubeconfigWithoutContext(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	f := New()
	*f.APIServer, *f.BearerToken = "https://192.0.2.9:6443", "t"
	merged, err := f.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	c := merged.Contexts[merged.CurrentContext]
	if c == nil || merged.Clusters[c.Cluster].Server != *f.APIServer || merged.AuthInfos[c.AuthInfo].Token != "t" {
		t.Errorf("%+v", merged)
	}
}
