// SPDX-License-Identifier: Apache-2.0

// Command kube-api-linter compares the types of our APIs with Kubernetes' conventions, by the
// linters of sigs.k8s.io/kube-api-linter. It is a program of its own, because golangci-lint would
// have to be built again with them. From the root of the repository:
//
//	go -C deploy/tools/kube-api-linter run . [-v] DIRECTORY...
//
// exclusions.yaml lists findings that stay, each with a reason. An exclusion that no finding needs
// is an error.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/kube-api-linter/pkg/plugin/base"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration" // the linters
	"sigs.k8s.io/yaml"
)

//go:embed exclusions.yaml
var exclusionFile []byte

// exclusion is a kind of finding that stays.
type exclusion struct {
	// Linter is the linter's name.
	Linter string `json:"linter"`
	// Message is a regular expression.
	Message string `json:"message"`
	// Reason says why the types are right.
	Reason string `json:"reason"`

	message *regexp.Regexp
	used    bool
}

func main() {
	verbose := flag.Bool("v", false, "also show findings that are excluded")
	flag.Parse()
	if err := run(flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "kube-api-linter:", err)
		os.Exit(1)
	}
}

func run(dirs []string, verbose bool) error {
	exclusions, err := readExclusions(exclusionFile)
	if err != nil {
		return err
	}
	findings, err := lint(dirs)
	if err != nil {
		return err
	}
	left := 0
	for _, f := range findings {
		excluded := f.excluded(exclusions)
		if !excluded {
			left++
		}
		if !excluded || verbose {
			fmt.Printf("%s: %s: %s\n", f.position, f.linter, f.message)
		}
	}
	for _, e := range exclusions {
		if !e.used {
			left++
			fmt.Printf("exclusions.yaml: no finding of %s matches %q: remove it\n", e.Linter, e.Message)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d findings: mend the types, or add them to exclusions.yaml with a reason", left)
	}
	return nil
}

func readExclusions(data []byte) ([]*exclusion, error) {
	var list []*exclusion
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return nil, fmt.Errorf("exclusions.yaml: %w", err)
	}
	for _, e := range list {
		if e.Linter == "" || e.Reason == "" {
			return nil, fmt.Errorf("exclusions.yaml: %+v needs a linter and a reason", *e)
		}
		var err error
		if e.message, err = regexp.Compile(e.Message); err != nil {
			return nil, fmt.Errorf("exclusions.yaml: %w", err)
		}
	}
	return list, nil
}

type finding struct{ position, linter, message string }

func (f finding) excluded(list []*exclusion) bool {
	for _, e := range list {
		if e.Linter == f.linter && e.message.MatchString(f.message) {
			e.used = true
			return true
		}
	}
	return false
}

// unexported matches findings about types that are no part of an API.
var unexported = regexp.MustCompile(`^field [a-z]`)

// lint runs the default linters and maxlength on the packages in directories, each of any module.
func lint(dirs []string) ([]finding, error) {
	linters, err := base.New(map[string]any{"linters": map[string]any{"enable": []string{"maxlength"}}})
	if err != nil {
		return nil, err
	}
	analyzers, err := linters.BuildAnalyzers()
	if err != nil {
		return nil, err
	}
	var out []finding
	for _, dir := range dirs {
		loaded, err := packages.Load(&packages.Config{Mode: packages.LoadAllSyntax, Dir: dir}, ".")
		if err != nil {
			return nil, err
		}
		for _, p := range loaded {
			for _, e := range p.Errors {
				return nil, fmt.Errorf("%s: %w", dir, e)
			}
		}
		graph, err := checker.Analyze(analyzers, loaded, nil)
		if err != nil {
			return nil, err
		}
		for action := range graph.All() {
			if action.Err != nil {
				return nil, fmt.Errorf("%s: %w", action, action.Err)
			}
			if !action.IsRoot {
				continue
			}
			for _, d := range action.Diagnostics {
				at := action.Package.Fset.Position(d.Pos)
				if strings.HasPrefix(filepath.Base(at.Filename), "zz_generated.") || unexported.MatchString(d.Message) {
					continue
				}
				out = append(out, finding{fmt.Sprintf("%s:%d", at.Filename, at.Line), action.Analyzer.Name, d.Message})
			}
		}
	}
	slices.SortFunc(out, func(a, b finding) int {
		return strings.Compare(a.position+a.linter+a.message, b.position+b.linter+b.message)
	})
	return slices.Compact(out), nil
}
