// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/fairlead-dev/fairlead/pkg/interrupt"
)

// Suite is a cluster that the tests of a package share.
type Suite struct {
	env.Environment
	*Cluster

	options  Options
	provider string
	prepare  []func(context.Context, *Cluster) error
	before   []env.TestFunc

	// coming is the cluster that is being created.
	coming sync.WaitGroup

	mu     sync.Mutex
	done   func()
	keep   bool
	failed bool
	ended  bool
}

// New makes the suite of a package; Main brings its cluster up. prepare is what
// to do with the cluster before the tests.
func New(o Options, prepare ...func(context.Context, *Cluster) error) *Suite {
	return &Suite{Environment: env.New(), options: o, prepare: prepare}
}

// BeforeEveryTest registers what to do before each test; Main must not have been called.
func (s *Suite) BeforeEveryTest(f ...env.TestFunc) { s.before = append(s.before, f...) }

// tearDownTime is kept free before go test's own time limit, which would leave
// the cluster behind.
const tearDownTime = 90 * time.Second

// Main is for TestMain: it brings the cluster up, runs the tests and removes the
// cluster, also after a failure, an interrupt or when time is up. Logs of a
// failed run are kept in _output/e2e.
func (s *Suite) Main(m *testing.M) int {
	flag.Parse()
	// Drop what client-go logs about connections that a test has closed.
	klog.SetLogger(logr.Discard())
	s.provider = os.Getenv("PROVIDER")
	if s.provider == "" {
		s.provider = Embedded
	}
	if s.provider != Embedded && s.provider != Kind {
		fmt.Fprintf(os.Stderr, "PROVIDER=%s: want %s or %s\n", s.provider, Embedded, Kind)
		return 2
	}
	if s.options.Only != "" && s.options.Only != s.provider {
		fmt.Fprintf(os.Stderr, "these tests are for PROVIDER=%s; not made\n", s.options.Only)
		return 0
	}
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "these tests need a cluster; none runs with -short")
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.Environment, _ = env.NewWithContext(ctx, envconf.New()) // neither is nil
	defer s.watch(cancel)()
	s.BeforeEachTest(s.before...)
	s.Setup(func(ctx context.Context, cfg *envconf.Config) (context.Context, error) {
		ctx, err := s.setUp(ctx, cfg)
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the cluster of the tests:", err)
		}
		return ctx, err
	})
	s.AfterEachTest(func(ctx context.Context, _ *envconf.Config, t *testing.T) (context.Context, error) {
		if t.Failed() {
			s.mu.Lock()
			s.failed = true
			s.mu.Unlock()
		}
		return ctx, nil
	})
	code := s.Run(m)
	if err := s.tearDown(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (s *Suite) setUp(ctx context.Context, cfg *envconf.Config) (context.Context, error) {
	s.coming.Add(1)
	defer s.coming.Done()
	if s.provider == Kind {
		if _, err := newKind(); err != nil {
			return ctx, err
		}
	}
	bin, done, err := BuildPrograms(ctx)
	if err != nil {
		return ctx, err
	}
	s.mu.Lock()
	s.done = done
	s.mu.Unlock()
	if dir := os.Getenv("E2E_HOME"); dir != "" {
		return s.reuse(ctx, cfg, bin, dir)
	}
	SweepUp(ctx)
	begin := time.Now()
	h, err := NewHome(bin, HomePrefix())
	if err != nil {
		return ctx, err
	}
	s.mu.Lock()
	s.Cluster = &Cluster{Home: h, Name: s.options.Name, Provider: s.provider}
	s.mu.Unlock()
	if s.options.Bare {
		return ctx, nil
	}
	c, err := Up(ctx, h, s.provider, s.options)
	if c != nil {
		s.mu.Lock()
		s.Cluster = c
		s.mu.Unlock()
	}
	if err != nil {
		return ctx, err
	}
	fmt.Printf("%s cluster %s came up in %s\n", s.provider, c.Name, time.Since(begin).Round(time.Second))
	return ctx, s.ready(ctx, cfg)
}

// reuse takes the cluster that an earlier run has kept (E2E_RETAIN) in its home
// directory, and leaves it there.
func (s *Suite) reuse(ctx context.Context, cfg *envconf.Config, bin, dir string) (context.Context, error) {
	c, err := Find(ctx, bin, dir, s.provider, s.options)
	if err != nil {
		return ctx, err
	}
	s.mu.Lock()
	s.Cluster, s.keep = c, true
	s.mu.Unlock()
	return ctx, s.ready(ctx, cfg)
}

// ready runs the preparation of a package before its tests.
func (s *Suite) ready(ctx context.Context, cfg *envconf.Config) error {
	cfg.WithKubeconfigFile(s.Kubeconfig())
	for _, f := range s.prepare {
		if err := f(ctx, s.Cluster); err != nil {
			return err
		}
	}
	return nil
}

// tearDown keeps the logs of a failure and removes cluster and home, once.
func (s *Suite) tearDown(failed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		defer s.done()
		s.done = nil
	}
	if s.Cluster == nil || s.ended {
		return nil
	}
	s.ended = true
	ctx, cancel := context.WithTimeout(context.Background(), tearDownTime)
	defer cancel()
	clusters := s.clusters()
	if failed || s.failed {
		s.saveLogs(clusters)
	}
	if s.keep || os.Getenv("E2E_RETAIN") != "" {
		s.Close()
		fmt.Fprintf(os.Stderr, "cluster %s is kept; another run takes it with E2E_HOME=%s; KUBECONFIG=%s\n", s.Name, s.Dir, s.Kubeconfig())
		return nil
	}
	s.Close()
	for _, c := range clusters {
		if err := c.Down(ctx); err != nil {
			return fmt.Errorf("removing the cluster of the tests: %w", err)
		}
	}
	return os.RemoveAll(s.Dir)
}

