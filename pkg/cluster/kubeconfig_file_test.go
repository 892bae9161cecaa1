// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/internal/kubeconfigfile"
)

// kubectl locks a file under the name that it is given: a lock next to a link keeps
// fairlead away as well, and so does one next to the link's target.
func TestLocksOfALink(t *testing.T) {
	for _, locked := range []string{"link", "real"} {
		dir, elsewhere := t.TempDir(), t.TempDir()
		paths := map[string]string{"link": filepath.Join(dir, "link"), "real": filepath.Join(elsewhere, "config")}
		if err := errors.Join(os.WriteFile(paths["real"], []byte(foreign), 0o640), os.Symlink(paths["real"], paths["link"]),
			os.WriteFile(paths[locked]+".lock", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := MergeKubeconfig("dev", paths["link"], []byte(admin)); err == nil || !strings.Contains(err.Error(), paths[locked]+".lock") {
			t.Errorf("with the lock beside the %s: %v", locked, err)
		}
		if err := os.Remove(paths[locked] + ".lock"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := MergeKubeconfig("dev", paths["link"], []byte(admin)); err != nil {
			t.Errorf("without a lock: %v", err)
		}
		for name, path := range paths {
			if exists(path + ".lock") {
				t.Errorf("the lock beside the %s stays", name)
			}
		}
		if info, err := os.Stat(paths["real"]); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("mode %v, %v; want 0640 as before", info.Mode(), err)
		}
	}
}

// A file that cannot be written is found before a cluster is made, and a directory that
// is missing is not made for that.
func TestCheckKubeconfigLooksAtWriting(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	if err := errors.Join(CheckKubeconfig(file), CheckKubeconfig(filepath.Join(dir, "sub", "sub", "config"))); err != nil {
		t.Errorf("a file that can be made is refused: %v", err)
	}
	if exists(filepath.Join(dir, "sub")) {
		t.Error("the check made a directory")
	}
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckKubeconfig(file); !errors.Is(err, kubeconfigfile.ErrLocked) {
		t.Errorf("with a stale lock: %v", err)
	}
	// Also for root, sysfs has directories in which no file can be made.
	if err := CheckKubeconfig("/sys/kernel/config"); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("a file that cannot be made: %v", err)
	}
}

// A "down" that finds a stale lock says so once, and the next one brings back the
// context of before although the cluster's directory is gone.
func TestContextAfterAStaleLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	home, err := NewHome(t.TempDir(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	_, previous, err := MergeKubeconfig("dev", "", []byte(admin))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = home.RemoveContexts("https://127.0.0.1:6443", previous, []string{file, ""})
	if err == nil || strings.Count(err.Error(), file+".lock") != 1 {
		t.Fatalf("the lock is not named once: %v", err)
	}
	if err := os.Remove(file + ".lock"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "other"))
	if had, err := home.RemoveContexts("", "", []string{""}); err != nil || !had {
		t.Fatalf("the second time: %v, %v", had, err)
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil || config.CurrentContext != "prod" || config.Contexts["fairlead-dev"] != nil {
		t.Errorf("current context %q, %v; want prod", config.CurrentContext, err)
	}
	if exists(home.leftContextFile()) {
		t.Error("what was remembered stays")
	}
}
