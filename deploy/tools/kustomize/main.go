// SPDX-License-Identifier: Apache-2.0

// Command kustomize renders the directories below deploy/kustomize, each from the bundle.yaml
// in it. Run it in deploy/tools:
//
//	go run ./kustomize [-check]
//
// With -check it writes nothing and fails if a file is out of date. Its tests also compare
// the Helm chart in deploy/helm/fairlead, which is written by hand, with the bundle.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a file is out of date")
	root := flag.String("root", "../..", "directory of the repository")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "kustomize:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := kustomize(root)
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(root, name)
		if check {
			have, err := os.ReadFile(path)
			if err != nil || string(have) != string(data) {
				return fmt.Errorf("%s is out of date: run make manifests", name)
			}
			continue
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