// clusters are all that tests have made and not removed.
func (s *Suite) clusters() []*Cluster {
	var list []*Cluster
	if s.plain {
		list = append(list, s.Cluster)
	}
	for _, name := range s.Home.Clusters() {
		list = append(list, &Cluster{Home: s.Home, Name: name, Provider: s.provider})
	}
	return list
}

// saveLogs keeps the logs of clusters, and what an up has kept that failed.
func (s *Suite) saveLogs(clusters []*Cluster) {
	root := filepath.Join(OutputDir(), "logs")
	save := func(name string, save func(dir string) error) {
		dir := filepath.Join(root, s.provider+"-"+name)
		err := os.RemoveAll(dir)
		if err == nil {
			err = save(dir)
		}
		fmt.Fprintf(os.Stderr, "the logs of cluster %s are in %s\n", name, dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "some of them could not be had:", err)
		}
	}
	for _, c := range clusters {
		save(c.Name, c.SaveLogs)
	}
	kept, _ := filepath.Glob(s.FailedLogs("*"))
	for _, from := range kept {
		save(filepath.Base(from), func(dir string) error { return copyTree(from, dir) })
	}
}

// watch tears the cluster down when the run is interrupted or its time is up.
func (s *Suite) watch(cancel context.CancelFunc) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, interrupt.Signals()...)
	interrupt.OutlivePipes()
	var late <-chan time.Time
	if f := flag.Lookup("test.timeout"); f != nil {
		if limit, err := time.ParseDuration(f.Value.String()); err == nil && limit > 2*tearDownTime {
			late = time.After(limit - tearDownTime)
		}
	}
	done := make(chan struct{})
	go func() {
		code := 130
		select {
		case <-done:
			return
		case sig := <-signals:
			fmt.Fprintf(os.Stderr, "%v: removing the cluster\n", sig)
		case <-late:
			code = 2
			fmt.Fprintln(os.Stderr, "the tests take too long; this is what they are at:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		}
		cancel()
		s.awaitComing()
		if err := s.tearDown(true); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}()
	return func() { signal.Stop(signals); close(done) }
}

// awaitComing waits for a cluster that is being created: otherwise anything
// created after the removal would be left behind.
func (s *Suite) awaitComing() {
	gone := make(chan struct{})
	go func() { s.coming.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(settleLimit):
	}
}

// OutputDir is where reports and logs go: _output/e2e of the repository.
func OutputDir() string {
	if dir := os.Getenv("E2E_OUTPUT"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			return filepath.Join(dir, "_output", "e2e")
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		err = errors.New("no go.mod above")
	}
	return filepath.Join(os.TempDir(), "fairlead-e2e")
}
