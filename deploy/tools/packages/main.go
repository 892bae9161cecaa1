// Command packages writes what other installers than fairlead take: kustomize
// directories below deploy/kustomize, each from the bundle.yaml that lies in it,
// and the Helm chart in deploy/helm/fairlead. With -check it writes nothing and
// fails if a file is not what it would write.
//
// Everything comes from the typed bundle. kustomize.go is simple; helm.go explains
// how templates are made of objects.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a file is out of date")
	root := flag.String("root", ".", "directory of the repository")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := generate(root)
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return extra(root, files)
}

// extra finds templates of an older chart, which Helm would install as well.
func extra(root string, files map[string][]byte) error {
	return filepath.WalkDir(filepath.Join(root, chartDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if _, ok := files[filepath.ToSlash(name)]; !ok {
			return fmt.Errorf("%s is not generated: remove it", name)
		}
		return nil
	})
}

// generate makes all files, by their path in the repository.
func generate(root string) (map[string][]byte, error) {
	files, err := kustomize(root)
	if err != nil {
		return nil, err
	}
	chart, err := chart()
	if err != nil {
		return nil, err
	}
	for name, data := range chart {
		files[chartDir+"/"+name] = data
	}
	return files, nil
}
