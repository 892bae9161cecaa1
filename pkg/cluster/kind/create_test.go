// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// slowDocker takes a second to make a container, which exists from then on until
// it is removed, as a file of its name in $NODES.
const slowDocker = `case "$1 $2" in
"info "*) echo '{"CgroupVersion": "2", "MemoryLimit": true, "PidsLimit": true, "CPUShares": true}' ;;
"network ls") echo "an id" ;;
"network inspect") echo '[{"Id": "an id"}]' ;;
"image inspect") ;;
"ps "*) ls "$NODES" ;;
"run "*) : >"$NODES/../begun"; sleep 1; : >"$NODES/interrupted-control-plane" ;;
"exec "*) ;;
"rm "*) rm -f "$NODES"/* ;;
"inspect "*) echo control-plane ;;
"logs "*) while [ -e "$NODES/interrupted-control-plane" ]; do sleep 0.1; done ;;
esac
`

// When the caller is interrupted kind does not go on behind its back: once
// CreateNodes has returned, no container is there, and none comes.
func TestCreateNodesInterrupted(t *testing.T) {
	path := os.Getenv("PATH")
	fakeRuntime(t, slowDocker)
	t.Setenv("PATH", os.Getenv("PATH")+":"+path)
	dir := t.TempDir()
	nodes := filepath.Join(dir, "nodes")
	if err := os.Mkdir(nodes, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NODES", nodes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	library := (&runtime{command: "docker"}).kind(newLogger(progress.Silent))
	err := CreateNodes(ctx, library, "interrupted", filepath.Join(dir, "kubeconfig"), false, kindcluster.CreateWithNodeImage("node:v1"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("CreateNodes = %v, want that it was canceled", err)
	}
	time.Sleep(1200 * time.Millisecond) // no container may come: this is longer than one takes
	if left, _ := os.ReadDir(nodes); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The end of what kubeadm says is its error, not the stack trace below it.
func TestExplainQuotesTheError(t *testing.T) {
	var said strings.Builder
	said.WriteString("I1122 00:00:00.000000 1 waitcontrolplane.go:80] [wait-control-plane] Waiting\n")
	said.WriteString("[kubelet-check] The kubelet is not healthy after 4m0s\n\nerror: error execution phase wait-control-plane: the kubelet is not healthy\n")
	for range quotedLines {
		said.WriteString("k8s.io/kubernetes/cmd/kubeadm/app/cmd/phases/workflow.(*Runner).Run.func1\n\tk8s.io/kubernetes@v1.36.3/cmd/kubeadm/app/cmd/phases/workflow/runner.go:262\n")
	}
	said.WriteString("runtime.goexit\n\truntime/asm_amd64.s:1771\n")
	failed := &kindexec.RunError{Command: []string{"docker", "exec"}, Output: []byte(said.String()), Inner: errors.New("exit status 1")}
	err := explain(failed)
	for _, want := range []string{"Waiting", "is not healthy after 4m0s", "error: error execution phase"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "runner.go") || strings.Contains(err.Error(), "goexit") || !errors.Is(err, failed) {
		t.Errorf("a stack trace is in, or the error is not,\n%v", err)
	}
}
