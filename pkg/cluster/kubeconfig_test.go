// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
)

const admin = `apiVersion: v1
kind: Config
clusters: [{name: kubernetes, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: kubernetes-admin, user: {token: secret}}]
contexts: [{name: admin@kubernetes, context: {cluster: kubernetes, user: kubernetes-admin}}]
current-context: admin@kubernetes
`

const foreign = `apiVersion: v1
kind: Config
preferences: {}
clusters: [{name: prod, cluster: {server: "https://prod.example.com"}}]
users: [{name: me, user: {client-certificate: me.crt, client-key: me.key}}]
contexts: [{name: prod, context: {cluster: prod, user: me, namespace: shop}}]
current-context: prod
`

func TestKubeconfigComesAndGoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "config")
	got, _, err := MergeKubeconfig("dev", file, []byte(admin))
	if err != nil || got != file {
		t.Fatalf("MergeKubeconfig = %q, %v", got, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600: it holds a key", info.Mode(), err)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	context := config.Contexts["fairlead-dev"]
	if config.CurrentContext != "fairlead-dev" || context == nil ||
		config.Clusters[context.Cluster].Server != "https://127.0.0.1:6443" || config.AuthInfos[context.AuthInfo].Token != "secret" {
		t.Errorf("merged: %+v", config)
	}
	for _, want := range []bool{true, false} {
		if had, err := RemoveKubeconfig("dev", file, "", ""); err != nil || had != want {
			t.Errorf("RemoveKubeconfig = %v, %v; want %v", had, err, want)
		}
	}
	if config, err = clientcmd.LoadFromFile(file); err != nil || len(config.Contexts)+len(config.Clusters)+len(config.AuthInfos) != 0 || config.CurrentContext != "" {
		t.Errorf("left over: %+v, %v", config, err)
	}
}

func TestKubeconfigLeavesOthersAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for range 2 { // it is idempotent
		if _, _, err := MergeKubeconfig("dev", "", []byte(admin)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := MergeKubeconfig("other", "", []byte(admin)); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveKubeconfig("dev", "", "https://127.0.0.1:6443", ""); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	prod, user := config.Contexts["prod"], config.AuthInfos["me"]
	if prod == nil || prod.Namespace != "shop" || user == nil || !strings.HasSuffix(user.ClientCertificate, "me.crt") {
		t.Errorf("the user's own entries changed: %+v", config)
	}
	if config.Contexts["fairlead-dev"] != nil || config.Contexts["fairlead-other"] == nil {
		t.Errorf("contexts = %v, want fairlead-other and not fairlead-dev", config.Contexts)
	}
	// Removing dev must not change the current context, which is that of other.
	if config.CurrentContext != "fairlead-other" {
		t.Errorf("current context = %q, want fairlead-other", config.CurrentContext)
	}
}

func TestKubeconfigThatCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	broken := "clusters: [unclosed"
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := MergeKubeconfig("dev", file, []byte(admin))
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error = %v, want one that names %s", err, file)
	}
	if data, _ := os.ReadFile(file); string(data) != broken {
		t.Errorf("the broken file was changed to %q", data)
	}
}

// Several concurrent commands must not lose each other's contexts.
func TestKubeconfigUnderContention(t *testing.T) {
	short := kubeconfigfile.LockWait
	kubeconfigfile.LockWait = time.Minute
	t.Cleanup(func() { kubeconfigfile.LockWait = short })
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	const clusters = 8
	results := make(chan error, clusters)
	for i := range clusters {
		go func() {
			name := fmt.Sprintf("c%d", i)
			for range 5 {
				if _, _, err := MergeKubeconfig(name, file, []byte(admin)); err != nil {
					results <- err
					return
				}
				if _, err := RemoveKubeconfig(name, file, "", ""); err != nil {
					results <- err
					return
				}
			}
			_, _, err := MergeKubeconfig(name, file, []byte(admin))
			results <- err
		}()
	}
	for range clusters {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil || len(config.Contexts) != clusters+1 || config.Contexts["prod"] == nil {
		t.Errorf("%d contexts, want %d and the user's own (%v)", len(config.Contexts), clusters+1, err)
	}
}

func TestKubeconfigWithStaleLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := MergeKubeconfig("dev", file, []byte(admin)); err == nil || !strings.Contains(err.Error(), file+".lock") {
		t.Errorf("error = %v, want the stale lock's name", err)
	}
	if _, err := os.Stat(file + ".lock"); err != nil {
		t.Errorf("the lock of another process was removed: %v", err)
	}
}

func TestContextOfAnotherStateDirectoryStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if _, _, err := MergeKubeconfig("dev", file, []byte(admin)); err != nil {
		t.Fatal(err)
	}
	if had, err := RemoveKubeconfig("dev", file, "https://127.0.0.1:1", ""); err != nil || had {
		t.Errorf("RemoveKubeconfig = %v, %v; want to leave a context with another server", had, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if had, err := RemoveKubeconfig("dev", link, "https://127.0.0.1:6443", ""); err != nil || !had {
		t.Errorf("RemoveKubeconfig = %v, %v; want it removed", had, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}
}

// The previous current context is restored, unless the user chose another one
// meanwhile or it is gone.
func TestPreviousContextComesBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	_, previous, err := MergeKubeconfig("dev", file, []byte(admin))
	if err != nil || previous != "prod" {
		t.Fatalf("previous = %q, %v; want prod", previous, err)
	}
	for _, tc := range []struct{ previous, want string }{{"prod", "prod"}, {"gone", ""}, {"", ""}} {
		if _, _, err := MergeKubeconfig("dev", file, []byte(admin)); err != nil {
			t.Fatal(err)
		}
		if _, err := RemoveKubeconfig("dev", file, "", tc.previous); err != nil {
			t.Fatal(err)
		}
		if config, err := clientcmd.LoadFromFile(file); err != nil || config.CurrentContext != tc.want {
			t.Errorf("with previous %q the current context is %q, %v; want %q", tc.previous, config.CurrentContext, err, tc.want)
		}
	}
}
