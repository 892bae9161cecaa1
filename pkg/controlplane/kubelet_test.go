// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// fakeKubelet does what the real one does with static Pods: it watches the manifest
// directory and runs each container's program, with its very arguments, whenever
// a manifest comes, changes or goes, and again if the program ends. The root
// directory of the programs is that of the test node, so that every path in a
// manifest is right.
type fakeKubelet struct {
	t    *testing.T
	root nodefs.Host
	// images has the program of each container name.
	images map[string]string
	// change may spoil the arguments of a program before it starts; nil: it does not.
	change atomic.Pointer[func(argv []string) []string]

	stop, stopped chan struct{}
	pods          map[string]*staticPod
}

type staticPod struct {
	manifest []byte
	cmd      *exec.Cmd
	ended    chan struct{}
	again    time.Time
}

const harnessPeriod = 100 * time.Millisecond

func startKubelet(t *testing.T, root string, images map[string]string) *fakeKubelet {
	t.Helper()
	k := &fakeKubelet{t: t, root: nodefs.Host{Root: root}, images: map[string]string{}, pods: map[string]*staticPod{},
		stop: make(chan struct{}), stopped: make(chan struct{})}
	for name, binary := range images {
		at := "/bin/" + filepath.Base(binary)
		copyProgram(t, binary, k.root.Path(at))
		k.images[name] = at
	}
	go k.run()
	t.Cleanup(func() {
		close(k.stop)
		<-k.stopped
	})
	return k
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Link(from, to) == nil {
		return
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func (k *fakeKubelet) run() {
	defer close(k.stopped)
	for {
		k.sync()
		select {
		case <-k.stop:
			for _, p := range k.pods {
				p.end()
			}
			return
		case <-time.After(harnessPeriod):
		}
	}
}

// sync reads the directory as extractFromDir of the kubelet does: names that
// begin with a dot are not seen.
func (k *fakeKubelet) sync() {
	files, _ := filepath.Glob(filepath.Join(k.root.Path("/etc/kubernetes/manifests"), "[^.]*"))
	seen := map[string]bool{}
	for _, file := range files {
		seen[file] = true
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		p := k.pods[file]
		if p != nil && !bytes.Equal(p.manifest, data) {
			p.end()
			p = nil
		}
		if p == nil {
			p = &staticPod{manifest: data}
			k.pods[file] = p
		}
		if !p.running() && time.Now().After(p.again) {
			p.again = time.Now().Add(time.Second)
			k.start(p)
		}
	}
	for file, p := range k.pods {
		if !seen[file] {
			p.end()
			delete(k.pods, file)
		}
	}
}

func (p *staticPod) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *staticPod) end() {
	if !p.running() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (k *fakeKubelet) start(p *staticPod) {
	pod, err := manifests.Decode(p.manifest)
	if err != nil {
		return
	}
	for _, v := range pod.Spec.Volumes {
		if !k.mount(v.HostPath) {
			return // as the kubelet, which goes on trying
		}
	}
	for _, c := range pod.Spec.Containers {
		argv := append(append([]string{}, c.Command...), c.Args...)
		if change := k.change.Load(); change != nil {
			argv = (*change)(argv)
		}
		p.cmd = &exec.Cmd{Path: k.images[c.Name], Args: argv, Dir: "/", Env: []string{"PATH=/bin"},
			SysProcAttr: &syscall.SysProcAttr{Chroot: k.root.Path("/"), Pdeathsig: syscall.SIGKILL}}
		if uid := os.Getuid(); uid != 0 {
			p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
			p.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		}
		log := k.log(pod, c.Name)
		p.cmd.Stdout, p.cmd.Stderr = log, log
		p.ended = make(chan struct{})
		if err := p.cmd.Start(); err != nil {
			_, _ = fmt.Fprintln(log, err)
			p.cmd = nil
			return
		}
		go func(cmd *exec.Cmd, ended chan struct{}) {
			_ = cmd.Wait()
			close(ended)
		}(p.cmd, p.ended)
	}
}

// mount does what the types of a host path ask for.
func (k *fakeKubelet) mount(source *corev1.HostPathVolumeSource) bool {
	if source == nil || source.Type == nil {
		return true
	}
	name := k.root.Path(source.Path)
	info, err := os.Stat(name)
	switch *source.Type {
	case corev1.HostPathDirectory:
		return err == nil && info.IsDir()
	case corev1.HostPathDirectoryOrCreate:
		return os.MkdirAll(name, 0o755) == nil
	case corev1.HostPathFileOrCreate:
		if err != nil {
			return os.WriteFile(name, nil, 0o644) == nil
		}
	}
	return true
}

// log is where the real kubelet and containerd write, in their format.
func (k *fakeKubelet) log(pod *corev1.Pod, container string) io.Writer {
	dir := k.root.Path(fmt.Sprintf("%s/%s_%s-node-1_0123/%s", kubelet.PodLogs, pod.Namespace, pod.Name, container))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return io.Discard
	}
	return &criLog{name: filepath.Join(dir, "0.log")}
}

type criLog struct {
	name string
	mu   sync.Mutex
	rest []byte
}

func (l *criLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	l.rest = append(l.rest, data...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(data), nil
		}
		_, _ = fmt.Fprintf(file, "%s stderr F %s\n", time.Now().Format(time.RFC3339Nano), l.rest[:i])
		l.rest = l.rest[i+1:]
	}
}
