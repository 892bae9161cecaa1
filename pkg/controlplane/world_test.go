// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// world is a machine with a slow kubelet: it reads the static Pod manifests from
// time to time, and its "processes" are files in the layout of /proc. All of it is
// on disk, so that it continues after the program under test was killed.
type world struct {
	root nodefs.Host
	// proc is the directory of processes.
	proc string
	// pods: cgroups name the Pod, as on every kubeadm node.
	pods bool
	// every is how long the kubelet sleeps.
	every time.Duration

	mu    sync.Mutex
	stop  chan struct{}
	ended chan struct{}
}

// worldState is what the kubelet knows.
type worldState struct {
	// Hash holds the hash of the running Pod, and its process, by the manifest's
	// path.
	Hash map[string]string
	PID  map[string]int
	Last int
}

// inBubble runs a test that waits by a clock of its own, which begins now, so that certificates are valid.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now))
		test(t)
	})
}

// startWorld continues with the machine below root.
func startWorld(root string, pods bool, every time.Duration) *world {
	w := &world{root: nodefs.Host{Root: root}, proc: root + ".proc", pods: pods, every: every, stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(w.every):
				if err := w.sync(); err != nil {
					panic(err)
				}
			}
		}
	}()
	return w
}

func (w *world) end() {
	close(w.stop)
	<-w.ended
}

// options returns options for a node whose processes are the world's.
func (w *world) options() Options {
	o := testOptions(w.root.Root)
	o.waits, o.proc, o.Timeout = nil, w.proc, time.Minute
	o.settle, o.poll = time.Nanosecond, 10*time.Millisecond
	o.Kubeconfig = "/nowhere" // there is no API server
	o.health = w.health
	return o
}

// health is the health check of the programs: kube-apiserver is healthy as long as
// any kube-apiserver runs.
func (w *world) health(url string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.load()
	manifest := serverFile
	if strings.HasPrefix(url, "https:") {
		manifest = apiServerFile
	}
	if s.PID[manifest] == 0 {
		return errors.New("connection refused")
	}
	return nil
}

// load reads the kubelet's state; the caller holds the lock, or only reads.
func (w *world) load() worldState {
	s := worldState{Hash: map[string]string{}, PID: map[string]int{}, Last: 100}
	if data, err := os.ReadFile(filepath.Join(w.proc, "kubelet.json")); err == nil {
		_ = json.Unmarshal(data, &s)
	}
	return s
}

// sync does what the kubelet does with static Pods: a changed Pod gets a new
// process. It repeats what a kill left half done.
func (w *world) sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.load()
	for _, manifest := range []string{apiServerFile, serverFile} {
		hash, argv := w.pod(manifest)
		if hash == s.Hash[manifest] && w.runs(s.PID[manifest]) {
			continue
		}
		if old := s.PID[manifest]; old != 0 {
			if err := os.RemoveAll(filepath.Join(w.proc, fmt.Sprint(old))); err != nil {
				return err
			}
			s.PID[manifest] = 0
		}
		if s.Hash[manifest] = hash; hash != "" {
			s.Last++
			s.PID[manifest] = s.Last
			if err := w.start(s.Last, hash, argv); err != nil {
				return err
			}
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	staged := filepath.Join(w.proc, "kubelet.json.new")
	return errors.Join(os.MkdirAll(w.proc, 0o755), os.WriteFile(staged, data, 0o600), os.Rename(staged, filepath.Join(w.proc, "kubelet.json")))
}

// runs reports whether a process is there. If this program was killed between the end of the old process and the start of the
// new one, none is, and the kubelet's state still names the old one.
func (w *world) runs(pid int) bool {
	if pid == 0 {
		return true // nothing is to run
	}
	_, err := os.Stat(filepath.Join(w.proc, fmt.Sprint(pid), "cmdline"))
	return err == nil
}

// TestWorldKilled: the kubelet of these tests starts a process again that it had ended when it was killed.
func TestWorldKilled(t *testing.T) {
	t.Parallel()
	root := testNode(t)
	w := startWorld(root, true, time.Hour)
	defer w.end()
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	pid := w.load().PID[apiServerFile]
	if err := os.RemoveAll(filepath.Join(w.proc, fmt.Sprint(pid))); err != nil {
		t.Fatal(err)
	}
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	if fresh := w.load().PID[apiServerFile]; fresh == pid || !w.runs(fresh) {
		t.Errorf("process %d, which was ended, is now %d, want a new one", pid, fresh)
	}
}

// pod returns the hash that the kubelet computes of a manifest's content, and the
// command that it runs.
func (w *world) pod(manifest string) (hash string, argv []string) {
	data, err := w.root.Read(manifest)
	if err != nil {
		return "", nil
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return "", nil
	}
	canonical, err := json.Marshal(pod)
	if err != nil {
		return "", nil
	}
	sum := sha256.Sum256(canonical)
	c := pod.Spec.Containers[0]
	return hex.EncodeToString(sum[:16]), append(append([]string{}, c.Command...), c.Args...)
}

func (w *world) start(pid int, hash string, argv []string) error {
	dir := filepath.Join(w.proc, fmt.Sprint(pid))
	cgroup := "0::/user.slice\n"
	if w.pods {
		cgroup = "0::/kubelet.slice/kubepods-burstable.slice/kubepods-burstable-pod" + hash + ".slice/cri-containerd-0a1b.scope\n"
	}
	stat := fmt.Sprintf("%d (%.15s) S %s%d 0 0\n", pid, path.Base(argv[0]), strings.Repeat("0 ", 18), pid*7)
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600),
		os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o600),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte(strings.Join(argv, "\x00")+"\x00"), 0o600))
}

// settled fails unless the kubelet runs what the manifests say now: a run must not
// finish before that.
func (w *world) settled(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.load()
	for _, manifest := range []string{apiServerFile, serverFile} {
		if hash, _ := w.pod(manifest); hash != s.Hash[manifest] {
			t.Errorf("the run has ended, and the kubelet has not taken up %s yet", manifest)
		}
	}
}
