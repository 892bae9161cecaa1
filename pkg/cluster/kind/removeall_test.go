// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// An up was killed while "docker run" was making a node: down removes the node
// that comes only then.
func TestDownWaitsForStragglers(t *testing.T) {
	path := os.Getenv("PATH")
	nodes := t.TempDir()
	fakeRuntime(t, `case "$1 $2" in
"ps "*) ls "$NODES" ;;
"container inspect") echo "$INSPECTED" ;;
"inspect "*) echo worker ;;
"rm "*) rm -f "$NODES"/* ;;
esac
`)
	t.Setenv("PATH", os.Getenv("PATH")+":"+path)
	p := storedCluster(t, "docker")
	const name = "fairlead-dev-worker"
	t.Setenv("NODES", nodes)
	t.Setenv("INSPECTED", "["+inspected("docker", name, true, p.Dir+"/nodes/"+name, "")+"]")
	making := exec.CommandContext(t.Context(), "sh", "-c", `sleep 0.5; : >"$NODES/`+name+`"`, "docker", "run", "--label", clusterLabel+"=fairlead-dev")
	if err := making.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- making.Wait() }()
	if err := NewProvider(filepath.Dir(p.Dir), Settings{}).Down(t.Context(), cluster.DownOptions{Name: "dev", Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(nodes); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", p.Dir, err)
	}
}
