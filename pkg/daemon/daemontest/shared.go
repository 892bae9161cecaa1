// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testutil"
)

// shared are the control planes of the tests of this package, by the flags of kube-apiserver. Only [RunShared] ends them.
var shared = struct {
	sync.Mutex
	running bool
	owner   *packageOwner
	planes  map[string]*ControlPlane
	free    []*plane // of TakeControlPlane
}{planes: map[string]*ControlPlane{}}

// RunShared runs the tests of a package that calls [SharedControlPlane], and returns the exit code for TestMain.
func RunShared(m *testing.M) int {
	shared.running, shared.owner = true, &packageOwner{}
	defer shared.owner.end()
	return m.Run()
}

// SharedControlPlane returns a control plane that all tests of the package use which ask for the same flags. The first
// one starts it. TestMain has to call [RunShared]. A test makes its objects in a namespace of its own, or under names of its own, and
// removes objects without a namespace.
func SharedControlPlane(t *testing.T, apiServerArgs ...string) *ControlPlane {
	t.Helper()
	testutil.Integration(t, "etcd and kube-apiserver")
	shared.Lock()
	defer shared.Unlock()
	if !shared.running {
		t.Fatal("share a control plane: TestMain does not call daemontest.RunShared")
	}
	key := strings.Join(apiServerArgs, " ")
	if cp, ok := shared.planes[key]; ok {
		return cp
	}
	cp, err := shared.owner.start(t, apiServerArgs)
	if err != nil {
		t.Fatal(err)
	}
	shared.planes[key] = cp
	return cp
}

// packageOwner owns processes and directories for as long as the tests of a package run. Of testing.TB it has the methods
// that this package calls.
type packageOwner struct {
	testing.TB
	cleanups []func()
	failed   bool
}

// failure is what packageOwner panics with in place of ending a test.
type failure string

func (o *packageOwner) start(t *testing.T, args []string) (cp *ControlPlane, err error) {
	testutil.Limit(t, startLimit)
	programs := Components(t, "etcd", "kube-apiserver")
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("start a shared control plane: %s", r)
		default:
			panic(r)
		}
	}()
	return startControlPlane(o, programs, args), nil
}

func (o *packageOwner) end() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}

func (o *packageOwner) Helper()                  {}
func (o *packageOwner) Cleanup(f func())         { o.cleanups = append(o.cleanups, f) }
func (o *packageOwner) Context() context.Context { return context.Background() }
func (o *packageOwner) Failed() bool             { return o.failed }
func (o *packageOwner) Log(args ...any)          { fmt.Fprintln(os.Stderr, args...) }
func (o *packageOwner) Logf(f string, a ...any)  { fmt.Fprintf(os.Stderr, f+"\n", a...) }
func (o *packageOwner) Error(args ...any)        { o.failed = true; o.Log(args...) }
func (o *packageOwner) Errorf(f string, a ...any) {
	o.failed = true
	o.Logf(f, a...)
}
func (o *packageOwner) Fatal(args ...any) { o.failed = true; panic(failure(fmt.Sprintln(args...))) }
func (o *packageOwner) Fatalf(f string, a ...any) {
	o.failed = true
	panic(failure(fmt.Sprintf(f, a...)))
}

func (o *packageOwner) TempDir() string {
	dir, err := os.MkdirTemp("", "fairlead-test")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = os.RemoveAll(dir) }) // in the system's directory for temporary files
	return dir
}
