// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestInstance reads what the kernel shows of a process, as it was seen on nodes
// with either driver of the kubelet, and in nodes that are containers.
func TestInstance(t *testing.T) {
	const uid = "0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct{ cgroup, pod string }{
		"systemd":      {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice/cri-containerd-0a.scope\n", uid},
		"guaranteed":   {"0::/kubepods.slice/kubepods-pod" + uid + ".slice/crio-0a.scope\n", uid},
		"cgroupfs":     {"0::/kubepods/burstable/pod" + uid + "/0a1b\n", uid},
		"version 1":    {"12:pids:/kubepods/burstable/pod" + uid + "/0a1b\n1:name=systemd:/kubepods/burstable/pod" + uid + "/0a1b\n", uid},
		"by the API":   {"0::/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/x.scope\n", "01234567-89ab-cdef-0123-456789abcdef"},
		"node in Pod":  {"0::/kubepods/podffffffffffffffffffffffffffffffff/docker/1/slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + uid + ".slice/x.scope\n", uid},
		"next to each": {"0::/kubepods/podffffffffffffffffffffffffffffffff/pod" + uid + "/0a\n", uid},
		"no Pod":       {"0::/system.slice/podman.service\n", ""},
		"not that":     {"0::/user.slice/tripod0123/x\n", ""},
	} {
		f := fakeProc(t, tc.cgroup, "42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 87563 5390336 678\n")
		if got := f.Find(&Program{Name: "server"}, true); len(got) != 1 || got[0] != (Instance{PID: 42, Start: "boot-1/87563", Pod: tc.pod}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	a, b := Instance{PID: 1, Start: "x/1", Pod: "p"}, Instance{PID: 1, Start: "x/2"}
	if a.Among([]Instance{b}) || !a.Among([]Instance{b, {PID: 2, Start: "x/9", Pod: "p"}}) || !b.Among([]Instance{b}) || b.Among([]Instance{{PID: 2, Start: "x/2"}}) {
		t.Error("instances are mixed up")
	}
}

func fakeProc(t *testing.T, cgroup, stat string) Procfs {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"42/cgroup": cgroup, "42/stat": stat, "42/cmdline": "/usr/bin/server\x00--a=1\x00", "sys/kernel/random/boot_id": "boot-1\n"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return Procfs(dir)
}

// TestOtherNetwork: the same program in a container on the same machine is no
// process of this node.
func TestOtherNetwork(t *testing.T) {
	f := fakeProc(t, "", "")
	link := func(name, to string) {
		t.Helper()
		file := filepath.Join(string(f), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.Symlink(to, file)); err != nil {
			t.Fatal(err)
		}
	}
	link("self/ns/net", "net:[1]")
	if got := f.Find(&Program{Name: "server"}, true); len(got) != 1 {
		t.Errorf("%+v, want the process whose network is not shown", got)
	}
	link("42/ns/net", "net:[2]")
	if got := f.Find(&Program{Name: "server"}, true); len(got) != 0 {
		t.Errorf("%+v, want none", got)
	}
}
