// SPDX-License-Identifier: Apache-2.0

// Package tinytest has a provider whose clusters are files only. Tests use it to show
// what all providers share, and it is the smallest example of a provider: start at
// [NewSettings], which is all that a registration needs.
package tinytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Name is the provider's name.
const Name = "files"

// Server is the API server's URL in kubeconfigs; nothing listens there.
const Server = "https://127.0.0.1:1"

// ErrCreate is the failure of clusters with Settings.Fail.
var ErrCreate = errors.New("the files cannot be made")

// Settings are those of this provider.
type Settings struct {
	// Files is the number of files of a new cluster.
	Files int
	// Fail makes Up fail halfway.
	Fail bool
}

// NewSettings returns the settings with their defaults.
func NewSettings() cluster.Settings { return &Settings{} }

// ProviderName implements cluster.Settings.
func (s *Settings) ProviderName() string { return Name }

// AddFlags implements cluster.Settings.
func (s *Settings) AddFlags(f *pflag.FlagSet) {
	f.IntVar(&s.Files, "files", 1, "files: number of files")
	f.BoolVar(&s.Fail, "fail", false, "files: fail halfway")
}

// Validate implements cluster.Settings.
func (s *Settings) Validate(f *pflag.FlagSet) error { return cluster.CheckPositive(f, "files") }

// Provider implements cluster.Settings.
func (s *Settings) Provider(root string) cluster.Provider { return &provider{root: root, settings: *s} }

type provider struct {
	root     string
	settings Settings
}

func (p *provider) Name() string { return Name }

func (p *provider) lifecycle(name string) (*cluster.Lifecycle, error) {
	home, err := cluster.NewHome(p.root, name)
	d := &driver{home: home, settings: p.settings}
	return &cluster.Lifecycle{Driver: d, Provider: Name, Home: home, Record: &d.state, Removing: "Removing files", Logs: "its logs"}, err
}

func (p *provider) Up(ctx context.Context, o cluster.UpOptions) error {
	l, err := p.lifecycle(o.Name)
	if err != nil {
		return err
	}
	return l.Up(ctx, o)
}

func (p *provider) Down(ctx context.Context, o cluster.DownOptions) error {
	l, err := p.lifecycle(o.Name)
	if err != nil {
		return err
	}
	return l.Down(ctx, o)
}

func (p *provider) Status(_ context.Context, name string) (cluster.Status, error) {
	l, err := p.lifecycle(name)
	if err != nil {
		return nil, err
	}
	if err := l.Driver.Load(); err != nil {
		return nil, err
	}
	s := status{l.Record.Summary(l.Home, Name)}
	s.Server, s.Running, s.Healthy = Server, true, true
	return s, nil
}

func (p *provider) Kubeconfig(name string) ([]byte, error) {
	l, err := p.lifecycle(name)
	if err != nil {
		return nil, err
	}
	return l.Home.AdminKubeconfigData()
}

func (p *provider) CheckEnv(context.Context, string, *rest.Config) (*check.Env, error) {
	return nil, nil
}

type status struct{ cluster.Summary }

func (s status) Problem() string { return "" }

func (s status) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d files\n", s.Nodes)
	return err
}

// driver implements cluster.Driver.
type driver struct {
	home     cluster.Home
	settings Settings
	state    cluster.Record
}

func (d *driver) CheckMachine(context.Context) error { return nil }

func (d *driver) Load() error { return d.home.ReadState(&d.state, &d.state) }

func (d *driver) Save() error { return cluster.WriteJSON(d.home.StateFile(), d.state) }

func (d *driver) Plan(context.Context) error {
	d.state = cluster.NewRecord(d.home.Name)
	d.state.Nodes, d.state.KubernetesVersion = d.settings.Files, "v0.0.0"
	return nil
}

func (d *driver) Create(context.Context) error {
	for _, dir := range []string{d.home.ConfigDir(), d.home.LogDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for i := range d.state.Nodes {
		if err := fsutil.WriteFile(filepath.Join(d.home.Dir, fmt.Sprintf("file-%d", i)), nil, 0o600); err != nil {
			return err
		}
	}
	if d.settings.Fail {
		return ErrCreate
	}
	return d.home.StoreAdminKubeconfig([]byte(`{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],` +
		`"clusters":[{"name":"k","cluster":{"server":"` + Server + `"}}],"users":[{"name":"u","user":{}}]}`))
}

func (d *driver) Resume(context.Context) error {
	if d.settings.Files > 1 && d.settings.Files != d.state.Nodes {
		return d.home.Differs(progress.Count(d.state.Nodes, "file"), progress.Count(d.settings.Files, "file"))
	}
	return nil
}

func (d *driver) CollectLogs(bool) (string, error) {
	return "look at the files", fsutil.WriteFile(filepath.Join(d.home.LogDir(), "log"), []byte("failed\n"), 0o600)
}

func (d *driver) Left() (bool, error) {
	has, err := d.home.Provider()
	return has == Name, err
}

func (d *driver) Remove(context.Context) error { return os.RemoveAll(d.home.Dir) }

func (d *driver) ServerURL() string { return Server }
