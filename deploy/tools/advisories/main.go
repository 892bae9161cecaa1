// SPDX-License-Identifier: Apache-2.0

// Command advisories compares the versions that a go.mod selects with a list of known advisories, and the version of Go with the
// toolchain line:
//
//	go run ./advisories -list ../advisories.yaml -mod ../../go.mod
//
// It fails if a version is older than the one that fixes an advisory, if the list was read more than 30 days ago, or if Go is
// older than the toolchain line. With -allow-older-go the last is a warning. govulncheck finds more, but needs vuln.go.dev.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// maxAge is the age from which the list has to be compared with the sources again.
const maxAge = 30 * 24 * time.Hour

type advisory struct {
	Module string   `json:"module"`
	Fixed  string   `json:"fixed"` // the first version without the fault, such as v0.56.0
	IDs    []string `json:"ids"`
}

type list struct {
	Read       string     `json:"read"` // the day, such as 2026-11-29
	Advisories []advisory `json:"advisories"`
}

func main() {
	listFile := flag.String("list", "", "Read the advisories from this file")
	modFile := flag.String("mod", "", "Compare the versions that this go.mod selects")
	olderGo := flag.Bool("allow-older-go", false, "Warn, and do not fail, if Go is older than the toolchain line")
	flag.Parse()
	if err := run(*listFile, *modFile, *olderGo); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listFile, modFile string, allowOlderGo bool) error {
	l, err := readList(listFile)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(modFile)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(modFile, b, nil)
	if err != nil {
		return err
	}
	older := checkGo(mod, runtime.Version())
	if older != nil && allowOlderGo {
		fmt.Fprintln(os.Stderr, "Warning:", older)
		older = nil
	}
	return errors.Join(checkAge(l, listFile, time.Now()), checkVersions(l, mod), older)
}

func readList(file string) (list, error) {
	var l list
	b, err := os.ReadFile(file)
	if err != nil {
		return l, err
	}
	if err := yaml.UnmarshalStrict(b, &l); err != nil {
		return l, fmt.Errorf("read %s: %w", file, err)
	}
	if len(l.Advisories) == 0 {
		return l, fmt.Errorf("read %s: it has no advisories", file)
	}
	for i, a := range l.Advisories {
		if a.Module == "" || !semver.IsValid(a.Fixed) || len(a.IDs) == 0 {
			return l, fmt.Errorf("read %s: advisories[%d]: write a module, the version with the fix such as v1.2.3, and at least one ID", file, i)
		}
	}
	return l, nil
}

func checkAge(l list, file string, now time.Time) error {
	read, err := time.Parse(time.DateOnly, l.Read)
	if err != nil {
		return fmt.Errorf("read %s: read: %w: write the day as 2006-01-02", file, err)
	}
	if age := now.Sub(read); age > maxAge {
		return fmt.Errorf("%s was last read %d days ago: look for new advisories, add them, and write today's date into read", file, int(age.Hours()/24))
	}
	return nil
}

// checkVersions looks at the go.mod alone: since Go 1.17, it lists every module that the main module's packages are built from.
func checkVersions(l list, mod *modfile.File) error {
	selected := map[string]string{}
	for _, r := range mod.Require {
		selected[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range mod.Replace {
		if r.New.Version == "" {
			continue
		}
		if _, ok := selected[r.Old.Path]; ok {
			selected[r.Old.Path] = r.New.Version
		}
	}
	var errs []error
	for _, a := range l.Advisories {
		if v, ok := selected[a.Module]; ok && semver.Compare(v, a.Fixed) < 0 {
			errs = append(errs, fmt.Errorf("%s %s has a known vulnerability (%s): update it to %s or newer", a.Module, v, strings.Join(a.IDs, ", "), a.Fixed))
		}
	}
	return errors.Join(errs...)
}

func checkGo(mod *modfile.File, running string) error {
	if mod.Toolchain == nil {
		return nil
	}
	running, _, _ = strings.Cut(running, " ") // experiments follow
	want := mod.Toolchain.Name
	if semver.Compare(goSemver(running), goSemver(want)) < 0 {
		return fmt.Errorf("%s is older than the toolchain line of go.mod, %s: install %s, or set GOTOOLCHAIN=auto", running, want, want)
	}
	return nil
}

// goSemver turns go1.26.8 and go1.27rc1 into v1.26.8 and v1.27.0-rc1.
func goSemver(v string) string {
	v = strings.TrimPrefix(v, "go")
	for _, pre := range []string{"rc", "beta"} {
		if base, n, ok := strings.Cut(v, pre); ok {
			return "v" + base + ".0-" + pre + n
		}
	}
	return "v" + v
}
